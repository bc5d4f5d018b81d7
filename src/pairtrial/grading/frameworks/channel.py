"""Reading what supervisor and reporter wrote: frames, seal, the tags of the report's lines, and what the lines say."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass, replace
from typing import Any

from pairtrial.grading.frameworks.base import Canary, Invocation, Outcome, Run


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
        expected = hmac.digest(key, payload, "sha256")[:16].hex().encode()
        if not hmac.compare_digest(tag, expected):
            return records, False
        key = hmac.digest(key, b"next", "sha256")
        record = json.loads(payload)
        if not isinstance(record, list) or not record:
            return records, False
        records.append(record)
    return records, True


_REPORTED = frozenset(Outcome) - {Outcome.MISSING, Outcome.UNCOLLECTED}
"""The other two are ours to say."""


def read_run(run: Run, invocation: Invocation, report: bytes) -> Run:
    """``run`` completed by what the report says.

    Records: ``hello`` versions; ``ids`` the tests about to run and ``t`` one of them by number; ``r`` an id with its
    outcome; ``decoys`` and ``decoy`` tests of ours that must fail; ``collect`` a part that could not be collected;
    ``patched`` functions of the runner that were replaced; ``end`` exit status.
    """
    records, chained = checked_lines(report, invocation.key)
    ids: list[str] = []
    tests: list[tuple[str, Outcome]] = []
    decoys: list[str] = []
    uncollected: dict[str, str] = {}
    patched: list[str] = []
    for kind, *rest in records:
        if kind == "ids":
            ids += rest[0]
        elif kind == "t" and 0 <= rest[0] < len(ids):
            tests.append((ids[rest[0]], outcome_of(rest[1])))
        elif kind == "r":
            tests.append((rest[0], Outcome(rest[1]) if rest[1] in _REPORTED else Outcome.ERROR))
        elif kind == "decoys":
            decoys += [ids[number] for number in rest[0]]
        elif kind == "decoy":
            decoys.append(rest[0])
        elif kind == "collect":
            uncollected[rest[0]] = rest[1]
        elif kind == "patched":
            patched += rest[0]
        elif kind == "hello":
            run = replace(run, versions=tuple(rest))
        elif kind == "end":
            run = replace(run, ended=True, status=rest[0])
    return replace(
        run,
        chained=chained,
        tests=tuple(tests),
        collected=len(ids) if ids else len(tests),
        uncollected=uncollected,
        canaries=(*invocation.canaries, *(Canary(item, False) for item in decoys)),
        patched=tuple(dict.fromkeys(patched)),
    )


def outcome_of(code: str) -> Outcome:
    """Outcome of pytest's code: one letter each for setup, call and teardown.

    ``p`` passed, ``f`` failed, ``s`` skipped, ``x`` skipped as expected failure, ``X`` passed though expected to fail,
    ``c`` reported as passed after an exception, ``-`` not reached; a final ``r`` says that it ran more than once.
    """
    setup, call, teardown = code[0], code[1], code[2]
    if "c" in code:
        return Outcome.CHANGED
    if code.endswith("r"):
        return Outcome.RERUN
    if setup == "f" or teardown == "f":
        return Outcome.FAILED if call == "f" else Outcome.ERROR
    letter = call if setup == "p" else setup
    return {
        "p": Outcome.PASSED,
        "f": Outcome.FAILED,
        "s": Outcome.SKIPPED,
        "x": Outcome.XFAILED,
        "X": Outcome.XPASSED,
    }.get(letter, Outcome.ERROR)
