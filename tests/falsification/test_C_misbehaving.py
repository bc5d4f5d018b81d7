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
from pairtrial.grading.qualify.conditions import BURNERS, ELSEWHERE, Condition
from pairtrial.grading.qualify.rounds import Seen, Where, problems_of, run_all
from pairtrial.tasks.qualification import Fault, Problem

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

PYPARSING = package(
    "pyparsing==3.3.3", "928ae7e20211f3b6f3915a72f06a0cfd29ab9d24279dd6346b6b1a7146397d36",
    "tests/test_examples.py::TestExamples::test_range_check", "jinja2", "railroad-diagrams", "matplotlib",
    paths=("tests/test_examples.py",),
)  # fmt: skip
MISTUNE = package(
    "mistune==3.4.0", "2eaf7952af928ca8d33b779762effc1da517b62c6ad85ec8ca957e3b07b9782a",
    "tests/test_inline_limits.py::test_unclosed_destinations_recover_in_linear_time",
    pythonpath=("src",), paths=("tests/test_inline_limits.py",),
)  # fmt: skip


async def qualified_under(suite: Suite, folder: Path, *conditions: Condition) -> tuple[list[Seen], list[Problem]]:
    """Runs of the untouched package under these conditions, and what qualification makes of them."""
    case = case_for(suite, folder)
    tests = theirs((await observe(case, folder / "scratch"))[0])
    green = tuple(name for name, outcome in tests.items() if outcome is Outcome.PASSED)
    prepared = requiring(case, green[0], green[1]).prepared
    target = replace(prepared.task.target, baseline=green)
    prepared = replace(prepared, task=replace(prepared.task, target=target))
    runs = await run_all(prepared, b"", Where("local", folder / "scratch"), (Condition("as-graded"), *conditions))
    return runs, problems_of(runs, frozenset(), "unbroken")


async def test_B_pyparsing_depends_on_order(tmp_path: Path) -> None:
    """Green in file order and red when shuffled: flaky, and of all that was varied the order is named."""
    runs, problems = await qualified_under(PYPARSING, tmp_path, Condition("varied", place=ELSEWHERE[0]))
    assert {problem.fault for problem in problems} == {Fault.FLAKY}
    assert all(problem.text.endswith("passes at first, otherwise under order") for problem in problems)
    failing = {seen.condition.name: bool(seen.failing) for seen in runs}
    assert failing == {
        "as-graded": False, "varied": True,
        "order": True, "clock": False, "zone": False, "path": False, "hash-seed": False,
    }  # fmt: skip


async def test_B_mistune_has_a_speed_limit(tmp_path: Path) -> None:
    """Its tests compare two times; on a machine that does other things as well some of them fail now and then."""
    load = Condition("load", burners=BURNERS)
    runs, problems = await qualified_under(MISTUNE, tmp_path, load, load, load)
    assert {problem.fault for problem in problems} == {Fault.FLAKY}
    limits = {name for seen in runs if seen.condition.name == "load" for name in seen.failing or ()}
    assert limits and all(name.startswith("tests/test_inline_limits.py::") for name in limits)


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
