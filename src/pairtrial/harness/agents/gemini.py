"""Gemini CLI, headless. Its stream names session and model only: the first request to the model says the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pairtrial.core.status import StopReason
from pairtrial.harness.agents.base import Expected, Invocation, Place, load_manifest
from pairtrial.harness.agents.native import NativeAdapter, count
from pairtrial.harness.agents.programs import find_program
from pairtrial.harness.agents.reads import Readers, read_paths
from pairtrial.harness.agents.session import NOTHING, ObjectSession, Reply, other, size_of
from pairtrial.harness.events import Message, Result, Startup, ToolCall, Usage
from pairtrial.prereg.plan import AgentSpec
from pairtrial.sandbox import ExecResult

OFF = ("google_web_search", "web_fetch", "activate_skill", "invoke_agent", "save_memory")
"""Tools that are left out: they reach the network, other agents, or a memory."""
READERS: Readers = {"read_file": ("file_path", "absolute_path"), "grep_search": ("path", "dir_path")}
NO_CONTEXT = "PAIRTRIAL-NO-CONTEXT-FILE.md"
SETTINGS: dict[str, Any] = {
    "general": {"disableAutoUpdate": True, "enableAutoUpdate": False, "checkpointing": {"enabled": False}},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
    "skills": {"enabled": False},
    "experimental": {"enableAgents": False, "autoMemory": False},
    "tools": {"sandbox": False, "exclude": list(OFF)},
}


class GeminiAdapter(NativeAdapter):
    """Writes settings.json, which holds the settings and the servers."""

    mcp_file = ".gemini/settings.json"
    covers = frozenset[str]()
    own_files = ("gemini.py", "gemini.yaml")

    def __init__(self) -> None:
        self.manifest = load_manifest(__file__)

    def invocation(self, agent: AgentSpec, prompt: str) -> Invocation:
        """The prompt goes over standard input."""
        command = find_program(self.manifest, agent.version).command
        argv = (*command, "-o", "stream-json", "-m", agent.model, "--yolo", "--skip-trust", "-e", "none")
        env = {
            "LANG": "C.UTF-8", "GEMINI_CLI_HOME": "${HOME}", "GEMINI_API_KEY": "${TOKEN}",
            "GOOGLE_GEMINI_BASE_URL": "${GATEWAY}", "NO_COLOR": "1", "GEMINI_CLI_NO_RELAUNCH": "true",
        }  # fmt: skip
        return Invocation(argv, env, prompt.encode())

    def render_mcp(self, agent: AgentSpec, servers: Mapping[str, Mapping[str, Any]]) -> bytes:
        """settings.json."""
        reads = agent.options.get("context_files") is True
        context = {"fileName": "GEMINI.md" if reads else NO_CONTEXT, "includeDirectoryTree": False}
        table = {
            name: {"httpUrl": server["url"], "headers": dict(server["headers"]), "trust": True}
            if "url" in server
            else {"command": server["command"], "args": list(server["args"]), "env": dict(server["env"]), "trust": True}
            for name, server in servers.items()
        }
        return json.dumps({**SETTINGS, "context": context, "mcpServers": table}, sort_keys=True).encode()

    def tool_form(self, agent: AgentSpec) -> str:
        """``mcp_server_tool``."""
        return "mcp_{server}_{tool}"

    def session(self, agent: AgentSpec, invocation: Invocation, expected: Expected, place: Place) -> GeminiSession:
        """Its JSON events."""
        return GeminiSession(invocation.stdin, expected)


class GeminiSession(ObjectSession):
    """``init``, ``message``, ``tool_use``, ``tool_result``, ``result``."""

    def __init__(self, prompt: bytes, expected: Expected) -> None:
        self._prompt = prompt
        self._expected = expected
        self._calls: dict[str, dict[str, Any]] = {}
        self._fault = ""

    def open(self) -> Reply:
        """The prompt."""
        return Reply(send=(self._prompt,), close=True)

    def _take(self, value: dict[str, Any]) -> Reply:
        match value.get("type"):
            case "init":
                # The stream names no version: the program's digest stands for it.
                model = str(value.get("model"))
                return Reply(
                    (Startup(agent="gemini", version=self._expected.version, model=model, mcp_servers=(), tools=()),)
                )
            case "message":
                if value.get("role") != "assistant":
                    return NOTHING
                return Reply((Message(role="assistant", text=str(value.get("content")), model=self._expected.model),))
            case "tool_use":
                self._calls[str(value.get("tool_id"))] = value
                return NOTHING
            case "tool_result":
                return Reply((self._call(value),))
            case "error":
                if value.get("severity") != "warning":
                    self._fault = str(value.get("message"))[:300]
                return Reply((other("error", value),))
            case "result":
                return self._end(value)
            case kind:
                return Reply((other(str(kind), value),))

    def _call(self, value: dict[str, Any]) -> ToolCall:
        ident = str(value.get("tool_id"))
        use = self._calls.pop(ident, {})
        name, server = str(use.get("tool_name")), None
        for known in self._expected.servers:
            if name.startswith(f"mcp_{known}_"):
                server, name = known, name.removeprefix(f"mcp_{known}_")
                break
        else:
            if name.startswith("mcp_"):
                server, _, name = name.removeprefix("mcp_").partition("_")
        arguments, output = use.get("parameters"), value.get("output")
        good = value.get("status") == "success"
        return ToolCall(
            id=ident,
            server=server,
            name=name,
            arguments=arguments if isinstance(arguments, dict) else {},
            status="ok" if good else "error",
            reads=read_paths(READERS, server, name, arguments, "ok" if good else "error"),
            result_bytes=size_of(output) if isinstance(output, str) else None,
        )

    def _end(self, value: dict[str, Any]) -> Reply:
        events: list[Any] = []
        stats = value.get("stats")
        models = stats.get("models") if isinstance(stats, dict) else None
        for model, figures in (models if isinstance(models, dict) else {}).items():
            if isinstance(figures, dict):
                fresh = figures.get("input", figures.get("input_tokens"))
                events.append(
                    Usage(
                        model=str(model),
                        input_tokens=count(fresh),
                        output_tokens=count(figures.get("output_tokens")),
                        cache_read_tokens=count(figures.get("cached")),
                    )
                )
        error = value.get("error")
        good = value.get("status") == "success" and not error and not self._fault
        text = str(error.get("message") if isinstance(error, dict) else error or "") or self._fault
        stop = StopReason.FINISHED if good else StopReason.CRASHED
        events.append(Result(stop_reason=stop, is_error=not good, text=text))
        return Reply(tuple(events), done=True)

    def finish(self, ended: ExecResult) -> Reply:
        """Calls that never came back are errors."""
        return Reply(tuple(self._call({"tool_id": ident}) for ident in list(self._calls)))


ADAPTER = GeminiAdapter()
