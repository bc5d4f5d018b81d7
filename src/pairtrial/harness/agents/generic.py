"""Any agent that speaks our event stream (`docs/agent-stream.md`): named in the plan, no adapter code needed.

``agent.options``: ``command`` is the program with its arguments, relative to the plan's working folder or on PATH;
``api`` (``none``, ``anthropic``, ``openai``, ``gemini``) says whose format its requests have; ``tools`` are the names of
its own tools as its startup event must list them, with commas; ``mcp: false`` says that it cannot use MCP servers.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from pairtrial.core.canonical import digest_json, sha256_file
from pairtrial.core.errors import AgentError
from pairtrial.harness.agents.base import Adapter, ApiFacts, Invocation, load_manifest
from pairtrial.prereg.plan import AgentSpec

CREDENTIALS = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY", "gemini": "GEMINI_API_KEY"}
OPTIONS = ("command", "api", "tools", "tool_form", "mcp", "context_files", "target_context")


class GenericAdapter(Adapter):
    """The prompt goes over standard input; everything else stands in the environment."""

    counts_turns = False

    def __init__(self) -> None:
        self.manifest = load_manifest(__file__)

    def problems(self, agent: AgentSpec) -> list[str]:
        """Options that are missing or do not exist."""
        found = [
            f"agent.options.{name}: generic has {', '.join(OPTIONS)}" for name in agent.options if name not in OPTIONS
        ]
        if not isinstance(agent.options.get("command"), str):
            found.append("agent.options.command: name the program that speaks the event stream")
        if agent.options.get("api", "none") not in ("none", *CREDENTIALS):
            found.append(f"agent.options.api: one of none, {', '.join(CREDENTIALS)}")
        if not found:
            try:
                self._command(agent)
            except AgentError as fault:
                found.append(str(fault))
        return found

    def _command(self, agent: AgentSpec) -> list[str]:
        words = shlex.split(str(agent.options.get("command", "")))
        path = shutil.which(words[0]) if words else None
        if path is None:
            raise AgentError(f"agent.options.command: {words[0] if words else ''!r} is not here", slug="agent-missing")
        return [str(Path(path).absolute()), *words[1:]]

    def api(self, agent: AgentSpec) -> ApiFacts | None:
        """By option."""
        family = agent.options.get("api", "none")
        if family not in CREDENTIALS:
            return None
        return ApiFacts.model_validate({"family": family, "credential": CREDENTIALS[str(family)]})

    def program_digest(self, agent: AgentSpec) -> str:
        """The program file, and every argument that is a file."""
        words = self._command(agent)
        files = {word: sha256_file(Path(word)) for word in words if Path(word).is_file()}
        return digest_json({Path(name).name: digest for name, digest in files.items()})

    def folders(self, agent: AgentSpec) -> tuple[Path, ...]:
        """Folders of the program and of arguments that are files."""
        return tuple({Path(word).resolve().parent for word in self._command(agent) if Path(word).is_file()})

    def invocation(self, agent: AgentSpec, prompt: str) -> Invocation:
        """Absolute paths of files among the words: the agent runs in the workspace."""
        words = [str(Path(word).absolute()) if Path(word).is_file() else word for word in self._command(agent)]
        env = {
            "LANG": "C.UTF-8",
            "PAIRTRIAL_MODEL": agent.model,
            "PAIRTRIAL_MCP_FILE": "${MCP_FILE}",
            "PAIRTRIAL_SEED": "${SEED}",
            "PAIRTRIAL_TURNS": str(agent.limits.turns),
        }
        if self.api(agent) is not None:
            env |= {"PAIRTRIAL_GATEWAY": "${GATEWAY}", "PAIRTRIAL_TOKEN": "${TOKEN}"}
        return Invocation(tuple(words), env, prompt.encode())

    def own_tools(self, agent: AgentSpec, *, servers: bool) -> tuple[str, ...]:
        """By option."""
        names = str(agent.options.get("tools", ""))
        return tuple(name.strip() for name in names.split(",") if name.strip())

    def tool_form(self, agent: AgentSpec) -> str:
        """By option."""
        return str(agent.options.get("tool_form", "{tool}"))


ADAPTER = GenericAdapter()
