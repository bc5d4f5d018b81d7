"""Verdicts worked out by hand from reports made by hand: pure functions, no process."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairtrial.core.errors import GradeError
from pairtrial.core.status import Status
from pairtrial.grading.frameworks.base import COUNTS_AS_PASS, Canary, Outcome, Run
from pairtrial.grading.frameworks.channel import outcome_of
from pairtrial.grading.report import Report, read_report, write_report
from pairtrial.grading.verdict import Clarity, decide, examine

PASSED, FAILED = Outcome.PASSED, Outcome.FAILED
HEALTHY = frozenset({1})


@dataclass(frozen=True)
class Ids:
    """What a verdict needs of a task."""

    fail_to_pass: tuple[str, ...] = ("a.py::one",)
    pass_to_pass: tuple[str, ...] = ("a.py::two", "b.py::three")


TASK = Ids()
GOOD = (
    ("c.py::good", PASSED),
    ("a.py::one", PASSED),
    ("a.py::two", PASSED),
    ("b.py::three", PASSED),
    ("c.py::bad", FAILED),
)
RUN = Run(
    label="work",
    exit_code=1,
    signal=None,
    limit=None,
    seal="whole",
    chained=True,
    ended=True,
    status=1,
    tests=GOOD,
    collected=5,
    canaries=(Canary("c.py::good", True), Canary("c.py::bad", False)),
)
CONTROL = replace(RUN, label="control", tests=tuple((n, FAILED if n == "a.py::one" else o) for n, o in GOOD))


def changed(**outcomes: Outcome) -> tuple[tuple[str, Outcome], ...]:
    return tuple((name, outcomes.get(name.rpartition(":")[2], outcome)) for name, outcome in GOOD)


def without(name: str) -> tuple[tuple[str, Outcome], ...]:
    return tuple(row for row in GOOD if row[0] != name)


def verdict(*runs: Run) -> tuple[Status, str]:
    found = decide(Report("pytest", (), runs), TASK)
    return found.status, found.kind


def test_all_pass() -> None:
    assert verdict(RUN) == (Status.RESOLVED, "passed")


@pytest.mark.parametrize(
    "outcome", [item for item in Outcome if item not in (PASSED, Outcome.MISSING, Outcome.UNCOLLECTED)]
)
@pytest.mark.parametrize("name", ["one", "two", "three"])
def test_anything_but_a_plain_pass_of_any_required_test_is_unresolved(outcome: Outcome, name: str) -> None:
    assert verdict(replace(RUN, tests=changed(**{name: outcome}))) == (Status.UNRESOLVED, "failed")


@pytest.mark.parametrize(
    ("run", "kind"),
    [
        (replace(RUN, chained=False), "forged-line"),
        (replace(RUN, seal="broken"), "forged-frames"),
        (replace(RUN, patched=("pytest.x",)), "runner-patched"),
        (replace(RUN, exit_code=0), "false-success"),
        (replace(RUN, exit_code=0, ended=False, status=None), "false-success"),
        (replace(RUN, tests=changed(good=FAILED)), "canary"),
        (replace(RUN, tests=changed(bad=PASSED)), "canary"),
        (replace(RUN, tests=(*GOOD, ("c.py::bad", FAILED)), collected=6), "canary"),
        (replace(RUN, tests=changed(good=Outcome.SKIPPED)), "canary"),
        (replace(RUN, collected=6), "count"),
        (replace(RUN, collected=4), "count"),
    ],
)
def test_forgeries(run: Run, kind: str) -> None:
    assert verdict(run) == (Status.TAMPERED, kind)
    assert verdict(run, CONTROL, replace(run, label="again")) == (Status.TAMPERED, kind)


UNCLEAR = [
    (replace(RUN, seal="absent", ended=False, exit_code=None), "no-report"),
    (replace(RUN, ended=False, exit_code=None, signal=11, tests=GOOD[:2]), "runner-died"),
    (replace(RUN, ended=False, exit_code=3, tests=()), "runner-died"),
    (replace(RUN, exit_code=3, status=3), "runner-failed"),
    (replace(RUN, exit_code=2, status=1), "runner-failed"),
    (replace(RUN, tests=without("c.py::bad"), collected=4), "no-canary"),
    (replace(RUN, canaries=RUN.canaries[:1]), "no-canary"),
    (replace(RUN, tests=(GOOD[0], GOOD[4]), collected=2), "no-test"),
    (replace(RUN, tests=without("b.py::three"), collected=4), "unmatched-id"),
    (replace(RUN, tests=without("b.py::three"), collected=4, uncollected={"b.py": "failed"}), "collection-error"),
    (replace(RUN, tests=without("b.py::three"), collected=4, uncollected={"": "failed"}), "collection-error"),
    (replace(RUN, tests=without("b.py::three"), collected=4, uncollected={"b": "failed"}), "unmatched-id"),
]


@pytest.mark.parametrize(("run", "kind"), UNCLEAR)
def test_unclear_runs_are_an_error_unless_the_control_shows_whose_fault_they_are(run: Run, kind: str) -> None:
    again = replace(run, label="again")
    assert verdict(run) == (Status.GRADING_ERROR, kind)
    assert verdict(run, CONTROL, again) == (Status.UNRESOLVED, kind)
    assert verdict(run, replace(run, label="control"), again) == (Status.GRADING_ERROR, kind)
    assert verdict(run, CONTROL, replace(RUN, label="again")) == (Status.GRADING_ERROR, "not-repeatable")
    red = replace(CONTROL, tests=changed(one=FAILED, three=FAILED))
    assert verdict(run, red, again) == (Status.GRADING_ERROR, kind)


@pytest.mark.parametrize("limit", ["wall", "memory", "pids", "disk", "output"])
def test_limits_are_never_a_grade_whatever_else_the_report_says(limit: str) -> None:
    run = replace(RUN, limit=limit)
    assert verdict(run, CONTROL, replace(run, label="again")) == (Status.GRADING_ERROR, f"limit-{limit}")


def test_duplicate_required_id_is_an_error_and_another_duplicate_is_not() -> None:
    twice = replace(RUN, tests=(*GOOD, ("a.py::two", PASSED)), collected=6)
    assert verdict(twice) == (Status.GRADING_ERROR, "duplicate-id")
    other = replace(RUN, tests=(*GOOD, ("z.py::x", PASSED), ("z.py::x", FAILED)), collected=7)
    assert verdict(other) == (Status.RESOLVED, "passed")


def test_no_run_no_verdict() -> None:
    assert verdict() == (Status.GRADING_ERROR, "no-report")
    with pytest.raises(GradeError, match="not known"):
        decide(Report("nose", (), (RUN,)), TASK)


def test_a_task_of_which_nothing_is_known_gives_an_error() -> None:
    assert examine(RUN, Ids(("x::y",), ("x::z",)), HEALTHY).clarity is Clarity.UNCLEAR


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("ppp", PASSED), ("pfp", FAILED), ("f-p", Outcome.ERROR), ("ppf", Outcome.ERROR), ("pff", FAILED),
        ("s-p", Outcome.SKIPPED), ("psp", Outcome.SKIPPED), ("pxp", Outcome.XFAILED), ("x-p", Outcome.XFAILED),
        ("pXp", Outcome.XPASSED), ("pcp", Outcome.CHANGED), ("cpp", Outcome.CHANGED), ("pppr", Outcome.RERUN),
        ("p-p", Outcome.ERROR), ("---", Outcome.ERROR),
    ],
)  # fmt: skip
def test_codes_of_the_pytest_reporter(code: str, outcome: Outcome) -> None:
    assert outcome_of(code) is outcome


def test_only_passed_counts() -> None:
    assert [outcome for outcome in Outcome if COUNTS_AS_PASS[outcome]] == [PASSED]


NAMES = st.text(min_size=1, max_size=30).filter(lambda text: text.isprintable() or "\n" in text)


@given(st.lists(st.tuples(NAMES, st.sampled_from(Outcome))), st.dictionaries(NAMES, st.just("failed")), NAMES)
def test_report_round_trip(tests: list[tuple[str, Outcome]], uncollected: dict[str, str], touched: str) -> None:
    run = replace(RUN, tests=tuple(tests), uncollected=uncollected)
    report = Report("pytest", (touched,), (run, CONTROL))
    assert read_report(write_report(report)) == report


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"schema": "other"}', b'{"schema": "pairtrial.report.v1"}', b"\xff"]
)
def test_what_is_no_report_is_refused(data: bytes) -> None:
    with pytest.raises(GradeError, match="report"):
        read_report(data)
