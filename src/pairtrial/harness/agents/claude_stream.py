"""Claude Code's stream of JSON lines, turned into events."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pairtrial.core.status import Status, StopReason
from pairtrial.harness.agents.base import Baseline, Expected
from pairtrial.harness.agents.reads import Readers, read_paths
from pairtrial.harness.agents.session import (
    ObjectSession,
    Preflight,
    Reply,
    Void,
    beyond,
    encode_line,
    other,
    size_of,
    strings,
    text_of,
)
from pairtrial.harness.events import Event, Message, Result, ServerStatus, Startup, ToolCall, Usage
from pairtrial.sandbox import ExecResult

SYNTHETIC = "<synthetic>"
"""The model of messages that the CLI wrote itself, to report an error."""
PROVIDERS_STATUS = frozenset({401, 402, 403, 404, 408, 409, 429})
"""HTTP errors that are not about what the agent asked; so are those from 500 on. Every other one is its own doing."""
PROVIDERS_FAULT = frozenset(
    {
        "authentication_failed",
        "billing_error",
        "connection_failed",
        "model_not_found",
        "oauth_org_not_allowed",
        "overloaded",
        "rate_limit",
        "server_error",
    }
)
"""Names of errors that say the same without an HTTP status."""
MODELS_FAULT = frozenset({"invalid_request", "max_output_tokens", "model_refusal", "refusal"})
"""Names of errors that the model's answer or the agent's request caused. Any other name is judged by `DISCONNECTED`."""
DISCONNECTED = re.compile(
    r"unable to connect|connection ?(error|refused|reset|closed|failed)|ECONN|ENOTFOUND|ETIMEDOUT|EAI_AGAIN|EPIPE"
    r"|EHOSTUNREACH|ENETUNREACH|socket (hang up|closed)|request timed out|fetch failed",
    re.IGNORECASE,
)
"""The CLI's words for a model that cannot be reached; looked for only in messages that it wrote itself."""
API_ENDS = ("api_error", "completed")
"""``terminal_reason`` after an error of the API: the second is version 2.1.197's word for every end."""
READERS: Readers = {"Read": ("file_path",), "Grep": ("path",), "Glob": ("path",)}
POLLS = 200
"""So often the agent is asked again for servers that are still connecting."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An error that stands on a message."""

    names: frozenset[str]
    text: str
    """What the CLI wrote; empty where the message is the model's."""
    refused: bool

    @property
    def is_providers(self) -> bool:
        """Whether it was provider, gateway or network, and neither the model nor what the agent asked."""
        if self.refused or self.names & MODELS_FAULT:
            return False
        return bool(self.names & PROVIDERS_FAULT or DISCONNECTED.search(self.text))


