"""What an agent adapter is, and how a plan's agent becomes a command line.

An adapter gets the prompt, the model and the limits. It gets no arm and no provider: so the command line and the
environment of two arms cannot differ. What differs is the content of the MCP file, which the rollout writes to a
fixed path.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field, StringConstraints

from pairtrial.core.canonical import digest_json
from pairtrial.core.errors import AgentError
from pairtrial.core.model import Model, RelPath, Sha256, Slug, load_yaml
from pairtrial.harness.agents.session import PlainSession, Session
from pairtrial.prereg.plan import AgentSpec

ENTRY_POINTS = "pairtrial.agents"
MCP_FILE = "mcp.json"
"""Name of the MCP file in the agent's home: the same in every arm."""
NEXT_TURN = "<!-- next turn -->"
"""Line of a task's prompt after which the next turn begins: it is sent when the one before has ended well."""
EVERYTHING = frozenset({"servers", "tools", "context"})
"""What a startup event can give evidence of besides agent, version and model."""


class ProgramSource(Model):
    """Where a version of an agent comes from, and how one knows that it is the right one."""

    registry: Literal["npm", "pypi"]
    package: str
    release: str
    """Version of the package, which need not be the agent's."""
    path: RelPath
    """The program below the folder that the package is installed into."""
    interpreter: Literal["node", "python"] | None = None
    """What runs it; absent: it runs by itself."""
    sha256: dict[str, Sha256]
    """Platform (``linux-x86_64``, or ``any``) → SHA-256 of the program file, or the tree digest of its folder."""
    folder: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]*$")] | None = None
    """Name of the installation where it is another agent's too; absent: ``id-version``."""
    digest_of: RelPath | None = None
    """Folder below the installation that the digest covers; absent: the program file alone."""
    lock: RelPath | None = None
    """File beside the manifest with every package and its hashes; absent: the package needs no other."""


class ApiFacts(Model):
    """How the agent talks to its model."""

    family: Literal["anthropic", "openai", "gemini"]
    credential: str
    """Environment variable of the harness that holds the key. Only its name is ever written."""


class Baseline(Model):
    """What a version starts with by itself, as measured."""

    tools: Annotated[tuple[str, ...], Field(strict=False)]
    with_servers: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Further tools of its own that it may have as soon as any MCP server is configured, by what the server can do."""
    skills: Annotated[tuple[str, ...], Field(strict=False)] = ()
    commands: Annotated[tuple[str, ...], Field(strict=False)] = ()
    agents: Annotated[tuple[str, ...], Field(strict=False)] = ()
    plugins: Annotated[tuple[str, ...], Field(strict=False)] = ()


class Deferral(Model):
    """An option under which the schemas of MCP tools are not in the first request: the model searches for them."""

    option: str
    needs: dict[str, bool | int | str] = Field(default_factory=dict)
    """Other options that it works with only."""


class AgentManifest(Model):
    """The facts about an agent, kept beside its adapter as YAML."""

    schema_: Annotated[Literal["pairtrial.agent.v1"], Field(alias="schema")]
    id: Slug
    title: str
    versions: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Versions whose behaviour was measured; empty: any, for an adapter that carries any agent."""
    models: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Models that it accepts; empty: any."""
    embedded: bool = False
    """True for an agent without a language model: its results are descriptive only."""
    mcp: bool
    """Whether it can use MCP servers at all."""
    tools: Annotated[tuple[str, ...], Field(strict=False)]
    """Its own tools at start-up, exactly."""
    evidence: Literal["startup-event", "control-protocol", "canary-call", "wire"]
    """Where the startup assertion takes its facts from. ``wire``: the first request to the model, before it leaves."""
    tells_reads: bool = False
    """Whether its stream names the files that its own reading tools read. What a shell command reads is never told."""
    limits: str
    """What a result with this agent cannot say; printed in every report."""
    api: ApiFacts | None = None
    """Absent: it asks no model and gets no gateway."""
    programs: dict[str, ProgramSource] = Field(default_factory=dict)
    """Version → where it comes from."""
    baselines: dict[str, Baseline] = Field(default_factory=dict)
    """``version`` or ``version/option`` → what it starts with by itself."""
    hosted_mcp: bool = False
    """Whether it can use MCP servers over HTTP, which the gateway relays."""
    context_files: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Names of context files that it reads when the plan lets it."""
    may_differ: dict[str, bool | int | str] = Field(default_factory=dict)
    """Option that an arm may declare as its difference → its value where nobody sets it. Only what makes a channel of
    the treatment work at all belongs here."""
    deferral: Deferral | None = None
    """How it is told to leave tool schemas out of its requests until they are asked for; absent: it cannot."""
    leaks: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """What is known to reach its model besides the prompt, and cannot be turned off."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """How the agent is started, with placeholders for what belongs to one rollout.

    ``${PYTHON}``, ``${WORKSPACE}``, ``${HOME}``, ``${MCP_FILE}`` and ``${SEED}`` are filled in at launch. The template
    is the same bytes in every arm, and its digest stands in every receipt.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    stdin: bytes = b""
    files: Mapping[str, str] = field(default_factory=dict)
    """Path in HOME → content with placeholders: settings that are the same in every arm."""

    @property
    def digest(self) -> str:
        """SHA-256 over command line, environment, standard input and settings."""
        whole: dict[str, object] = {
            "argv": list(self.argv),
            "env": dict(self.env),
            "stdin": self.stdin.decode(),
        }
        if self.files:
            whole["files"] = dict(self.files)
        return digest_json(whole)


