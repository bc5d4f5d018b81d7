"""The conversation with Codex's app-server."""

from __future__ import annotations

from typing import Any

from pairtrial.core.status import Status, StopReason
from pairtrial.harness.agents.base import Expected
from pairtrial.harness.agents.native import count
from pairtrial.harness.agents.session import (
    NOTHING,
    ObjectSession,
    Preflight,
    Reply,
    Void,
    encode_line,
    other,
    size_of,
    text_of,
)
from pairtrial.harness.events import Event, Message, Result, ServerStatus, Startup, ToolCall, Usage

INITIALIZE, THREAD, SERVERS, TURN = 1, 2, 3, 4
QUIET = frozenset(
    ("item/started", "item/agentMessage/delta", "item/reasoning/textDelta", "item/reasoning/summaryTextDelta",
     "item/commandExecution/outputDelta", "item/fileChange/outputDelta", "account/rateLimits/updated",
     "remoteControl/status/changed", "thread/started", "thread/status/changed", "turn/diff/updated")
)  # fmt: skip
"""Notifications that say nothing which a later one does not."""


class CodexSession(ObjectSession):
    """``initialize``, ``thread/start``, ``mcpServerStatus/list``, and only then ``turn/start``."""

    def __init__(self, prompt: str, expected: Expected, workspace: str, turns: tuple[str, ...] = ()) -> None:
        self._turns = [prompt, *turns]
        self._expected = expected
        self._workspace = workspace
        self._thread = ""
        self._version = ""
        self._model = ""
        self._status: dict[str, str] = {}
        self._usage: dict[str, Any] = {}
        self._steps = 0
        self._fault = ""

    def open(self) -> Reply:
        """Introduce ourselves."""
        info = {"name": "pairtrial", "title": "pairtrial", "version": "1"}
        return Reply(send=(_call(INITIALIZE, "initialize", {"clientInfo": info}),))

    def _take(self, value: dict[str, Any]) -> Reply:
        if "method" in value and "id" in value:
            return self._asked(value)
        if "method" in value:
            params = value.get("params")
            return self._notified(str(value["method"]), params if isinstance(params, dict) else {})
        return self._answered(value)

    # ---- before the prompt -------------------------------------------------------------------------------------
    def _answered(self, value: dict[str, Any]) -> Reply:
        ident, result = value.get("id"), value.get("result")
        if not isinstance(result, dict):
            error = value.get("error")
            text = error.get("message") if isinstance(error, dict) else error
            return Reply((Void(Status.INVALID_ENVIRONMENT, f"the agent refused to start: {str(text)[:400]}"),))
        if ident == INITIALIZE:
            params = {
                "cwd": self._workspace, "model": self._expected.model, "approvalPolicy": "never",
                "sandbox": "danger-full-access", "ephemeral": True,
            }  # fmt: skip
            return Reply(send=(encode_line({"method": "initialized"}), _call(THREAD, "thread/start", params)))
        if ident == THREAD:
            thread = result.get("thread")
            thread = thread if isinstance(thread, dict) else {}
            self._thread = str(thread.get("id"))
            self._version = str(thread.get("cliVersion"))
            self._model = str(result.get("model") or thread.get("model"))
            return Reply(send=(_call(SERVERS, "mcpServerStatus/list", {"threadId": self._thread}),))
        if ident == SERVERS:
            return self._servers(result)
        return NOTHING

    def _servers(self, result: dict[str, Any]) -> Reply:
        listed = result.get("data")
        servers = []
        for item in listed if isinstance(listed, list) else ():
            if isinstance(item, dict):
                name, tools = str(item.get("name")), item.get("tools")
                # A server that did not start has no word in the list about itself; the notification has.
                status = {"ready": "connected"}.get(self._status.get(name, ""), self._status.get(name, "unknown"))
                servers.append(
                    ServerStatus(name=name, status=status, tools=tuple(tools) if isinstance(tools, dict) else ())
                )
        startup = Startup(agent="codex", version=self._version, model=self._model, mcp_servers=tuple(servers), tools=())
        return Reply((Preflight(tuple(servers)), startup), turn=self._turns[0], send=(self._next_turn(),))

    def _next_turn(self) -> bytes:
        words = [{"type": "text", "text": self._turns.pop(0)}]
        return _call(TURN, "turn/start", {"threadId": self._thread, "input": words})

    def _asked(self, value: dict[str, Any]) -> Reply:
        """Requests for approval or input: none should come, and none is granted in silence."""
        error = {"code": -32601, "message": "nobody is here to answer"}
        reason = f"the agent asked for {str(value['method'])[:80]}, which its settings should rule out"
        line = encode_line({"id": value["id"], "error": error})
        return Reply((Void(Status.INVALID_ENVIRONMENT, reason),), send=(line,))

    # ---- events ------------------------------------------------------------------------------------------------
    def _notified(self, method: str, params: dict[str, Any]) -> Reply:
        if method == "mcpServer/startupStatus/updated":
            self._status[str(params.get("name"))] = str(params.get("status"))
            return Reply((other(method, params),))
        if method == "item/completed":
            item = params.get("item")
            return Reply(tuple(self._item(item)) if isinstance(item, dict) else ())
        if method == "thread/tokenUsage/updated":
            usage = params.get("tokenUsage")
            total = usage.get("total") if isinstance(usage, dict) else None
            self._usage = total if isinstance(total, dict) else self._usage
            self._steps += 1
            return NOTHING
        if method == "error":
            error = params.get("error")
            self._fault = str(error.get("message") if isinstance(error, dict) else error)[:300]
            return Reply((other(method, params),))
        if method == "turn/completed":
            turn = params.get("turn")
            return self._end(turn if isinstance(turn, dict) else {})
        return NOTHING if method in QUIET else Reply((other(method, params),))

    def _item(self, item: dict[str, Any]) -> list[Event]:
        ident, kind = str(item.get("id")), item.get("type")
        if kind == "agentMessage":
            return [Message(role="assistant", text=str(item.get("text")), model=self._model)]
        if kind == "mcpToolCall":
            result = item.get("result")
            content = result.get("content") if isinstance(result, dict) else None
            arguments = item.get("arguments")
            return [
                ToolCall(
                    id=ident,
                    server=str(item.get("server")),
                    name=str(item.get("tool")),
                    arguments=arguments if isinstance(arguments, dict) else {},
                    status="ok" if item.get("status") == "completed" else "error",
                    result_bytes=None if content is None else size_of(text_of(content) or content),
                )
            ]
        if kind == "commandExecution":
            output = item.get("aggregatedOutput")
            return [
                ToolCall(
                    id=ident,
                    name="exec_command",
                    arguments={"command": str(item.get("command"))},
                    status="ok" if item.get("exitCode") == 0 else "error",
                    result_bytes=size_of(output) if isinstance(output, str) else None,
                )
            ]
        if kind == "fileChange":
            done = item.get("status") == "completed"
            changes = {"changes": item.get("changes")}
            return [ToolCall(id=ident, name="apply_patch", arguments=changes, status="ok" if done else "error")]
        return [] if kind in ("userMessage", "reasoning") else [other(str(kind), item)]

    def _end(self, turn: dict[str, Any]) -> Reply:
        good = turn.get("status") == "completed" and not turn.get("error")
        if good and self._turns:
            return Reply(
                (other("turn-ended", {"turns_left": len(self._turns)}),), turn=self._turns[0], send=(self._next_turn(),)
            )
        usage = Usage(
            model=self._model,
            steps=self._steps,
            input_tokens=count(self._usage.get("inputTokens")),
            output_tokens=count(self._usage.get("outputTokens")),
            cache_read_tokens=count(self._usage.get("cachedInputTokens")),
            cache_write_tokens=count(self._usage.get("cacheWriteInputTokens")),
        )
        error = turn.get("error")
        text = str(error.get("message") if isinstance(error, dict) else "") or ("" if good else self._fault)
        stop = StopReason.FINISHED if good else StopReason.CRASHED
        return Reply((usage, Result(stop_reason=stop, is_error=not good, text=text)), close=True, done=True)


def _call(ident: int, method: str, params: dict[str, Any]) -> bytes:
    return encode_line({"id": ident, "method": method, "params": params})