class ClaudeSession(ObjectSession):
    """``initialize``, ``mcp_status``, and only then the prompt; further turns follow one by one."""

    def __init__(self, prompt: str, expected: Expected, baseline: Baseline, turns: tuple[str, ...] = ()) -> None:
        self._turns = [prompt, *turns]
        self._expected = expected
        self._baseline = baseline
        self._polls = 0
        self._tools: dict[str, tuple[str, ...]] = {}
        self._calls: dict[str, dict[str, Any]] = {}
        self._hooks: list[str] = []
        self._faults: list[str] = []
        self._last: Fault | None = None
        self._started: Startup | None = None
        self._turned = False
        self._result: dict[str, Any] | None = None

    def open(self) -> Reply:
        """Ask what it started with."""
        return Reply(send=(_control("initialize", "initialize"),))

    def _take(self, value: dict[str, Any]) -> Reply:
        match value.get("type"):
            case "control_response":
                return self._control(value)
            case "system":
                return self._system(value)
            case "assistant":
                return Reply(tuple(self._assistant(value)))
            case "user":
                return Reply(tuple(self._user(value)))
            case "result":
                return self._end(value)
            case kind:
                return Reply((other(str(kind), value),))

    def finish(self, ended: ExecResult) -> Reply:
        """Calls that never came back are errors; the rest was said."""
        return Reply(tuple(self._call(ident, None, failed=True) for ident in list(self._calls)))

    # ---- before the prompt -------------------------------------------------------------------------------------
    def _control(self, value: dict[str, Any]) -> Reply:
        response = value.get("response")
        response = response if isinstance(response, dict) else {}
        if response.get("subtype") != "success":
            reason = f"the agent refused to say what it started with: {str(response.get('error'))[:300]}"
            return Reply((Void(Status.INVALID_ENVIRONMENT, reason),))
        if response.get("request_id") == "initialize":
            return Reply(send=(_control("status-0", "mcp_status"),))
        inner = response.get("response")
        listed = inner.get("mcpServers") if isinstance(inner, dict) else None
        servers = tuple(_server(item) for item in listed or () if isinstance(item, dict))
        if any(server.status == "pending" for server in servers) and self._polls < POLLS:
            self._polls += 1
            return Reply(send=(_control(f"status-{self._polls}", "mcp_status"),))
        self._tools = {server.name: server.tools for server in servers}
        return Reply((Preflight(servers),), turn=self._turns[0], send=(self._next_turn(),))

    def _next_turn(self) -> bytes:
        message = {"role": "user", "content": self._turns.pop(0)}
        return encode_line({"type": "user", "message": message, "parent_tool_use_id": None, "session_id": ""})

    # ---- events ------------------------------------------------------------------------------------------------
    def _system(self, value: dict[str, Any]) -> Reply:
        subtype = value.get("subtype")
        if subtype == "init":
            startup = self._startup(value)
            if self._turned and startup == self._started:  # every turn begins with one; it must say the same again
                return Reply((other("startup-again", {}),))
            self._started = startup
            return Reply((startup,))
        if isinstance(subtype, str) and subtype.startswith("hook"):
            self._hooks.append(str(value.get("hook_name") or value.get("hook_event") or "hook"))
            reason = f"hook {self._hooks[-1]!r} ran and no arm declares it"
            return Reply((other("system", value), Void(Status.INVALID_ENVIRONMENT, reason)))
        return Reply((other("system", value),))

    def _startup(self, value: dict[str, Any]) -> Startup:
        listed = strings(value.get("tools"))
        servers = []
        for item in value.get("mcp_servers") or ():
            if isinstance(item, dict):
                name = str(item.get("name"))
                prefix = f"mcp__{name}__"
                tools = tuple(tool.removeprefix(prefix) for tool in listed if tool.startswith(prefix))
                # Deferred tools are in no list at start-up; what the preflight said stands for them.
                servers.append(
                    ServerStatus(name=name, status=str(item.get("status")), tools=tools or self._tools.get(name, ()))
                )
        own = tuple(tool for tool in listed if not tool.startswith("mcp__"))
        stray = [tool for tool in listed if tool.startswith("mcp__") and not _belongs(tool, servers)]
        base = self._baseline
        plugins = value.get("plugins")
        foreign = [
            str(item.get("name"))
            for item in (plugins if isinstance(plugins, list) else ())
            if isinstance(item, dict) and item.get("path") != "builtin"
        ]
        extra: dict[str, Any] = {
            "plugins": sorted(foreign),
            "agents": list(beyond(strings(value.get("agents")), base.agents)),
            "slash_commands": list(
                beyond(strings(value.get("slash_commands")), (*base.commands, *base.skills, *self._expected.skills))
            ),
            "memory": value.get("memory_paths") or {},
            "stray_tools": stray,
            "output_style": [] if value.get("output_style") in (None, "default") else value["output_style"],
            "permission_mode": []
            if value.get("permissionMode") == "bypassPermissions"
            else value.get("permissionMode"),
            "api_key_source": []
            if value.get("apiKeySource") == "ANTHROPIC_API_KEY"
            else str(value.get("apiKeySource")),
        }
        return Startup(
            agent="claude-code",
            version=str(value.get("claude_code_version")),
            model=str(value.get("model")),
            mcp_servers=tuple(servers),
            tools=own,
            skills=beyond(strings(value.get("skills")), base.skills),
            **{name: item for name, item in extra.items() if item},
        )

    def _assistant(self, value: dict[str, Any]) -> list[Event | Preflight | Void]:
        raw = value.get("message")
        message: dict[str, Any] = raw if isinstance(raw, dict) else {}
        model = str(message.get("model"))
        events: list[Event | Preflight | Void] = []
        self._last = _fault(value, message) if model == SYNTHETIC or value.get("error") else None
        if self._last is not None:
            self._faults.append(text_of(message.get("content"))[:300] or str(value.get("error")))
        if model != SYNTHETIC and not self._registered(model):
            reason = f"asked for {self._expected.model}, {model[:100]} answered"
            events.append(Void(Status.INVALID_ENVIRONMENT, reason))
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            if not isinstance(block, dict):
                continue
            if block.get("type") == "text":
                events.append(Message(role="assistant", text=str(block.get("text")), model=model))
            elif block.get("type") == "tool_use":
                self._calls[str(block.get("id"))] = block
        return events

    def _user(self, value: dict[str, Any]) -> list[Event | Preflight | Void]:
        message = value.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        events: list[Event | Preflight | Void] = []
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "tool_result":
                result = block.get("content")
                events.append(self._call(str(block.get("tool_use_id")), result, failed=bool(block.get("is_error"))))
        return events

    def _call(self, ident: str, result: object, *, failed: bool) -> ToolCall:
        block = self._calls.pop(ident, {})
        server, name = split_name(str(block.get("name")))
        arguments, status = block.get("input"), "error" if failed else "ok"
        return ToolCall(
            id=ident,
            server=server,
            name=name,
            arguments=arguments if isinstance(arguments, dict) else {},
            status="error" if failed else "ok",
            reads=read_paths(READERS, server, name, arguments, status),
            result_bytes=None if result is None else size_of(text_of(result) or result),
        )

    # ---- the end -----------------------------------------------------------------------------------------------
    def _end(self, value: dict[str, Any]) -> Reply:
        if self._turns and _stop(value, self._faults) is StopReason.FINISHED:
            self._turned = True
            return Reply(
                (other("turn-ended", {"turns_left": len(self._turns)}),), turn=self._turns[0], send=(self._next_turn(),)
            )
        self._result = value
        events: list[Event | Preflight | Void] = [*_usages(value), *self._voids(value)]
        stop = _stop(value, self._faults)
        text = str(value.get("result") or "; ".join(strings(value.get("errors"))) or "; ".join(self._faults))
        events.append(Result(stop_reason=stop, is_error=stop is not StopReason.FINISHED, text=text[:20_000]))
        return Reply(tuple(events), close=True, done=True)

    def _voids(self, value: dict[str, Any]) -> list[Void]:
        voids = []
        denied = value.get("permission_denials")
        if denied:
            names = ", ".join(sorted({str(d.get("tool_name")) for d in denied if isinstance(d, dict)}))
            voids.append(Void(Status.INVALID_ENVIRONMENT, f"the agent was denied {names or 'a tool'}"))
        if self._providers(value):
            detail = "; ".join(self._faults)[:300] or f"HTTP {value.get('api_error_status')}"
            voids.append(Void(Status.SANDBOX_LOST, f"the provider failed: {detail}"))
        table = value.get("modelUsage")
        for model in table if isinstance(table, dict) else ():
            if model != SYNTHETIC and not self._registered(str(model)):
                reason = f"asked for {self._expected.model}, the result counts tokens of {str(model)[:100]}"
                voids.append(Void(Status.INVALID_ENVIRONMENT, reason))
        if value.get("num_turns") == 0:
            voids.append(Void(Status.INVALID_ENVIRONMENT, "the agent ended without a turn"))
        return voids

    def _providers(self, value: dict[str, Any]) -> bool:
        """Whether the run ended because the provider, the gateway or the network failed."""
        status, last = value.get("api_error_status"), self._last
        if last is not None and "billing_error" in last.names:  # an empty account is HTTP 400
            return value.get("is_error") is True
        if isinstance(status, int):
            return status in PROVIDERS_STATUS or status >= 500
        if value.get("is_error") is not True or value.get("terminal_reason") not in API_ENDS:
            return False
        return last is not None and value.get("stop_reason") != "refusal" and last.is_providers

    def _registered(self, model: str) -> bool:
        return model in (self._expected.model, *self._expected.served)


