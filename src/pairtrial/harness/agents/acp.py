"""Any agent that speaks the Agent Client Protocol over standard input and output.

The protocol says nothing about the state of MCP servers: the first request to the model does, before it leaves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pairtrial.harness.agents.acp_stream import AcpSession
from pairtrial.harness.agents.base import ApiFacts, Expected, Invocation, Place, load_manifest, split_turns
from pairtrial.harness.agents.gemini import NO_CONTEXT
from pairtrial.harness.agents.gemini import SETTINGS as GEMINI_SETTINGS
from pairtrial.harness.agents.native import NativeAdapter
from pairtrial.harness.agents.opencode import ENVIRONMENT as OPENCODE_ENVIRONMENT
from pairtrial.harness.agents.opencode import settings as opencode_settings
from pairtrial.harness.agents.programs import find_program
from pairtrial.prereg.plan import AgentSpec


@dataclass(frozen=True, slots=True)
class Inner:
    """How one agent is started for the protocol."""

    family: ApiFacts
    arguments: tuple[str, ...]
    env: Mapping[str, str]
    tool_form: str
    """How it names an MCP tool, with ``{server}`` and ``{tool}``."""
    authenticate: str | None = None
    mode: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)


def inner(agent: AgentSpec) -> Inner:
    """The agent behind a version such as ``gemini-0.61.0``."""
    if agent.version.startswith("gemini-"):
        settings = {**GEMINI_SETTINGS, "context": {"fileName": NO_CONTEXT, "includeDirectoryTree": False}}
        return Inner(
            family=ApiFacts(family="gemini", credential="GEMINI_API_KEY"),
            arguments=("--acp", "-m", agent.model, "--yolo", "--skip-trust", "-e", "none"),
            env={
                "LANG": "C.UTF-8", "GEMINI_CLI_HOME": "${HOME}", "GEMINI_API_KEY": "${TOKEN}",
                "GOOGLE_GEMINI_BASE_URL": "${GATEWAY}", "NO_COLOR": "1", "GEMINI_CLI_NO_RELAUNCH": "true",
            },
            tool_form="mcp_{server}_{tool}",
            authenticate="gemini-api-key",
            mode="yolo",
            files={".gemini/settings.json": json.dumps(settings, sort_keys=True)},
        )  # fmt: skip
    return Inner(
        family=ApiFacts(family="anthropic", credential="ANTHROPIC_API_KEY"),
        arguments=("acp", "--pure"),
        env={**OPENCODE_ENVIRONMENT, "OPENCODE_CONFIG": "${HOME}/.config/pairtrial/opencode.json"},
        tool_form="{server}_{tool}",
        files={".config/pairtrial/opencode.json": json.dumps(opencode_settings(agent), sort_keys=True)},
    )


class AcpAdapter(NativeAdapter):
    """Starts the agent and hands it its MCP servers with ``session/new``."""

    multi_turn = True
    covers = frozenset[str]()
    own_files = ("acp.py", "acp_stream.py", "acp.yaml", "gemini.py", "opencode.py")
    options: Mapping[str, tuple[bool | str, ...]] = {}

    def __init__(self) -> None:
        self.manifest = load_manifest(__file__)

    def api(self, agent: AgentSpec) -> ApiFacts | None:
        """Of the agent behind the protocol."""
        return inner(agent).family

    def invocation(self, agent: AgentSpec, prompt: str) -> Invocation:
        """Settings lie in HOME, the same in every arm; the servers come over the protocol."""
        one = inner(agent)
        command = find_program(self.manifest, agent.version).command
        return Invocation((*command, *one.arguments), one.env, prompt.encode(), one.files)

    def tool_form(self, agent: AgentSpec) -> str:
        """Of the agent behind the protocol."""
        return inner(agent).tool_form

    def session(self, agent: AgentSpec, invocation: Invocation, expected: Expected, place: Place) -> AcpSession:
        """JSON-RPC over standard input and output."""
        one = inner(agent)
        servers = json.loads(place.mcp)["mcpServers"]
        first, *further = split_turns(invocation.stdin.decode())
        return AcpSession(
            first,
            expected,
            place.workspace,
            servers,
            authenticate=one.authenticate,
            mode=one.mode,
            turns=tuple(further),
        )


ADAPTER = AcpAdapter()
