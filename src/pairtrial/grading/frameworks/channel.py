"""Reading what the supervisor wrote: frames, seal, and the tags of the report's lines."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Frames:
    """What came out of the supervisor."""

    report: bytes
    printed: bytes
    """Start and end of what the runner printed: for people, never a result."""
    end: dict[str, Any] | None
    sealed: bool


def read_frames(data: bytes, seal: bytes) -> Frames:
    """Take the frames apart; anything that is not exactly the supervisor's is not ``sealed``."""
    report, printed, end = bytearray(), b"", None
    at = 0
    while at < len(data):
        stop = data.find(b"\n", at, at + 70)
        if stop < 0:
            break
        kind, rest = data[at : at + 1], data[at + 1 : stop]
        if kind == b"S":
            expected = hashlib.blake2b(data[:at], key=seal, digest_size=32).hexdigest().encode()
            sealed = hmac.compare_digest(rest, expected) and stop + 1 == len(data) and end is not None
            return Frames(bytes(report), printed, end, sealed)
        if kind not in (b"R", b"O", b"E") or not rest.isdigit():
            break
        body = data[stop + 1 : stop + 1 + int(rest)]
        at = stop + 1 + int(rest)
        if kind == b"R":
            report += body
        elif kind == b"O":
            printed = body
        else:
            try:
                end = json.loads(body)
            except ValueError:
                break
    return Frames(bytes(report), printed, end, False)


def checked_lines(report: bytes, key: bytes) -> tuple[list[list[Any]], bool]:
    """The report's records up to the first whose tag is wrong, and whether all were right.

    A last line without its end is what a killed process leaves; it is dropped and is no sign of forgery.
    """
    *lines, _torn = report.split(b"\n")
    records: list[list[Any]] = []
    for line in lines:
        payload, _, tag = line.rpartition(b"\t")
        expected = hashlib.blake2b(payload, key=key, digest_size=16).hexdigest().encode()
        if not hmac.compare_digest(tag, expected):
            return records, False
        key = hashlib.blake2b(b"next", key=key, digest_size=32).digest()
        record = json.loads(payload)
        if not isinstance(record, list) or not record:
            return records, False
        records.append(record)
    return records, True
