"""Claude Code, headless, over its control protocol.

The prompt is sent only after the agent has said which MCP servers and tools it has: a rollout whose treatment is
missing ends before a token is spent. What it said at start-up is compared with what its version says when nothing was
customised, as measured and kept in the manifest.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pairtrial.core.canonical import digest_json
from pairtrial.harness.agents.base import Adapter, Baseline, Expected, Invocation, Place, load_manifest, split_turns
from pairtrial.harness.agents.claude_stream import ClaudeSession
from pairtrial.harness.agents.programs import find_program, own_code
from pairtrial.prereg.plan import AgentSpec

CORE_TOOLS = ("Bash", "Edit", "Read", "Write")
WEB_TOOLS = ("WebFetch", "WebSearch")
"""Left out always: the provider runs them on its own machines, where they can look up a task's fix."""
OPTIONS = {
    "tools": ("core", "full"),
    "tool_search": (False, True),
    "context_files": (False, True),
    "target_context": ("keep",),
}
DEVICE = "0" * 64
"""The CLI puts a random number of its own into every request; a constant keeps two arms' requests equal."""
SETTINGS = (
    json.dumps(
        {
            "userID": DEVICE,
            "machineID": DEVICE,
            "hasCompletedOnboarding": True,
            "firstStartTime": "2026-01-01T00:00:00.000Z",
        },
        sort_keys=True,
    )
    + "\n"
)
ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "CLAUDE_CONFIG_DIR": "${HOME}/.claude",
    "ANTHROPIC_BASE_URL": "${GATEWAY}",
    "ANTHROPIC_API_KEY": "${TOKEN}",
    "IS_SANDBOX": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS": "1",
    "CLAUDE_AGENT_SDK_DISABLE_BUILTIN_AGENTS": "1",
    "MCP_CONNECTION_NONBLOCKING": "0",
    "MCP_TIMEOUT": "30000",
    "CLAUDE_CODE_MAX_RETRIES": "4",
}


class ClaudeCodeAdapter(Adapter):
    """Builds the command line and follows the conversation."""

    multi_turn = True
    mcp_file = "mcp.json"
    covers = frozenset({"servers", "tools"})

    def __init__(self) -> None:
        self.manifest = load_manifest(__file__)

    def problems(self, agent: AgentSpec) -> list[str]:
        """Options that do not exist, values that do not fit."""
        found = []
        for name, value in agent.options.items():
            if name not in OPTIONS:
                found.append(f"agent.options.{name}: claude-code has {', '.join(OPTIONS)}; correct or remove it")
            elif value not in OPTIONS[name] or isinstance(value, bool) != isinstance(OPTIONS[name][0], bool):
                words = ", ".join(str(item).lower() for item in OPTIONS[name])
                found.append(f"agent.options.{name}: {value!r} is none of {words}")
        if agent.options.get("tool_search") is True and agent.options.get("tools", "core") != "full":
            found.append("agent.options.tool_search: needs tools: full (a restricted tool set has no ToolSearch)")
        return found

    def program_digest(self, agent: AgentSpec) -> str:
        """The binary, and the code that drives it."""
        program = find_program(self.manifest, agent.version).digest
        return digest_json({"program": program, **own_code("claude_code.py", "claude_stream.py", "claude_code.yaml")})

    def folders(self, agent: AgentSpec) -> tuple[Path, ...]:
        """The binary's folder."""
        return (find_program(self.manifest, agent.version).folder,)

    def invocation(self, agent: AgentSpec, prompt: str) -> Invocation:
        """The command line; prompt and control requests go over standard input."""
        options = agent.options
        reads = options.get("context_files") is True
        search = options.get("tool_search") is True
        core = options.get("tools", "core") == "core"
        argv = [
            *find_program(self.manifest, agent.version).command,
            "-p",
            "--input-format", "stream-json",
            "--output-format", "stream-json",
            "--verbose",
            "--model", agent.model,
            "--mcp-config", "${MCP_FILE}",
            "--strict-mcp-config",
            "--setting-sources", "project" if reads else "",
            "--permission-mode", "bypassPermissions",
            "--no-session-persistence",
            "--max-turns", str(agent.limits.turns),
            # the same in every arm: a random one would stand in every request
            "--session-id", str(uuid.uuid5(uuid.NAMESPACE_OID, prompt)),
        ]  # fmt: skip
        argv += [] if reads else ["--disable-slash-commands"]
        argv += ["--tools", ",".join(CORE_TOOLS)] if core else ["--disallowedTools", ",".join(WEB_TOOLS)]
        env = {
            **ENVIRONMENT,
            "ENABLE_TOOL_SEARCH": "true" if search else "false",
            "CLAUDE_CODE_SUBAGENT_MODEL": agent.model,
            "ANTHROPIC_SMALL_FAST_MODEL": agent.model,
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": agent.model,
        }
        if not reads:
            env["CLAUDE_CODE_DISABLE_CLAUDE_MDS"] = "1"
        return Invocation(tuple(argv), env, prompt.encode(), {".claude/.claude.json": SETTINGS})

    def render_mcp(self, agent: AgentSpec, servers: Mapping[str, Mapping[str, Any]]) -> bytes:
        """The CLI's own format is ours; a server over HTTP names its type."""
        table = {
            name: {"type": "http", **server} if "url" in server else {"type": "stdio", **server}
            for name, server in servers.items()
        }
        return json.dumps({"mcpServers": table}, sort_keys=True).encode()

    def baseline(self, agent: AgentSpec) -> Baseline:
        """What this version starts with under these options."""
        kind = agent.options.get("tools", "core")
        if kind == "full" and agent.options.get("tool_search") is True:
            kind = "full-search"
        if agent.options.get("context_files") is True:
            kind = f"{kind}-context"
        table = self.manifest.baselines
        return table.get(f"{agent.version}/{kind}") or table[f"{agent.version}/{str(kind).removesuffix('-context')}"]

    def own_tools(self, agent: AgentSpec, *, servers: bool) -> tuple[str, ...]:
        """By version and options."""
        baseline = self.baseline(agent)
        return (*baseline.tools, *(baseline.with_servers if servers else ()))

    def tool_form(self, agent: AgentSpec) -> str:
        """``mcp__server__tool``."""
        return "mcp__{server}__{tool}"

    def session(self, agent: AgentSpec, invocation: Invocation, expected: Expected, place: Place) -> ClaudeSession:
        """Control protocol first, then the prompt."""
        first, *further = split_turns(invocation.stdin.decode())
        return ClaudeSession(first, expected, self.baseline(agent), tuple(further))


ADAPTER = ClaudeCodeAdapter()