@dataclass(frozen=True, slots=True)
class Place:
    """Where one rollout happens, for agents that are told over their standard input."""

    workspace: str
    """Absolute path inside the sandbox."""
    mcp: bytes
    """The MCP file as it was delivered."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the agent's own startup event must say in one arm, to the letter."""

    agent: str
    version: str
    model: str
    tools: tuple[str, ...]
    optional_tools: tuple[str, ...] = ()
    """Tools of its own that come with a server, or not: agents offer to list resources where a server says it has any."""
    servers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Server name → its tools."""
    context_files: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    covers: frozenset[str] = EVERYTHING
    """What the agent's startup event gives evidence of. The rest is read off the wire."""
    tool_form: str = "{tool}"
    served: tuple[str, ...] = ()
    """Further names under which the registered model may answer."""

    def tool_name(self, server: str, tool: str) -> str:
        """The name under which the model is offered a tool."""
        return self.tool_form.format(server=server, tool=tool)

    @property
    def tool_names(self) -> dict[str, str]:
        """Name on the wire → server, of every tool of the arm's servers."""
        return {self.tool_name(server, tool): server for server, tools in self.servers.items() for tool in tools}

    @property
    def tool_prefix(self) -> str:
        """What every MCP tool's name begins with, whatever its server; empty where there is no such mark."""
        return self.tool_form.partition("{")[0]


class AgentAdapter(Protocol):
    """Builds the command line of one agent, and understands what it says. `Adapter` holds the plain answers."""

    manifest: AgentManifest
    mcp_file: str
    """Path in HOME of the one file whose content differs between arms."""
    covers: frozenset[str]
    """What its startup event gives evidence of."""
    wire_tools: bool
    """Whether `own_tools` are the names in its requests, so that nothing else may stand there."""
    multi_turn: bool
    """Whether it takes further turns in one session."""
    starts_first: bool
    """Whether its startup event comes before its first request, which is then held back until the event is checked."""
    counts_turns: bool
    """Whether it keeps the turn limit itself; if not, the gateway does."""
    volatile: frozenset[str]
    """Places in its requests that differ from run to run (``metadata.user_id``, ``input[].id``)."""

    def program_digest(self, agent: AgentSpec) -> str:
        """SHA-256 that identifies the program that will run."""
        ...

    def invocation(self, agent: AgentSpec, prompt: str) -> Invocation:
        """The command line for a prompt; knows no arm."""
        ...

    def problems(self, agent: AgentSpec) -> list[str]:
        """What is wrong with a plan's ``agent.options``."""
        ...

    def render_mcp(self, agent: AgentSpec, servers: Mapping[str, Mapping[str, Any]]) -> bytes:
        """The one file, in the agent's own format; ``servers`` is empty in the control."""
        ...

    def own_tools(self, agent: AgentSpec, *, servers: bool) -> tuple[str, ...]:
        """Tools that it has by itself, without or with any MCP server configured."""
        ...

    def tool_form(self, agent: AgentSpec) -> str:
        """The name under which the model is offered a tool of an MCP server, with ``{server}`` and ``{tool}``."""
        ...

    def session(self, agent: AgentSpec, invocation: Invocation, expected: Expected, place: Place) -> Session:
        """A conversation with one process of the agent."""
        ...

    def api(self, agent: AgentSpec) -> ApiFacts | None:
        """How it talks to its model; None when it asks none."""
        ...

    def folders(self, agent: AgentSpec) -> tuple[Path, ...]:
        """Host folders that the agent's processes must be able to read."""
        ...


