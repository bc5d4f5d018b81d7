"""A conversation with an agent process, without any input or output of its own.

A session says what to send and what a line means; `pairtrial.harness.trial` does the sending and reading. So every
agent's conversation can be tested from a recorded stream.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pairtrial.core.status import Status
from pairtrial.harness.events import Event, Fault, Malformed, Other, ServerStatus, parse_line
from pairtrial.sandbox import ExecResult

MAX_LINE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Preflight:
    """MCP servers as the agent sees them before it has got its prompt."""

    servers: tuple[ServerStatus, ...]
    tools_known: bool = True
    """False where it tells the servers' state and not their tools, which are then read off the first request."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """Server → what it says about why that one failed."""


@dataclass(frozen=True, slots=True)
class Void:
    """The run says nothing about the task: why, and what its status is."""

    status: Status
    reason: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What follows from a line."""

    events: tuple[Event | Preflight | Void, ...] = ()
    send: tuple[bytes, ...] = ()
    """Lines for the agent, sent only when the events raise no problem."""
    close: bool = False
    """Give the agent the end of its input."""
    turn: str | None = None
    """The turn of the prompt that is among what is sent."""
    done: bool = False
    """The agent has said its last word; it gets a short grace and is ended."""


NOTHING = Reply()


class Session(Protocol):
    """One conversation."""

    def open(self) -> Reply:
        """What is said first."""
        ...

    def take(self, line: bytes) -> Reply:
        """What a line of the agent's standard output means."""
        ...

    def finish(self, ended: ExecResult) -> Reply:
        """What can be told only when the process is gone."""
        ...


class PlainSession:
    """Our own event stream: the prompt on standard input, events on standard output."""

    def __init__(self, stdin: bytes) -> None:
        self._stdin = stdin

    def open(self) -> Reply:
        """Everything that there is to say."""
        return Reply(send=(self._stdin,), close=True)

    def take(self, line: bytes) -> Reply:
        """One event a line."""
        return Reply((parse_line(line),))

    def finish(self, ended: ExecResult) -> Reply:
        """Nothing more."""
        return NOTHING


class ObjectSession(ABC):
    """A stream of JSON objects, one a line; an agent's own is a subclass."""

    @abstractmethod
    def open(self) -> Reply:
        """What is said first."""

    def take(self, line: bytes) -> Reply:
        """A blank line means nothing, one that holds no object is told as it is."""
        if not line.strip():
            return NOTHING
        value = read_object(line)
        return Reply((value,)) if isinstance(value, Malformed) else self._take(value)

    @abstractmethod
    def _take(self, value: dict[str, Any]) -> Reply:
        """What an object means."""

    def finish(self, ended: ExecResult) -> Reply:
        """Everything was said."""
        return NOTHING


def read_object(line: bytes) -> dict[str, Any] | Malformed:
    """The JSON object of a line of a foreign stream; never raises.

    More lenient than our own stream: doubled keys are taken, bytes that are no UTF-8 and halves of surrogate pairs
    become U+FFFD, for a stream that we did not design must not end a rollout over one odd character.
    """
    size = len(line)
    if size >= MAX_LINE_BYTES:
        return Malformed(fault=Fault.OVERSIZED, detail="longer than the cap", excerpt=_excerpt(line), size=size)
    text = line.decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as fault:
        detail = str(fault).encode("utf-8", "replace").decode()[:300]
        return Malformed(fault=Fault.NOT_JSON, detail=detail, excerpt=_excerpt(line), size=size)
    if not isinstance(value, dict):
        return Malformed(fault=Fault.NOT_OBJECT, detail="not an object", excerpt=_excerpt(line), size=size)
    if "\\ud" in text or "\\uD" in text:
        whole = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        value = json.loads(whole)
    found: dict[str, Any] = value
    return found


def _excerpt(line: bytes) -> str:
    text = line[:160].decode("ascii", "backslashreplace")
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def encode_line(value: Any) -> bytes:
    """A line of JSON for the agent."""
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def text_of(content: object) -> str:
    """The text in a content value: a string, or blocks with ``text``."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [item.get("text") for item in content if isinstance(item, dict)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return ""


def size_of(value: object) -> int:
    """Bytes of a tool's result as the model gets it: text as it is, anything else as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return len(text.encode("utf-8", "replace"))


def strings(value: object) -> tuple[str, ...]:
    """The strings of a list; names out of objects that have one."""
    if not isinstance(value, list):
        return ()
    found: list[str] = []
    for item in value:
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, dict) and isinstance(item.get("name"), str):
            found.append(item["name"])
    return tuple(found)


def beyond(seen: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """What is seen and not known."""
    allowed = set(known)
    return tuple(sorted({item for item in seen if item not in allowed}))


def other(kind: str, value: dict[str, Any]) -> Other:
    """An event of the agent's own that has no form of ours."""
    rest = {key: item for key, item in value.items() if key != "type"}
    return Other(type=f"native.{kind}", data={"type": f"native.{kind}", **rest})
