"""The journal: one canonical JSON line an event, each with the hash of the line before it.

A torn last line (the machine died while it was written) is cut off when the run goes on; a changed or missing line in
the middle breaks the chain and is named by `verify`.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from pairtrial.core.canonical import canonical_json, sha256_hex
from pairtrial.core.errors import EnvironmentFault, ReceiptError
from pairtrial.core.model import Model, Sha256

GENESIS = "0" * 64
"""What the first line gives as the hash of its predecessor."""


class JournalLine(Model):
    """One line of ``journal.jsonl`` as it lies there; other keys belong to the event."""

    model_config = ConfigDict(extra="allow")

    sequence: Annotated[int, Field(ge=1)]
    """Number of the line, from 1."""
    event: str
    """``run-started``, ``attempt-started``, ``turn``, ``regrade-started``, ``receipt``, ``run-ended``."""
    prev: Sha256
    """SHA-256 of the line before, its line break included; zeros in the first."""
    at: str
    """UTC time, for people."""
    cell: str | None = None
    attempt: Annotated[int, Field(ge=1)] | None = None
    regrades: Annotated[int, Field(ge=1)] | None = None
    """The attempt whose work is graded again."""
    turn: Annotated[int, Field(ge=1)] | None = None
    """Number of a turn, in the order of sending."""
    sha256: Sha256 | None = None
    """Of the receipt, or of the turn's prompt."""
    status: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One event of the journal."""

    sequence: int
    event: str
    fields: dict[str, Any]
    prev: str
    hash: str


def parse_journal(data: bytes, name: str) -> tuple[list[Line], int]:
    """Lines of a journal and the length in bytes of its whole part.

    Raises `ReceiptError` naming the first line that is changed, missing or out of order. An unfinished last line is not
    an error: it is what a crash leaves.
    """
    lines: list[Line] = []
    position = 0
    prev = GENESIS
    while (end := data.find(b"\n", position)) != -1:
        raw = data[position : end + 1]
        number = len(lines) + 1
        try:
            value = json.loads(raw)
            sequence, event, stated = value.pop("sequence"), value.pop("event"), value.pop("prev")
        except (ValueError, KeyError, AttributeError, TypeError):
            raise ReceiptError(f"{name}: line {number} is not a journal line", slug="journal-line") from None
        if stated != prev or sequence != number:
            raise ReceiptError(
                f"{name}: the chain breaks at line {number}: a line before it was changed, removed or added",
                slug="journal-chain",
            )
        prev = sha256_hex(raw)
        lines.append(Line(sequence, event, value, stated, prev))
        position = end + 1
    return lines, position


class Journal:
    """Appends events to ``journal.jsonl``; only the process that holds the run's lock may have one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        data = path.read_bytes() if path.exists() else b""
        self.lines, whole = parse_journal(data, path.name)
        self.torn = len(data) - whole
        """Bytes of an unfinished last line that were cut off."""
        try:
            self._handle = path.open("ab")
            if self.torn:
                self._handle.truncate(whole)
        except OSError as fault:
            raise EnvironmentFault(f"{path}: cannot be written ({fault.strerror})", slug="unwritable") from fault

    @property
    def head(self) -> str:
        """Hash of the last line."""
        return self.lines[-1].hash if self.lines else GENESIS

    def append(self, event: str, **fields: Any) -> Line:
        """Write one event and flush it to the disk."""
        prev = self.head
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        value = {"sequence": len(self.lines) + 1, "event": event, "prev": prev, "at": at, **fields}
        raw = canonical_json(value) + b"\n"
        try:
            self._handle.write(raw)
            self._handle.flush()
            os.fsync(self._handle.fileno())
        except OSError as fault:
            raise EnvironmentFault(f"{self.path}: cannot be written ({fault.strerror})", slug="unwritable") from fault
        line = Line(len(self.lines) + 1, event, {"at": at, **fields}, prev, sha256_hex(raw))
        self.lines.append(line)
        return line

    def close(self) -> None:
        """Close the file."""
        self._handle.close()
