"""Grading behind real isolation: the same verdicts, and what a local sandbox cannot promise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from grading_cases import ADD, BROKEN, FILES, FIXED, TESTS, Case, make_case

from pairtrial.core.status import Status
from pairtrial.sandbox import Limits

pytestmark = pytest.mark.anyio


@pytest.fixture
def case(tmp_path: Path, require: Callable[..., None]) -> Case:
    require("bubblewrap")
    return make_case(tmp_path)


async def test_same_verdicts(case: Case) -> None:
    fixed = await case.grade({"calc.py": FIXED}, kind="bubblewrap")
    assert (fixed.status, fixed.checks) == (Status.RESOLVED, {ADD: "passed"}), fixed.log.decode(errors="replace")
    nothing = await case.grade({}, kind="bubblewrap")
    assert (nothing.status, nothing.checks) == (Status.UNRESOLVED, {ADD: "failed"})
    broken = await case.grade({"calc.py": "def add(:\n"}, kind="bubblewrap")
    assert (broken.status, broken.kind) == (Status.UNRESOLVED, "collection-error")


async def test_the_supervisor_is_out_of_reach(case: Case) -> None:
    """Its memory and its descriptors cannot be opened by what it runs."""
    code = (
        "import os, atexit\nfound = []\n"
        "for name in ('mem', 'fd/1', 'environ'):\n"
        "    try:\n        open(f'/proc/{os.getppid()}/{name}', 'rb').close()\n        found.append(name)\n"
        "    except OSError:\n        pass\n"
        "atexit.register(lambda: os.write(1, b'reached=%r;' % found))\n"
    )
    found = await case.grade({"calc.py": code + BROKEN}, kind="bubblewrap")
    assert found.status is Status.UNRESOLVED
    assert b"reached=[];" in found.log


async def test_memory_limit_is_no_grade(tmp_path: Path, require: Callable[..., None]) -> None:
    require("bubblewrap")
    hungry = (
        TESTS
        + "\n\ndef test_hungry():\n    data = bytearray(900_000_000)\n    data[::4096] = b'x' * len(data[::4096])\n"
    )
    case = make_case(tmp_path, {**FILES, "tests/test_calc.py": hungry})
    limits = Limits(wall_s=60.0, memory_bytes=300_000_000)
    found = await case.grade({"calc.py": FIXED}, kind="bubblewrap", limits=limits)
    assert (found.status, found.kind) == (Status.GRADING_ERROR, "limit-memory"), (found, found.log.decode())
