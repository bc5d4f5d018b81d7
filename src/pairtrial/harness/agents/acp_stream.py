"""The conversation with an agent over the Agent Client Protocol."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pairtrial.core.status import Status, StopReason
from pairtrial.harness.agents.base import Expected
from pairtrial.harness.agents.native import count
from pairtrial.harness.agents.reads import located
from pairtrial.harness.agents.session import NOTHING, ObjectSession, Reply, Void, encode_line, other, size_of, text_of
from pairtrial.harness.events import Message, Result, Startup, ToolCall, Usage

INITIALIZE, AUTHENTICATE, SESSION, MODE, PROMPT = 1, 2, 3, 4, 5
TITLE = re.compile(r"^(?P<tool>\S+) \((?P<server>\S+) MCP Server\)$")
STOPS = {
    "end_turn": StopReason.FINISHED,
    "max_turn_requests": StopReason.TURN_LIMIT,
    "max_tokens": StopReason.CRASHED,
    "refusal": StopReason.GAVE_UP,
    "cancelled": StopReason.CRASHED,
}


class AcpSession(ObjectSession):
    """``initialize``, ``authenticate`` where it must be, ``session/new`` with the arm's servers, ``session/prompt``."""

    def __init__(
        self,
        prompt: str,
        expected: Expected,
        workspace: str,
        servers: Mapping[str, Mapping[str, Any]],
        *,
        authenticate: str | None = None,
        mode: str | None = None,
        turns: tuple[str, ...] = (),
    ) -> None:
        self._turns = [prompt, *turns]
        self._expected = expected
        self._workspace = workspace
        self._servers = [_server(name, server) for name, server in servers.items()]
        self._authenticate = authenticate
        self._mode = mode
        self._session = ""
        self._agent_version = ""
        self._calls: dict[str, dict[str, Any]] = {}
        self._said: list[str] = []
        self._cost: object = None

    def open(self) -> Reply:
        """Introduce ourselves, without files and terminals of ours: the agent has its own."""
        abilities = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        return Reply(send=(_call(INITIALIZE, "initialize", {"protocolVersion": 1, "clientCapabilities": abilities}),))

    def _take(self, value: dict[str, Any]) -> Reply:
        if "method" in value and "id" in value:
            return self._asked(value)
        if value.get("method") == "session/update":
            params = value.get("params")
            update = params.get("update") if isinstance(params, dict) else None
            return self._update(update if isinstance(update, dict) else {})
        if "method" in value:
            return Reply((other(str(value["method"]), value),))
        return self._answered(value)

    def _answered(self, value: dict[str, Any]) -> Reply:
        ident, result = value.get("id"), value.get("result")
        if "error" in value:
            error = value["error"]
            text = str(error.get("message") if isinstance(error, dict) else error)[:400]
            if ident == PROMPT:
                return Reply(
                    (*self._texts(), Result(stop_reason=StopReason.CRASHED, is_error=True, text=text)), done=True
                )
            return Reply((Void(Status.INVALID_ENVIRONMENT, f"the agent refused to start: {text}"),))
        result = result if isinstance(result, dict) else {}
        if ident == INITIALIZE:
            info = result.get("agentInfo")
            self._agent_version = str(info.get("version")) if isinstance(info, dict) else ""
            if self._authenticate is not None:
                return Reply(send=(_call(AUTHENTICATE, "authenticate", {"methodId": self._authenticate}),))
            return self._new_session()
        if ident == AUTHENTICATE:
            return self._new_session()
        if ident == SESSION:
            self._session = str(result.get("sessionId"))
            if self._mode is not None:
                params = {"sessionId": self._session, "modeId": self._mode}
                return Reply(send=(_call(MODE, "session/set_mode", params),))
            return self._start()
        if ident == MODE:
            return self._start()
        return self._end(result) if ident == PROMPT else NOTHING

    def _new_session(self) -> Reply:
        params = {"cwd": self._workspace, "mcpServers": self._servers}
        return Reply(send=(_call(SESSION, "session/new", params),))

    def _start(self) -> Reply:
        version = self._expected.version
        if self._agent_version and not version.endswith(self._agent_version):
            version = self._agent_version  # what it says of itself; the assertion compares
        startup = Startup(agent="acp", version=version, model=self._expected.model, mcp_servers=(), tools=())
        return Reply((startup,), turn=self._turns[0], send=(self._next_turn(),))

    def _next_turn(self) -> bytes:
        words = [{"type": "text", "text": self._turns.pop(0)}]
        return _call(PROMPT, "session/prompt", {"sessionId": self._session, "prompt": words})

    def _asked(self, value: dict[str, Any]) -> Reply:
        """Permission is granted and recorded; anything else that the agent wants of a client it does not get."""
        if value["method"] == "session/request_permission":
            params = value.get("params")
            options = params.get("options") if isinstance(params, dict) else None
            listed = [item for item in options or () if isinstance(item, dict)]
            allowed = next((item for item in listed if str(item.get("kind")).startswith("allow")), None)
            if allowed is not None:
                outcome = {"outcome": "selected", "optionId": allowed.get("optionId")}
                line = encode_line({"jsonrpc": "2.0", "id": value["id"], "result": {"outcome": outcome}})
                return Reply((other("permission", {"granted": allowed.get("name")}),), send=(line,))
        error = {"code": -32601, "message": "this client has no such method"}
        line = encode_line({"jsonrpc": "2.0", "id": value["id"], "error": error})
        return Reply((other("refused", {"method": value["method"]}),), send=(line,))

    # ---- events ------------------------------------------------------------------------------------------------
    def _update(self, update: dict[str, Any]) -> Reply:
        kind = update.get("sessionUpdate")
        if kind == "agent_message_chunk":
            content = update.get("content")
            self._said.append(str(content.get("text", "")) if isinstance(content, dict) else "")
            return NOTHING
        if kind in ("tool_call", "tool_call_update"):
            ident = str(update.get("toolCallId"))
            call = self._calls.setdefault(ident, {})
            call.update({key: item for key, item in update.items() if item not in (None, [], {}, "")})
            if update.get("status") in ("completed", "failed"):
                return Reply((*self._texts(), self._call(ident)))
            return NOTHING
        if kind == "usage_update":
            self._cost = update.get("cost") or self._cost
            return NOTHING
        return (
            NOTHING
            if kind in ("available_commands_update", "agent_thought_chunk")
            else Reply((other(str(kind), update),))
        )

    def _texts(self) -> list[Message]:
        text = "".join(self._said)
        self._said.clear()
        return [Message(role="assistant", text=text, model=self._expected.model)] if text else []

    def _call(self, ident: str) -> ToolCall:
        call = self._calls.pop(ident, {})
        server, name = self._named(call)
        arguments = call.get("rawInput")
        content = call.get("content")
        parts = [item.get("content") for item in content if isinstance(item, dict)] if isinstance(content, list) else []
        text = text_of([part for part in parts if isinstance(part, dict)])
        return ToolCall(
            id=ident,
            server=server,
            name=name,
            arguments=arguments if isinstance(arguments, dict) else {},
            status="ok" if call.get("status") == "completed" else "error",
            reads=located(call) if server is None else (),
            result_bytes=size_of(text) if text else None,
        )

    def _named(self, call: dict[str, Any]) -> tuple[str | None, str]:
        """Server and tool of a call; the protocol has no field for either, so every agent's own way is tried."""
        meta = call.get("_meta")
        inner = meta.get("claudeCode") if isinstance(meta, dict) else None
        title = str(inner.get("toolName") if isinstance(inner, dict) else call.get("title") or call.get("kind"))
        raw = call.get("rawInput")
        if isinstance(raw, dict) and isinstance(raw.get("server"), str) and isinstance(raw.get("tool"), str):
            return raw["server"], raw["tool"]
        if match := TITLE.match(title):
            return match["server"], match["tool"]
        for server, tools in self._expected.servers.items():
            for tool in tools:
                if title in (f"mcp__{server}__{tool}", f"mcp_{server}_{tool}", f"{server}_{tool}"):
                    return server, tool
        if title.startswith("mcp__"):
            server, _, tool = title.removeprefix("mcp__").partition("__")
            return server, tool
        return None, str(call.get("kind") or title)

    def _end(self, result: dict[str, Any]) -> Reply:
        stop = STOPS.get(str(result.get("stopReason")), StopReason.CRASHED)
        texts = self._texts()
        if stop is StopReason.FINISHED and self._turns:
            return Reply(
                (*texts, other("turn-ended", {"turns_left": len(self._turns)})),
                turn=self._turns[0],
                send=(self._next_turn(),),
            )
        failed = [self._call(ident) for ident in list(self._calls)]
        is_error = stop not in (StopReason.FINISHED, StopReason.GAVE_UP)
        final = Result(stop_reason=stop, is_error=is_error, text=str(result.get("stopReason")))
        return Reply((*texts, *failed, *self._usage(result), final), close=True, done=True)

    def _usage(self, result: dict[str, Any]) -> list[Usage]:
        usage = result.get("usage")
        if isinstance(usage, dict):
            return [
                Usage(
                    model=self._expected.model,
                    input_tokens=count(usage.get("inputTokens")),
                    output_tokens=count(usage.get("outputTokens")),
                    cache_read_tokens=count(usage.get("cachedReadTokens")),
                    cache_write_tokens=count(usage.get("cachedWriteTokens")),
                )
            ]
        meta = result.get("_meta")
        quota = meta.get("quota") if isinstance(meta, dict) else None
        tokens = quota.get("token_count") if isinstance(quota, dict) else None
        if isinstance(tokens, dict):
            fresh, out = count(tokens.get("input_tokens")), count(tokens.get("output_tokens"))
            return [Usage(model=self._expected.model, input_tokens=fresh, output_tokens=out)]
        return []


def _server(name: str, server: Mapping[str, Any]) -> dict[str, Any]:
    if "url" in server:
        headers = [{"name": key, "value": value} for key, value in server["headers"].items()]
        return {"type": "http", "name": name, "url": server["url"], "headers": headers}
    env = [{"name": key, "value": value} for key, value in server["env"].items()]
    return {"name": name, "command": server["command"], "args": list(server["args"]), "env": env}


def _call(ident: int, method: str, params: dict[str, Any]) -> bytes:
    return encode_line({"jsonrpc": "2.0", "id": ident, "method": method, "params": params})
