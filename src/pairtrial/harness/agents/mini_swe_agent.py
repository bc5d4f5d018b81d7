"""mini-swe-agent: one ``bash`` tool and no MCP, so it takes context-file arms only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pairtrial.core.status import StopReason
from pairtrial.harness.agents.base import Expected, Invocation, Place, load_manifest
from pairtrial.harness.agents.native import NativeAdapter, count
from pairtrial.harness.agents.programs import find_program
from pairtrial.harness.agents.session import NOTHING, ObjectSession, Reply, other, read_object, size_of, text_of
from pairtrial.harness.events import Event, Malformed, Message, Result, Startup, ToolCall, Usage
from pairtrial.prereg.plan import AgentSpec
from pairtrial.sandbox import ExecResult

DRIVER = "mini_driver.py"
SYSTEM = "You are a helpful assistant that can interact with a computer."
"""The program's own system prompt, to which context files are added."""
STOPS = {
    "Submitted": StopReason.FINISHED,
    "LimitsExceeded": StopReason.TURN_LIMIT,  # its limits of cost and time are off: gateway and sandbox keep those
}
"""Its exit status → how the run ended; any other is a crash (a repeated format error, an exception's name)."""
ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "ANTHROPIC_API_BASE": "${GATEWAY}",
    "ANTHROPIC_API_KEY": "${TOKEN}",
    "MSWEA_CONFIGURED": "true",
    "MSWEA_GLOBAL_CONFIG_DIR": "${HOME}/.config/mini-swe-agent",
    "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "4",
    "MSWEA_SILENT_STARTUP": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}


class MiniSweAgentAdapter(NativeAdapter):
    """Writes its settings and starts it through the driver, which tells its trajectory."""

    mcp_file = ".config/pairtrial/mini.json"
    covers = frozenset[str]()
    starts_first = True
    counts_turns = True
    own_files = ("mini_swe_agent.py", DRIVER, "mini_swe_agent.lock", "mini_swe_agent.yaml")

    def __init__(self) -> None:
        self.manifest = load_manifest(__file__)

    def invocation(self, agent: AgentSpec, prompt: str) -> Invocation:
        """The driver; isolated (``-I``), for the path of modules is the workspace's."""
        program = find_program(self.manifest, agent.version)
        reads = agent.options.get("context_files") is True
        driver = f".config/pairtrial/{DRIVER}"
        argv = ("${PYTHON}", "-I", "-B", f"${{HOME}}/{driver}", str(program.folder), "${MCP_FILE}",
                *(self.manifest.context_files if reads else ()))  # fmt: skip
        text = Path(__file__).with_name(DRIVER).read_text(encoding="utf-8")
        return Invocation(argv, dict(ENVIRONMENT), prompt.encode(), {driver: text})

    def render_mcp(self, agent: AgentSpec, servers: Mapping[str, Mapping[str, Any]]) -> bytes:
        """Its settings: the same in every arm, for it can have no server."""
        table = {
            "agent": {"system_template": SYSTEM, "step_limit": agent.limits.turns, "cost_limit": 0},
            "model": {"model_name": f"anthropic/{agent.model}", "cost_tracking": "ignore_errors"},
        }
        return json.dumps(table, sort_keys=True).encode()

    def session(self, agent: AgentSpec, invocation: Invocation, expected: Expected, place: Place) -> MiniSession:
        """The driver's lines."""
        return MiniSession(invocation.stdin, expected)


class MiniSession(ObjectSession):
    """``start``, a ``message`` each, ``end`` with the exit status."""

    def __init__(self, prompt: bytes, expected: Expected) -> None:
        self._prompt = prompt
        self._expected = expected
        self._open: dict[str, dict[str, Any]] = {}
        self._tokens: dict[str, int] = {}
        self._steps = 0
        self._status: str | None = None
        self._started = False

    def open(self) -> Reply:
        """The prompt."""
        return Reply(send=(self._prompt,), close=True)

    def _take(self, value: dict[str, Any]) -> Reply:
        match value.get("type"):
            case "start":
                self._started = True
                version, model = str(value.get("version")), self._expected.model
                event = Startup(agent="mini-swe-agent", version=version, model=model, mcp_servers=(), tools=())
                return Reply((event,))
            case "message":
                return Reply(tuple(self._message(value)))
            case "end":
                self._status = str(value.get("exit_status") or "")
                return NOTHING
            case kind:
                return Reply((other(str(kind), value),))

    def _message(self, value: dict[str, Any]) -> list[Event]:
        message = value.get("message")
        message = message if isinstance(message, dict) else {}
        match message.get("role"):
            case "assistant":
                self._count(value.get("usage"))
                calls = message.get("tool_calls")
                for call in calls if isinstance(calls, list) else []:
                    if isinstance(call, dict):
                        self._open[str(call.get("id"))] = call
                text, model = text_of(message.get("content")), value.get("model")
                return [Message(role="assistant", text=text, model=str(model or self._expected.model))]
            case "tool":
                ident = str(message.get("tool_call_id"))
                return [_called(ident, self._open.pop(ident, {}), text_of(message.get("content")))]
            case _:
                return []

    def _count(self, usage: object) -> None:
        self._steps += 1
        table = usage if isinstance(usage, dict) else {}
        read = count(table.get("cache_read_input_tokens")) or 0
        write = count(table.get("cache_creation_input_tokens")) or 0
        whole, output = count(table.get("prompt_tokens")), count(table.get("completion_tokens"))
        if whole is None or output is None:
            return
        # its count of the prompt includes what came from the cache
        for name, figure in {"input": max(0, whole - read - write), "output": output, "read": read,
                             "write": write}.items():  # fmt: skip
            self._tokens[name] = self._tokens.get(name, 0) + figure

    def finish(self, ended: ExecResult) -> Reply:
        """A result only where the driver came to its end."""
        left = [_called(ident, call, "") for ident, call in self._open.items()]
        self._open = {}
        if not self._started or self._status is None:
            return Reply(tuple(left))
        get = self._tokens.get
        usage = Usage(
            model=self._expected.model, steps=self._steps, input_tokens=get("input"), output_tokens=get("output"),
            cache_read_tokens=get("read"), cache_write_tokens=get("write"),
        )  # fmt: skip
        stop = STOPS.get(self._status, StopReason.CRASHED)
        text = "" if self._status == "Submitted" else f"exit status {self._status or 'is missing'}"
        return Reply((*left, usage, Result(stop_reason=stop, is_error=stop is StopReason.CRASHED, text=text)))


def _called(ident: str, call: dict[str, Any], output: str) -> ToolCall:
    """A call and its result; the one that submits has none."""
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    arguments = read_object(str(function.get("arguments") or "{}").encode())
    result = read_object(output.encode("utf-8", "replace")) if output else {}
    code = 0 if not output else None if isinstance(result, Malformed) else result.get("returncode")
    return ToolCall(
        id=ident,
        name=str(function.get("name") or "bash"),
        arguments={} if isinstance(arguments, Malformed) else arguments,
        status="ok" if code == 0 else "error",
        result_bytes=size_of(output) if output else None,
    )


ADAPTER = MiniSweAgentAdapter()
