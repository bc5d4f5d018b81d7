"""OpenCode, headless. Its stream says nothing about MCP servers, its server does: it is asked before it gets the prompt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pairtrial.core.status import StopReason
from pairtrial.harness.agents.base import Expected, Invocation, Place, load_manifest
from pairtrial.harness.agents.native import NativeAdapter, count
from pairtrial.harness.agents.programs import find_program
from pairtrial.harness.agents.reads import Readers, read_paths
from pairtrial.harness.agents.session import NOTHING, ObjectSession, Preflight, Reply, other, size_of
from pairtrial.harness.events import Message, Result, ServerStatus, Startup, ToolCall, Usage
from pairtrial.prereg.plan import AgentSpec
from pairtrial.sandbox import ExecResult

OFF = ("webfetch", "websearch", "task", "skill", "question", "todowrite")
"""Tools that are left out: they reach the network, other models, or a person."""
READERS: Readers = {"read": ("filePath",), "grep": ("path",), "glob": ("path",)}
ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "XDG_CONFIG_HOME": "${HOME}/.config",
    "XDG_DATA_HOME": "${HOME}/.local/share",
    "XDG_STATE_HOME": "${HOME}/.local/state",
    "XDG_CACHE_HOME": "${HOME}/.cache",
    "OPENCODE_CONFIG": "${MCP_FILE}",
    "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
    "OPENCODE_DISABLE_EXTERNAL_SKILLS": "1",
    "OPENCODE_DISABLE_CLAUDE_CODE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_SERVER_PASSWORD": "${TOKEN}",
    "PAIRTRIAL_TOKEN": "${TOKEN}",
}
DRIVER = "opencode_driver.py"
DRIVER_FILE = f".config/pairtrial/{DRIVER}"
"""Path in HOME."""


class OpenCodeAdapter(NativeAdapter):
    """Writes opencode.json, which holds the settings and the servers."""

    mcp_file = ".config/pairtrial/opencode.json"
    covers = frozenset[
        str
    ]()  # its server tells the state of every MCP server, and no tool: those are read off the wire
    own_files = ("opencode.py", DRIVER, "opencode.yaml")

    def __init__(self) -> None:
        self.manifest = load_manifest(__file__)

    def invocation(self, agent: AgentSpec, prompt: str) -> Invocation:
        """The driver, which asks for the servers' state first. As an argument the prompt would arrive in quotes."""
        argv = ("${PYTHON}", "-I", f"${{HOME}}/{DRIVER_FILE}", *find_program(self.manifest, agent.version).command)
        env = dict(ENVIRONMENT)
        if agent.options.get("context_files") is True:  # AGENTS.md is read with the project's settings only
            del env["OPENCODE_DISABLE_PROJECT_CONFIG"]
        driver = Path(__file__).with_name(DRIVER).read_text(encoding="utf-8")
        return Invocation(argv, env, prompt.encode(), {DRIVER_FILE: driver})

    def render_mcp(self, agent: AgentSpec, servers: Mapping[str, Mapping[str, Any]]) -> bytes:
        """opencode.json."""
        table = {name: _server(server) for name, server in servers.items()}
        return json.dumps({**settings(agent), "mcp": table}, sort_keys=True).encode()

    def tool_form(self, agent: AgentSpec) -> str:
        """``server_tool``."""
        return "{server}_{tool}"

    def session(self, agent: AgentSpec, invocation: Invocation, expected: Expected, place: Place) -> OpenCodeSession:
        """Its JSON events."""
        return OpenCodeSession(invocation.stdin, expected)


def settings(agent: AgentSpec) -> dict[str, Any]:
    """Everything in opencode.json but the servers."""
    model = {"name": agent.model, "tool_call": True, "limit": {"context": 200_000, "output": 32_000}}
    provider = {
        "npm": "@ai-sdk/anthropic",
        "name": "pairtrial",
        "options": {"baseURL": "${GATEWAY}/v1", "apiKey": "{env:PAIRTRIAL_TOKEN}"},
        "models": {agent.model: model},
    }
    return {
        "model": f"pairtrial/{agent.model}",
        "small_model": f"pairtrial/{agent.model}",
        "share": "disabled",
        "autoupdate": False,
        "snapshot": False,
        "enabled_providers": ["pairtrial"],
        "permission": "allow",
        # beside the general permission a denial would have no effect; as the agent's own it removes the tool
        "agent": {"build": {"permission": dict.fromkeys(OFF, "deny")}},
        "provider": {"pairtrial": provider},
    }


