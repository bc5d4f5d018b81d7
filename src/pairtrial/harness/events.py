"""The agent event stream: one JSON object a line, read without ever trusting who wrote it.

An agent's output is hostile input: whatever a line holds, :func:`parse_line` returns an event. A type that is not
known is kept as :class:`Other`; a line that is no event is a :class:`Malformed` that says why. The format is
documented in ``docs/agent-stream.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Annotated, Any, Literal, NoReturn, cast

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from pairtrial.core.model import Model, describe
from pairtrial.core.status import StopReason

MAX_LINE_BYTES = 8 << 20
"""A longer line is not parsed; it becomes one :class:`Malformed` event."""
_EXCERPT = 160


def _usd(value: object) -> Decimal:
    if isinstance(value, Decimal):
        amount = value
    elif isinstance(value, str) and len(value) <= 64:
        try:
            amount = Decimal(value)
        except InvalidOperation:
            raise ValueError("must be a decimal number in a string") from None
    else:
        raise ValueError("must be a decimal number in a string, not a JSON number")
    if not amount.is_finite() or amount < 0:
        raise ValueError("must be finite and not negative")
    return amount


Usd = Annotated[Decimal, BeforeValidator(_usd), PlainSerializer(str, return_type=str, when_used="json")]
"""An amount of money; a string in JSON, so that no binary fraction touches it."""
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]


AGENT_STOPS = frozenset(
    {StopReason.FINISHED, StopReason.GAVE_UP, StopReason.TURN_LIMIT, StopReason.SPEND_LIMIT, StopReason.CRASHED}
)
"""What an agent may say of its own end; the other stop reasons are the harness's to find."""


def _agent_stop(value: StopReason) -> StopReason:
    if value not in AGENT_STOPS:
        raise ValueError("must be one of " + ", ".join(sorted(AGENT_STOPS)))
    return value


class _EventModel(Model):
    """Keys that a newer agent adds are dropped, not refused."""

    model_config = ConfigDict(extra="ignore")


class ServerStatus(_EventModel):
    """One MCP server, as the agent saw it after it had tried to connect."""

    name: str
    status: str
    """``connected`` or ``failed``; agents may have words of their own, and only ``connected`` is good."""
    tools: tuple[str, ...] = ()
    """Names of its tools."""


class Startup(Model):
    """First event: what the agent really started with."""

    model_config = ConfigDict(extra="allow")

    type: Literal["startup"] = "startup"
    agent: str
    version: str
    model: str
    mcp_servers: tuple[ServerStatus, ...]
    tools: tuple[str, ...]
    """The agent's own tools."""
    skills: tuple[str, ...] = ()
    context_files: tuple[str, ...] = ()

    @property
    def undeclared(self) -> dict[str, Any]:
        """Keys that this format does not know: plugins, hooks or memories must not slip by unseen."""
        return dict(self.model_extra or {})


class Message(_EventModel):
    """Something that was said."""

    type: Literal["message"] = "message"
    role: str
    text: str
    model: str | None = None


class ToolCall(_EventModel):
    """One tool call and how it ended."""

    type: Literal["tool_call"] = "tool_call"
    id: str
    server: str | None = None
    """MCP server; None for a tool of the agent's own."""
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    status: Literal["ok", "error"]
    result_bytes: Count | None = None
    reads: tuple[str, ...] | None = None
    """Files that it read, as the agent names them; None where the agent does not tell."""


class Usage(_EventModel):
    """What was used. Every figure may be missing, and missing is None, never 0."""

    type: Literal["usage"] = "usage"
    model: str | None = None
    steps: Count | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    cost_usd: Usd | None = None


class Result(_EventModel):
    """Last event: the agent's own account of its end."""

    type: Literal["result"] = "result"
    stop_reason: Annotated[StopReason, AfterValidator(_agent_stop)]
    is_error: bool
    text: str = ""


class Other(Model):
    """A well-formed event of a type that this version does not know."""

    type: str
    data: dict[str, Any]
    """The whole object, ``type`` included."""


class Fault(StrEnum):
    """What was wrong with a line."""

    OVERSIZED = "oversized"
    NOT_UTF8 = "not_utf8"
    NOT_JSON = "not_json"
    DUPLICATE_KEY = "duplicate_key"
    NOT_OBJECT = "not_object"
    SURROGATE = "surrogate"
    """A string holds half of a surrogate pair, which no file of ours could store."""
    NO_TYPE = "no_type"
    INVALID = "invalid"
    """The type is known and a field is wrong."""


