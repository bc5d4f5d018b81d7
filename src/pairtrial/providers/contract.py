"""What a context layer may do: return an `AgentConfig`, and nothing else.

A provider influences the agent through its MCP servers and the context files that it declares; never through the
prompt, the sandbox or the grading. That keeps the single-difference property true whoever writes the provider.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from pairtrial.core.canonical import canonical_json
from pairtrial.core.errors import ProviderError
from pairtrial.core.model import Model, RelPath, Sha256, Slug

PLACEHOLDERS = frozenset({"PYTHON", "PROVIDER", "STATE", "WORKSPACE", "HOME"})
"""``${PYTHON}`` the runtime of agents and servers, an interpreter with the MCP SDK alone; ``${PROVIDER}`` the provider's
folder; ``${STATE}`` a folder of this rollout for the index; ``${WORKSPACE}`` the task's tree; ``${HOME}`` the agent's home."""

_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_]*)\}")
ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_./-]{1,128}$")]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Z_][A-Z0-9_]*$")]


class Server(Model):
    """One MCP server: a command that speaks over stdio, or a hosted one that the gateway relays."""

    command: str | None = None
    args: Annotated[tuple[str, ...], Field(strict=False)] = ()
    env: dict[str, str] = Field(default_factory=dict)
    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s]+$")] | None = None
    """Address of a hosted server. The agent never sees it: it talks to the gateway."""
    credential: EnvName | None = None
    """Name of the variable whose value the gateway adds to requests for a hosted server."""
    header: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$")] = "authorization"
    """Header that carries it; ``authorization`` gets the word Bearer in front."""
    tools: Annotated[tuple[ToolName, ...], Field(min_length=1, strict=False)]
    """Exactly the tools that the server must offer at start-up."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("a server has either a command (stdio) or a url (hosted)")
        if self.url is not None and (self.args or self.env):
            raise ValueError("args and env belong to a command; a hosted server has none")
        if self.url is None and self.credential is not None:
            raise ValueError("credential: only a hosted server has one; no secret enters the sandbox")
        return self


class Index(Model):
    """A step that runs before the agent starts, in the same sandbox."""

    command: Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
    timeout_s: Annotated[float, Field(gt=0, le=3600, strict=False)]
    max_bytes: Annotated[int, Field(gt=0)]
    """Upper bound of what it may leave in ``${STATE}``."""


class AgentConfig(Model):
    """The only channel of a provider."""

    schema_: Annotated[Literal["pairtrial.provider.v1"], Field(alias="schema")]
    id: Slug
    version: str
    title: str
    servers: dict[Slug, Server] = Field(default_factory=dict)
    index: Index | None = None
    context_files: dict[RelPath, RelPath] = Field(default_factory=dict)
    """Path in the workspace → file in the provider's folder."""
    allowed_tools: Annotated[tuple[ToolName, ...], Field(strict=False)] = ()
    """Must be empty: which tools of its own an agent has is the same in every arm."""
    credentials: Annotated[tuple[EnvName, ...], Field(strict=False)] = ()
    """Names of environment variables that hold secrets; values never appear in a record."""
    data_egress: Literal["none", "provider"] = "none"
    """Whether task source leaves the machine."""

    @model_validator(mode="after")
    def _delivers_something(self) -> Self:
        problems = []
        if self.allowed_tools:
            problems.append("allowed_tools: the agent's own tools are the same in every arm; remove the entries")
        if not self.servers and not self.context_files:
            problems.append("a provider without servers and context files is the control under another name")
        texts = [
            *(
                text
                for server in self.servers.values()
                for text in (server.command or "", *server.args, *server.env.values())
            ),
            *(self.index.command if self.index else ()),
        ]
        for text in texts:
            for name in _PLACEHOLDER.findall(text):
                if name not in PLACEHOLDERS:
                    problems.append(f"${{{name}}} is no placeholder; known are {', '.join(sorted(PLACEHOLDERS))}")
        for name, server in self.servers.items():
            if server.credential is not None and server.credential not in self.credentials:
                problems.append(f"servers.{name}.credential: {server.credential} is not listed in credentials")
        for path in self.context_files:
            if path.split("/")[0] == ".git":
                problems.append(f"context_files: {path} lies in .git")
        if problems:
            raise ValueError("; ".join(problems))
        return self


class Provider(Model):
    """A loaded provider: its configuration, the bytes of its context files and its identity."""

    config: AgentConfig
    folder: str
    """Absolute path on this machine; never written to a record."""
    tree: Sha256
    """Digest of everything in the folder."""
    context: dict[RelPath, bytes] = Field(default_factory=dict)
    """Path in the workspace → bytes."""

    @property
    def name(self) -> str:
        """The provider's id."""
        return self.config.id


def expand(value: Any, table: Mapping[str, str]) -> Any:
    """Replace placeholders in every string of a JSON value."""
    if isinstance(value, str):

        def one(match: re.Match[str]) -> str:
            name = match.group(1)
            if name not in table:
                raise ProviderError(f"${{{name}}} has no value here", slug="unknown-placeholder")
            return table[name]

        return _PLACEHOLDER.sub(one, value)
    if isinstance(value, dict):
        return {expand(key, table): expand(item, table) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [expand(item, table) for item in value]
    return value


def mcp_template(config: AgentConfig | None) -> bytes:
    """The MCP file of an arm before its placeholders are filled in: the one file in which arms differ.

    An arm without a provider gets a file without servers at the same path.
    """
    servers = {name: _entry(name, server) for name, server in (config.servers if config else {}).items()}
    return canonical_json({"mcpServers": servers})


def _entry(name: str, server: Server) -> dict[str, Any]:
    if server.url is not None:
        return {"url": f"${{GATEWAY}}/mcp/{name}", "headers": {"Authorization": "Bearer ${TOKEN}"}}
    return {"command": server.command, "args": list(server.args), "env": dict(server.env)}
