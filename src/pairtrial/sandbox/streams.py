"""Output of a command, kept within bounds."""

from __future__ import annotations

from collections import deque

LINE_BYTES = 16 << 20
"""A line longer than this reaches its reader cut, and the result says ``truncated``."""


class Capture:
    """One output stream: keeps the first ``cap`` bytes, splits lines, never grows beyond its caps."""

    def __init__(self, cap: int, *, lines: bool) -> None:
        self.cap = cap
        self.kept = bytearray()
        self.total = 0
        """Bytes seen, kept or not."""
        self.truncated = False
        self.lines: deque[bytes] | None = deque() if lines else None
        self._open = bytearray()
        self._cut = False

    def feed(self, piece: bytes) -> None:
        self.total += len(piece)
        room = self.cap - len(self.kept)
        if room < len(piece):
            self.truncated = True
        if room > 0:
            self.kept += piece[:room]
        if self.lines is None:
            return
        *whole, rest = piece.split(b"\n")
        for part in whole:
            self._extend(part)
            self.lines.append(bytes(self._open))
            self._open.clear()
            self._cut = False
        self._extend(rest)

    def _extend(self, part: bytes) -> None:
        room = LINE_BYTES - len(self._open)
        if len(part) > room:
            self.truncated = self._cut = True
        self._open += part[: max(0, room)]

    def finish(self) -> None:
        if self.lines is not None and self._open:
            self.lines.append(bytes(self._open))
            self._open.clear()