class Malformed(Model):
    """A line that is no event."""

    fault: Fault
    detail: str
    excerpt: str
    """The first bytes of the line in ASCII, other bytes escaped."""
    size: int
    """Bytes of the whole line."""


Event = Startup | Message | ToolCall | Usage | Result | Other | Malformed
_KNOWN: dict[str, type[Startup | Message | ToolCall | Usage | Result]] = {
    "startup": Startup,
    "message": Message,
    "tool_call": ToolCall,
    "usage": Usage,
    "result": Result,
}


class _Duplicate(ValueError):
    """A JSON object that says one key twice means two things."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _Duplicate("one key stands twice in an object")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"number out of range: {text[:20]}")
    return value


def _malformed(line: bytes, fault: Fault, detail: str, size: int | None = None) -> Malformed:
    excerpt = line[:_EXCERPT].decode("ascii", "backslashreplace")
    return Malformed(
        fault=fault,
        detail=detail.encode("utf-8", "backslashreplace").decode("utf-8")[:500],
        excerpt="".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in excerpt),
        size=len(line) if size is None else size,
    )


def _has_lone_surrogate(value: object) -> bool:
    """Search without recursion: the parser has accepted the depth, the call stack need not."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            if any("\ud800" <= character <= "\udfff" for character in item):
                return True
        elif isinstance(item, dict):
            stack.extend(item)
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return False


def parse_line(line: bytes) -> Event:
    """The event of one line (with or without its line break). Never raises, whatever the bytes."""
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    if len(line) > MAX_LINE_BYTES:
        return _malformed(line, Fault.OVERSIZED, f"longer than {MAX_LINE_BYTES} bytes")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as fault:
        return _malformed(line, Fault.NOT_UTF8, f"byte {fault.start} is not UTF-8")
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
    except _Duplicate as fault:
        return _malformed(line, Fault.DUPLICATE_KEY, str(fault))
    except (ValueError, RecursionError) as fault:
        return _malformed(line, Fault.NOT_JSON, str(fault))
    if not isinstance(value, dict):
        return _malformed(line, Fault.NOT_OBJECT, f"a JSON object is wanted, not {type(value).__name__}")
    if "\\u" in text and _has_lone_surrogate(value):
        return _malformed(line, Fault.SURROGATE, "half of a surrogate pair")
    kind = value.get("type")
    if not isinstance(kind, str):
        return _malformed(line, Fault.NO_TYPE, "'type' must be a string")
    return _build(line, kind, value)


def _build(line: bytes, kind: str, value: dict[str, Any]) -> Event:
    model = _KNOWN.get(kind)
    try:
        if model is None:
            return Other(type=kind, data=value)
        # Only JSON's own shapes may be bent (list to tuple, text to enum), so the JSON mode of strict validation.
        return cast("Event", model.model_validate_json(line))
    except (ValidationError, RecursionError, ValueError) as fault:
        lines = describe(fault) if isinstance(fault, ValidationError) else [str(fault)]
        return _malformed(line, Fault.INVALID, "; ".join(lines))


class EventReader:
    """Cuts a byte stream into lines and parses them; memory stays bounded however long a line is.

    Lines end at ``\\n`` only: U+2028 and its like are ordinary characters inside a JSON string.
    """

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_line_bytes
        self._held = bytearray()
        self._dropped = 0

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Events that are complete after ``chunk``; blank lines are no events."""
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            self._hold(part)
            yield from self._take()
        self._hold(rest)

    def close(self) -> Iterator[Event]:
        """The event of a last line that has no line break, as an agent that was killed leaves it."""
        yield from self._take()

    def _hold(self, part: bytes) -> None:
        room = self._max - len(self._held)
        self._held += part[:room]
        self._dropped += max(0, len(part) - room)

    def _take(self) -> Iterator[Event]:
        line, dropped = bytes(self._held), self._dropped
        self._held.clear()
        self._dropped = 0
        if dropped:
            detail = f"longer than {self._max} bytes"
            yield _malformed(line, Fault.OVERSIZED, detail, size=len(line) + dropped)
        elif line.strip():
            yield parse_line(line)


def encode(event: Event) -> bytes:
    """One line of JSON; only what was set is written, so a figure that is missing stays missing."""
    if isinstance(event, Other):
        value = event.data
    else:
        kind = "malformed" if isinstance(event, Malformed) else event.type
        value = {"type": kind} | event.model_dump(mode="json", exclude_unset=True)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
