"""What an agent adapter is, and how a plan's agent becomes a command line.

An adapter gets the prompt, the model and the limits. It gets no arm and no provider: so the command line and the
environment of two arms cannot differ. What differs is the content of the MCP file, which the rollout writes to a
fixed path.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import Field

from pairtrial.core.canonical import digest_json
from pairtrial.core.errors import AgentError
from pairtrial.core.model import Model, Slug, load_yaml
from pairtrial.prereg.plan import AgentSpec

ENTRY_POINTS = "pairtrial.agents"
MCP_FILE = "mcp.json"
"""Name of the MCP file in the agent's home: the same in every arm."""


class AgentManifest(Model):
    """The facts about an agent, kept beside its adapter as YAML."""

    schema_: Annotated[Literal["pairtrial.agent.v1"], Field(alias="schema")]
    id: Slug
    title: str
    versions: Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
    """Versions whose behaviour was measured."""
    models: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Models that it accepts; empty: any."""
    embedded: bool = False
    """True for an agent without a language model: its results are descriptive only."""
    mcp: bool
    """Whether it can use MCP servers at all."""
    tools: Annotated[tuple[str, ...], Field(strict=False)]
    """Its own tools at start-up, exactly."""
    evidence: Literal["startup-event", "control-protocol", "canary-call"]
    """Where the startup assertion takes its facts from."""
    limits: str
    """What a result with this agent cannot say; printed in every report."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """How the agent is started, with placeholders for what belongs to one rollout.

    ``${PYTHON}``, ``${WORKSPACE}``, ``${HOME}``, ``${MCP_FILE}`` and ``${SEED}`` are filled in at launch. The template
    is the same bytes in every arm, and its digest stands in every receipt.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    stdin: bytes = b""

    @property
    def digest(self) -> str:
        """SHA-256 over command line, environment and standard input."""
        return digest_json({"argv": list(self.argv), "env": dict(self.env), "stdin": self.stdin.decode()})


@dataclass(frozen=True, slots=True)
class Expected:
    """What the agent's own startup event must say in one arm, to the letter."""

    agent: str
    version: str
    model: str
    tools: tuple[str, ...]
    servers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Server name → its tools."""
    context_files: tuple[str, ...] = ()


class AgentAdapter(Protocol):
    """Builds the command line of one agent."""

    manifest: AgentManifest

    def program_digest(self) -> str:
        """SHA-256 that identifies the program that will run."""
        ...

    def invocation(self, agent: AgentSpec, prompt: str) -> Invocation:
        """The command line for a prompt; knows no arm."""
        ...


def load_adapter(name: str) -> AgentAdapter:
    """The adapter called ``name``: one of ours, or one registered under ``pairtrial.agents``."""
    module_name = f"pairtrial.harness.agents.{name.replace('-', '_')}"
    if importlib.util.find_spec(module_name) is not None and name not in ("base",):
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


def render_prompt(template: str, *, task: str, test_command: str) -> str:
    """Fill a prompt template; it must use both fields, and nothing else is special in it."""
    for name in ("{{ task }}", "{{ test_command }}"):
        if template.count(name) != 1:
            raise AgentError(f"prompt template: {name} must stand in it exactly once", slug="prompt-template")
    return template.replace("{{ test_command }}", test_command).replace("{{ task }}", task.strip())
