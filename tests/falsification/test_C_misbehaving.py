"""Real packages that misbehave by nature: each must give the outcome that is written here, and never a quiet null."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path

import pytest
from grading_cases import Case
from real_targets import Suite, case_for, observe, theirs

from pairtrial.core.status import Status
from pairtrial.grading.frameworks.base import Outcome

pytestmark = [pytest.mark.anyio, pytest.mark.registry, pytest.mark.slow, pytest.mark.timeout(900)]


def package(name: str, sha256: str, known: str, *packages: str, **options: object) -> Suite:
    return Suite("pytest", name, sha256, 0, known, packages=packages, **options)  # type: ignore[arg-type]


def requiring(case: Case, first: str, second: str) -> Case:
    """The same case with these two required ids."""
    task = case.prepared.task
    document = task.document.model_copy(update={"fail_to_pass": (first,)})
    target = replace(task.target, baseline=(first, second))
    return replace(case, prepared=replace(case.prepared, task=replace(task, document=document, target=target)))


MARSHMALLOW = package(
    "marshmallow==4.4.0", "9e6ffa8511012ca89732324c1c253efd7b4d35632dcbdf80aa793fe01804af3e",
    "tests/test_utils.py::test_timedelta_to_microseconds", "simplejson", pythonpath=("src",),
)  # fmt: skip
PACKAGING = package(
    "packaging==26.4", "c4b671c41ddb9bf26e543c37723610d28fb6bf7affc4da17cf048d419d2c062a",
    "tests/test_utils.py::test_canonicalize_name", "pretend", "hypothesis", "tomli_w", pythonpath=("src",),
    args=("-m", "not property", "--capture=sys", "-p", "no:logging", "-p", "no:tmpdir", "-p", "no:legacypath"),
)  # fmt: skip
MORE_ITERTOOLS = package(
    "more-itertools==11.2.1", "cbf08fd0af284dc69718b9b76a8e6203df624d70209ea511e4219d350c856f63",
    "tests/test_more.py::ChunkedTests::test_even",
)  # fmt: skip
ATTRS = package(
    "attrs==26.1.0", "d03ceb89cb322a8fd706d4fb91940737b6642aa36998fe130a9bc96c985eff32",
    "tests/test_converters.py::TestPipe::test_success", "hypothesis", "cloudpickle", pythonpath=("src",),
)  # fmt: skip
WCWIDTH = package(
    "wcwidth==0.9.4", "fd8d57d3cdfe570e3265c8fab1885c24e34ef40889c0759c0c304a19e9835954",
    "tests/test_core.py::test_hello_jp", "pytest-cov",
)  # fmt: skip


async def test_C5_marshmallow_ids_that_hold_the_clock(tmp_path: Path) -> None:
    """New names in every run: whoever requires one gets an error that names it, never a miss."""
    case = case_for(MARSHMALLOW, tmp_path)
    first, log = await observe(case, tmp_path / "scratch")
    tests = theirs(first)
    assert len(tests) >= 1000, log.decode(errors="replace")[-2000:]
    second, _ = await observe(case, tmp_path / "scratch")
    moved = sorted(set(tests) ^ set(theirs(second)))
    assert len(moved) == 4 and all("test_invalid_datetime_deserialization[" in name for name in moved)
    steady = next(name for name in tests if name not in moved)
    found = await requiring(case, steady, moved[0]).grade({})
    assert (found.status, found.kind) == (Status.GRADING_ERROR, "unmatched-id")
    assert moved[0] in found.reason


async def test_C2_packaging_sixty_four_thousand_tests_in_bounded_memory(tmp_path: Path) -> None:
    """Its settings also switch off pytest's own plugins, which a reporter must not need."""
    case = case_for(PACKAGING, tmp_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run, log = await observe(case, tmp_path / "scratch")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    tests = theirs(run)
    assert run.ended and len(tests) > 60_000, log.decode(errors="replace")[-2000:]
    assert sum(outcome is Outcome.PASSED for outcome in tests.values()) > 60_000
    assert grown < 300_000  # KiB


async def test_C4_more_itertools_subtests_are_no_tests(tmp_path: Path) -> None:
    run, log = await observe(case_for(MORE_ITERTOOLS, tmp_path), tmp_path / "scratch")
    assert (run.ended, len(theirs(run))) == (True, 765), log.decode(errors="replace")[-2000:]


async def test_C6_attrs_red_before_anybody_touched_it(tmp_path: Path) -> None:
    """The failing test is not plainly passed, so a task that requires it can never be resolved."""
    run, log = await observe(case_for(ATTRS, tmp_path), tmp_path / "scratch")
    failing = [name for name, outcome in theirs(run).items() if outcome is Outcome.FAILED]
    failing = [name for name in failing if "test_packaging.py" not in name]  # they look for an installed attrs
    assert [name.rpartition("::")[2] for name in failing] == ["test_wrapped_annotation"], log.decode(errors="replace")


async def test_C5_wcwidth_colour_and_control_characters_in_ids(tmp_path: Path) -> None:
    """Its settings force colour and write a coverage report; its ids hold escape sequences, nulls and tabs.

    Without its C extension nearly every test errors at once, so not one of them could be required.
    """
    case = case_for(WCWIDTH, tmp_path)
    plain, _ = await observe(case, tmp_path / "scratch")
    tests = theirs(plain)
    assert len(tests) > 1700 and any("\\x1b" in name for name in tests)
    document = case.prepared.task.target.document
    own = document.model_copy(update={"tests": document.tests.model_copy(update={"args": ()})})
    target = replace(case.prepared.task.target, document=own)
    coloured = replace(case, prepared=replace(case.prepared, task=replace(case.prepared.task, target=target)))
    assert theirs((await observe(coloured, tmp_path / "scratch"))[0]) == tests
