"""Reading usage and the served model out of an answer while it streams past.

The meter sees every byte that the agent sees and changes none. It keeps one event's worth of text at a time, so an
answer of any length costs no memory.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from pairtrial.harness.gateway.prices import Tokens

MAX_EVENT_BYTES = 16 << 20
"""A longer server-sent event is passed on and not metered."""
MAX_BODY_BYTES = 64 << 20


class Meter:
    """Meter of one answer: feed it the bytes, then ask."""

    def __init__(self, dialect: str, content_type: str, encoding: str = "") -> None:
        self.dialect = dialect
        self._events = content_type.startswith("text/event-stream")
        self._held = bytearray()
        self._lost = False
        self._data: list[bytes] = []
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32) if encoding in ("gzip", "deflate") else None
        if encoding not in ("", "identity", "gzip", "deflate"):
            self._lost = True
        self.served: list[str] = []
        """Models that the answer names, each once."""
        self.finished = False
        """Whether the answer came to its own end."""
        self.error = False
        """Whether the answer reports an error inside a stream that began well."""
        self._usage: dict[str, int] = {}

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the body as they came over the wire."""
        if self._lost:
            return
        if self._inflate is not None:
            try:
                piece = self._inflate.decompress(piece)
            except zlib.error:
                self._lost = True
                return
        if not self._events:
            self._held += piece
            if len(self._held) > MAX_BODY_BYTES:
                self._lost = True
                self._held.clear()
            return
        *lines, rest = piece.split(b"\n")
        for line in lines:
            self._held += line
            self._line(bytes(self._held).removesuffix(b"\r"))
            self._held.clear()
        self._held += rest
        if len(self._held) > MAX_EVENT_BYTES:
            self._lost = True

    def close(self) -> None:
        """The body has ended."""
        if self._lost:
            return
        if self._events:
            self._line(bytes(self._held))
            self._line(b"")
        elif self._held:
            self._json(bytes(self._held))
        self._held.clear()

    @property
    def tokens(self) -> Tokens:
        """What the answer said about its usage."""
        get = self._usage.get
        return Tokens(get("input"), get("cache_read"), get("cache_write"), get("cache_write_1h"), get("output"))

    def _line(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        elif not line and self._data:
            data = b"\n".join(self._data)
            self._data.clear()
            if data == b"[DONE]":
                self.finished = True
            else:
                self._json(data)

    def _json(self, data: bytes) -> None:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                self._item(item)

    def _item(self, item: dict[str, Any]) -> None:
        if item.get("error"):
            self.error = True
        {"messages": self._anthropic, "responses": self._responses, "chat": self._chat, "gemini": self._gemini}[
            self.dialect
        ](item)

    def _serve(self, model: object) -> None:
        if isinstance(model, str) and model and model not in self.served:
            self.served.append(model)

    def _set(self, name: str, value: object) -> None:
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            self._usage[name] = value

    def _anthropic(self, item: dict[str, Any]) -> None:
        kind = item.get("type")
        message = item.get("message") if kind == "message_start" else item if kind == "message" else None
        if isinstance(message, dict):
            self._serve(message.get("model"))
        if kind == "message":
            self.finished = True
        if kind == "message_stop":
            self.finished = True
        usage = message.get("usage") if isinstance(message, dict) else item.get("usage")
        if not isinstance(usage, dict):
            return
        self._set("input", usage.get("input_tokens"))
        self._set("cache_read", usage.get("cache_read_input_tokens"))
        split = usage.get("cache_creation")
        if isinstance(split, dict) and "ephemeral_1h_input_tokens" in split:
            self._set("cache_write", split.get("ephemeral_5m_input_tokens"))
            self._set("cache_write_1h", split.get("ephemeral_1h_input_tokens"))
        else:
            self._set("cache_write", usage.get("cache_creation_input_tokens"))
        if kind != "message_start":  # message_start names a first token only; the cut stream has no output figure
            self._set("output", usage.get("output_tokens"))

    def _responses(self, item: dict[str, Any]) -> None:
        kind = item.get("type")
        answer = item.get("response") if isinstance(kind, str) else item if item.get("object") == "response" else None
        if not isinstance(answer, dict):
            return
        self._serve(answer.get("model"))
        if kind == "response.failed" or answer.get("error"):
            self.error = True
        if kind in ("response.completed", "response.incomplete") or (kind is None and "output" in answer):
            self.finished = True
        usage = answer.get("usage")
        if isinstance(usage, dict):
            details = usage.get("input_tokens_details")
            self._openai(usage.get("input_tokens"), details, usage.get("output_tokens"))

    def _chat(self, item: dict[str, Any]) -> None:
        self._serve(item.get("model"))
        if item.get("object") == "chat.completion":
            self.finished = True
        usage = item.get("usage")
        if isinstance(usage, dict):
            details = usage.get("prompt_tokens_details")
            self._openai(usage.get("prompt_tokens"), details, usage.get("completion_tokens"))

    def _openai(self, total: object, details: object, output: object) -> None:
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        if isinstance(total, int):
            known = cached if isinstance(cached, int) else 0
            self._set("input", max(0, total - known))
            self._set("cache_read", cached)
        self._set("output", output)

    def _gemini(self, item: dict[str, Any]) -> None:
        self._serve(item.get("modelVersion"))
        for candidate in item.get("candidates") or ():
            if isinstance(candidate, dict) and candidate.get("finishReason"):
                self.finished = True
        usage = item.get("usageMetadata")
        if not isinstance(usage, dict):
            return
        total, cached = usage.get("promptTokenCount"), usage.get("cachedContentTokenCount")
        if isinstance(total, int):
            extra = usage.get("toolUsePromptTokenCount")
            fresh = total + (extra if isinstance(extra, int) else 0) - (cached if isinstance(cached, int) else 0)
            self._set("input", max(0, fresh))
            self._set("cache_read", cached)
        answer, thoughts = usage.get("candidatesTokenCount"), usage.get("thoughtsTokenCount")
        if isinstance(answer, int) or isinstance(thoughts, int):
            self._set("output", sum(n for n in (answer, thoughts) if isinstance(n, int)))
