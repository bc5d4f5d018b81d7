"""Frames and tags: what the reporter said cannot be changed, added to or shortened without a trace."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pairtrial.grading.frameworks.channel import checked_lines, read_frames
from pairtrial.grading.reporters.channel import Channel

KEY, SEAL = b"k" * 32, b"s" * 32
RECORDS: list[list[Any]] = [
    ["hello", "pytest 9"],
    ["ids", ["a::b", "c d\n\x1b[31m", "ä\ud800"]],
    ["t", 0, "ppp"],
    ["end", 1],
]


def said(tmp_path: Path, records: list[list[Any]]) -> bytes:
    path = tmp_path / "report"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    channel = Channel(descriptor, KEY)
    for record in records:
        channel.say(*record)
    os.close(descriptor)
    return path.read_bytes()


def test_what_was_said_is_read_back(tmp_path: Path) -> None:
    assert checked_lines(said(tmp_path, RECORDS), KEY) == (RECORDS, True)


def test_a_fork_stays_silent(tmp_path: Path) -> None:
    path = tmp_path / "report"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    channel = Channel(descriptor, KEY)
    pid = os.fork()
    if pid == 0:
        channel.say("end", 0)
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(descriptor)
    assert path.read_bytes() == b""


def test_any_changed_swapped_repeated_or_added_line_is_seen(tmp_path: Path) -> None:
    lines = said(tmp_path, RECORDS).splitlines(keepends=True)
    for number in range(len(lines)):
        flipped = lines[number].replace(b"1", b"2") if b"1" in lines[number] else b"x" + lines[number]
        assert not checked_lines(b"".join([*lines[:number], flipped, *lines[number + 1 :]]), KEY)[1]
        assert not checked_lines(b"".join([*lines[:number], lines[number], *lines[number:]]), KEY)[1]
        if number < len(lines) - 1:
            assert not checked_lines(b"".join([*lines[:number], *lines[number + 1 :]]), KEY)[1]
    assert not checked_lines(b"".join([*lines, b'["t",0,"ppp"]\t' + b"0" * 32 + b"\n"]), KEY)[1]


def test_a_line_cut_by_a_kill_is_dropped_and_is_no_forgery(tmp_path: Path) -> None:
    data = said(tmp_path, RECORDS)
    assert checked_lines(data[:-5], KEY) == (RECORDS[:-1], True)


def frames(*parts: tuple[bytes, bytes]) -> bytes:
    data = b"".join(b"%s%d\n" % (kind, len(body)) + body for kind, body in parts)
    seal = hashlib.blake2b(data, key=SEAL, digest_size=32).hexdigest().encode()
    return data + b"S" + seal + b"\n"


WHOLE = frames((b"R", b"one\n"), (b"R", b"S00\ntwo\n"), (b"O", b"printed"), (b"E", json.dumps({"exit": 1}).encode()))


def test_frames() -> None:
    found = read_frames(WHOLE, SEAL)
    assert (found.report, found.printed, found.end, found.sealed) == (b"one\nS00\ntwo\n", b"printed", {"exit": 1}, True)


@given(st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=3))
def test_frames_with_anything_put_in_between_or_cut_off_are_not_sealed(at: int, extra: bytes) -> None:
    assert not read_frames(WHOLE[:at] + extra + WHOLE[at:], SEAL).sealed
    assert not read_frames(WHOLE[:at], SEAL).sealed


@given(st.binary(max_size=200))
def test_noise_is_no_frame(noise: bytes) -> None:
    assert not read_frames(noise, SEAL).sealed