class Adapter:
    """An agent that speaks our event stream, takes JSON for its MCP servers and has no options."""

    manifest: AgentManifest
    mcp_file: str = MCP_FILE
    covers: frozenset[str] = EVERYTHING
    wire_tools: bool = False
    multi_turn: bool = False
    starts_first: bool = True
    counts_turns: bool = True
    volatile: frozenset[str] = frozenset()

    def problems(self, agent: AgentSpec) -> list[str]:
        """Options are refused: nothing here reads any."""
        return [f"agent.options.{name}: {self.manifest.id} has no such option; remove it" for name in agent.options]

    def render_mcp(self, agent: AgentSpec, servers: Mapping[str, Mapping[str, Any]]) -> bytes:
        """JSON with one key, ``mcpServers``."""
        return json.dumps({"mcpServers": servers}, sort_keys=True).encode()

    def own_tools(self, agent: AgentSpec, *, servers: bool) -> tuple[str, ...]:
        """What the manifest lists."""
        return self.manifest.tools

    def tool_form(self, agent: AgentSpec) -> str:
        """The plain name."""
        return "{tool}"

    def session(self, agent: AgentSpec, invocation: Invocation, expected: Expected, place: Place) -> Session:
        """Say everything at once, then listen."""
        return PlainSession(invocation.stdin)

    def api(self, agent: AgentSpec) -> ApiFacts | None:
        """What the manifest says."""
        return self.manifest.api

    def folders(self, agent: AgentSpec) -> tuple[Path, ...]:
        """None besides our own package."""
        return ()


def load_adapter(name: str) -> AgentAdapter:
    """The adapter called ``name``: one of ours, or one registered under ``pairtrial.agents``."""
    module_name = f"pairtrial.harness.agents.{name.replace('-', '_')}"
    if importlib.util.find_spec(module_name) is not None and name not in (
        "base",
        "session",
        "programs",
        "install",
        "claude_stream",
        "codex_stream",
        "native",
        "reads",
    ):
        adapter: AgentAdapter = importlib.import_module(module_name).ADAPTER
        return adapter
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        if point.name == name:
            try:
                loaded: AgentAdapter = point.load()
            except Exception as fault:  # foreign code may raise anything
                raise AgentError(f"agent {name}: {type(fault).__name__}: {fault}", slug="agent-import") from fault
            return loaded
    raise AgentError(
        f"agent.adapter: no adapter {name!r}",
        hint="correct `agent.adapter`, or install what registers it",
        slug="missing",
    )


def load_manifest(module_file: str) -> AgentManifest:
    """The YAML beside an adapter's module."""
    return load_yaml(Path(module_file).with_suffix(".yaml"), AgentManifest, AgentError)


def split_turns(prompt: str) -> tuple[str, ...]:
    """The turns of a prompt in their order; one without the mark is one turn."""
    turns: list[list[str]] = [[]]
    for line in prompt.split("\n"):
        if line.strip() == NEXT_TURN:
            turns.append([])
        else:
            turns[-1].append(line)
    return tuple("\n".join(lines).strip("\n") + "\n" for lines in turns)


def render_prompt(template: str, *, task: str, test_command: str) -> str:
    """Fill a prompt template; it must use both fields, and nothing else is special in it."""
    for name in ("{{ task }}", "{{ test_command }}"):
        if template.count(name) != 1:
            raise AgentError(f"prompt template: {name} must stand in it exactly once", slug="prompt-template")
    first, *further = split_turns(task)
    text = template.replace("{{ test_command }}", test_command).replace("{{ task }}", first.strip())
    return "".join([text, *(f"\n{NEXT_TURN}\n{turn}" for turn in further)])