def _stop(value: dict[str, Any], faults: list[str]) -> StopReason:
    """One rule; the agent's own word ``success`` is needed and not enough."""
    named = {"error_max_turns": StopReason.TURN_LIMIT, "error_max_budget_usd": StopReason.SPEND_LIMIT}
    limit = named.get(str(value.get("subtype")))
    if limit is not None:
        return limit
    whole = value.get("subtype") == "success" and value.get("terminal_reason") == "completed"
    good = whole and value.get("is_error") is False and not faults
    return StopReason.FINISHED if good else StopReason.CRASHED


def _fault(value: dict[str, Any], message: dict[str, Any]) -> Fault:
    names = frozenset(str(value[key]) for key in ("error", "api_error") if value.get(key))
    text = text_of(message.get("content")) if message.get("model") == SYNTHETIC else ""
    return Fault(names, text, refused=message.get("stop_reason") == "refusal")


def _usages(value: dict[str, Any]) -> list[Usage]:
    table = value.get("modelUsage")
    events = []
    for model, figures in (table if isinstance(table, dict) else {}).items():
        if not isinstance(figures, dict):
            continue
        cost = figures.get("costUSD")
        events.append(
            Usage(
                model=str(model),
                steps=_count(value.get("num_turns")),
                input_tokens=_count(figures.get("inputTokens")),
                output_tokens=_count(figures.get("outputTokens")),
                cache_read_tokens=_count(figures.get("cacheReadInputTokens")),
                cache_write_tokens=_count(figures.get("cacheCreationInputTokens")),
                cost_usd=Decimal(repr(cost)) if isinstance(cost, int | float) and cost >= 0 else None,
            )
        )
    return events


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def split_name(name: str) -> tuple[str | None, str]:
    """``mcp__server__tool`` → server and tool."""
    if name.startswith("mcp__"):
        server, _, tool = name.removeprefix("mcp__").partition("__")
        if tool:
            return server, tool
    return None, name


def _belongs(tool: str, servers: list[ServerStatus]) -> bool:
    return any(tool.startswith(f"mcp__{server.name}__") for server in servers)


def _server(item: dict[str, Any]) -> ServerStatus:
    return ServerStatus(name=str(item.get("name")), status=str(item.get("status")), tools=strings(item.get("tools")))


def _control(ident: str, subtype: str) -> bytes:
    return encode_line({"type": "control_request", "request_id": ident, "request": {"subtype": subtype}})