def _server(server: Mapping[str, Any]) -> dict[str, Any]:
    if "url" in server:
        return {"type": "remote", "url": server["url"], "headers": dict(server["headers"]), "enabled": True}
    command = [server["command"], *server["args"]]
    return {"type": "local", "command": command, "environment": dict(server["env"]), "enabled": True, "timeout": 30_000}


class OpenCodeSession(ObjectSession):
    """``step_start``, ``tool_use``, ``text``, ``step_finish``; no event says that all is over."""

    def __init__(self, prompt: bytes, expected: Expected) -> None:
        self._prompt = prompt
        self._expected = expected
        self._started = False
        self._steps = 0
        self._tokens: dict[str, int] = {}
        self._reason = ""
        self._fault = ""

    def open(self) -> Reply:
        """Nothing: the prompt is sent when the servers are known."""
        return NOTHING

    def _take(self, value: dict[str, Any]) -> Reply:
        if value.get("type") == "mcp_status" and not self._started:
            return self._start(value)
        part = value.get("part")
        part = part if isinstance(part, dict) else {}
        reply: list[Any] = []
        match value.get("type"):
            case "text":
                reply.append(Message(role="assistant", text=str(part.get("text")), model=self._expected.model))
            case "tool_use":
                reply.append(self._call(part))
            case "step_finish":
                self._finish_step(part)
            case "step_start":
                pass
            case "error":
                self._fault = str(value.get("error") or value)[:300]
                reply.append(other("error", value))
            case kind:
                reply.append(other(str(kind), value))
        return Reply(tuple(reply))

    def _start(self, value: dict[str, Any]) -> Reply:
        """What its server says about itself and about every MCP server, tools excepted."""
        self._started = True
        table = value.get("mcp")
        states = {
            str(name): state if isinstance(state, dict) else {"status": str(state)}
            for name, state in (table if isinstance(table, dict) else {}).items()
        }
        servers = tuple(ServerStatus(name=name, status=str(state.get("status"))) for name, state in states.items())
        errors = {name: str(state["error"])[:300] for name, state in states.items() if state.get("error")}
        # It names no model: the gateway, which refuses every other, stands for that.
        startup = Startup(
            agent="opencode",
            version=str(value.get("version")),
            model=self._expected.model,
            mcp_servers=servers,
            tools=(),
        )
        preflight = Preflight(servers, tools_known=False, errors=errors)
        return Reply((preflight, startup), send=(self._prompt,), close=True)

    def _call(self, part: dict[str, Any]) -> ToolCall:
        state = part.get("state")
        state = state if isinstance(state, dict) else {}
        name, server = str(part.get("tool")), None
        for known in self._expected.servers:
            if name.startswith(f"{known}_"):
                server, name = known, name.removeprefix(f"{known}_")
                break
        arguments, output = state.get("input"), state.get("output")
        good = state.get("status") == "completed" and name != "invalid"
        return ToolCall(
            id=str(part.get("callID")),
            server=server,
            name=name,
            arguments=arguments if isinstance(arguments, dict) else {},
            status="ok" if good else "error",
            reads=read_paths(READERS, server, name, arguments, "ok" if good else "error"),
            result_bytes=size_of(output) if isinstance(output, str) else None,
        )

    def _finish_step(self, part: dict[str, Any]) -> None:
        self._steps += 1
        self._reason = str(part.get("reason"))
        tokens = part.get("tokens")
        tokens = tokens if isinstance(tokens, dict) else {}
        cache = tokens.get("cache")
        cache = cache if isinstance(cache, dict) else {}
        figures = {"input": tokens.get("input"), "output": tokens.get("output"),
                   "read": cache.get("read"), "write": cache.get("write")}  # fmt: skip
        for name, value in figures.items():
            known = count(value)
            if known is not None:
                self._tokens[name] = self._tokens.get(name, 0) + known

    def finish(self, ended: ExecResult) -> Reply:
        """The result is what the last step and the exit code say together."""
        if not self._started:
            return NOTHING
        get = self._tokens.get
        usage = Usage(
            model=self._expected.model, steps=self._steps, input_tokens=get("input"), output_tokens=get("output"),
            cache_read_tokens=get("read"), cache_write_tokens=get("write"),
        )  # fmt: skip
        good = self._reason == "stop" and not self._fault and ended.exit_code == 0
        stop = StopReason.FINISHED if good else StopReason.CRASHED
        text = self._fault or ("" if good else f"the last step ended with {self._reason or 'nothing'}")
        return Reply((usage, Result(stop_reason=stop, is_error=not good, text=text)))


ADAPTER = OpenCodeAdapter()
