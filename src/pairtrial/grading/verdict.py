"""From a report to a verdict: pure functions, the same online and offline, and they know no arm.

A run either answers (every required id has a record), or it was forged, or it stopped at a limit, or it is *unclear*:
the runner died, ran nothing, a file could not be collected, an id is nowhere. An unclear run is no verdict by itself: a
syntax error of the agent and a missing dependency of ours look alike. The grader then runs the same tree without the
work (``control``) and with it once more (``again``): only when the control answers as a defective tree must and the work
gives the same unclear picture twice is the work at fault, and the verdict ``unresolved``. Everything else is
``grading_error``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from pairtrial.core.errors import GradeError
from pairtrial.core.status import Status
from pairtrial.grading.frameworks import FRAMEWORKS
from pairtrial.grading.frameworks.base import COUNTS_AS_PASS, Outcome, Run
from pairtrial.grading.report import Report


class Checked(Protocol):
    """What a verdict needs of a task."""

    @property
    def fail_to_pass(self) -> Sequence[str]:
        """Ids that must pass now."""

    @property
    def pass_to_pass(self) -> Sequence[str]:
        """Ids that must pass still."""


class Clarity(StrEnum):
    """What a run is worth."""

    ANSWERS = "answers"
    UNCLEAR = "unclear"
    STOPPED = "stopped"
    FORGED = "forged"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one run says."""

    clarity: Clarity
    kind: str = ""
    """Stable word for the reason."""
    reason: str = ""
    checks: Mapping[str, Outcome] = field(default_factory=dict)
    """Outcome of every required id."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Status, reason and the outcome of every required id (empty where nothing can be said)."""

    status: Status
    kind: str
    reason: str
    checks: Mapping[str, Outcome]


def examine(run: Run, task: Checked, healthy: frozenset[int]) -> Finding:
    """What ``run`` is worth, by the first rule that applies."""
    for rule in (_stopped, _forged, _died, _canaries, _counts):
        if (finding := rule(run, healthy)) is not None:
            return finding
    return _lookup(run, task)


def _stopped(run: Run, _: frozenset[int]) -> Finding | None:
    if run.limit is None:
        return None
    return Finding(Clarity.STOPPED, f"limit-{run.limit}", f"grading stopped at its {run.limit} limit")


def _forged(run: Run, _: frozenset[int]) -> Finding | None:
    if run.seal == "broken":
        return Finding(Clarity.FORGED, "forged-frames", "something but the supervisor wrote into its output")
    if run.seal != "whole":
        return Finding(Clarity.UNCLEAR, "no-report", "the supervisor of the test process left no sealed report")
    if not run.chained:
        return Finding(Clarity.FORGED, "forged-line", "the report holds a line that the reporter did not write")
    if run.patched:
        return Finding(Clarity.FORGED, "runner-patched", "replaced while it ran: " + ", ".join(run.patched[:5]))
    if run.exit_code == 0:
        how = "exit code 0 although a canary must fail" if run.ended else "exit code 0 before the runner's end"
        return Finding(Clarity.FORGED, "false-success", how)
    return None


def _died(run: Run, healthy: frozenset[int]) -> Finding | None:
    end = f"signal {run.signal}" if run.signal is not None else f"exit code {run.exit_code}"
    if not run.ended:
        return Finding(Clarity.UNCLEAR, "runner-died", f"the runner ended early ({end}) after {len(run.tests)} tests")
    if run.exit_code not in healthy or run.status not in (None, run.exit_code):
        return Finding(Clarity.UNCLEAR, "runner-failed", f"the runner ended with {end}, not with its verdict")
    return None


def _canaries(run: Run, _: frozenset[int]) -> Finding | None:
    seen = Counter(test_id for test_id, _ in run.tests)
    outcomes = dict(run.tests)
    if not any(canary.must_pass for canary in run.canaries) or all(canary.must_pass for canary in run.canaries):
        return Finding(Clarity.UNCLEAR, "no-canary", "the canaries are not in the report")
    for canary in run.canaries:
        outcome = outcomes.get(canary.test_id)
        if outcome is None and _is_uncollected(canary.test_id, run.uncollected):
            return Finding(Clarity.UNCLEAR, "collection-error", "collection error: the suite could not be built")
        if outcome is None:
            return Finding(Clarity.UNCLEAR, "no-canary", "a canary has no record")
        if seen[canary.test_id] > 1 or COUNTS_AS_PASS[outcome] != canary.must_pass:
            wanted = "pass" if canary.must_pass else "fail"
            return Finding(Clarity.FORGED, "canary", f"a canary that must {wanted} is {outcome}")
    return None


def _counts(run: Run, _: frozenset[int]) -> Finding | None:
    if len(run.tests) != run.collected:
        return Finding(Clarity.FORGED, "count", f"{run.collected} tests were to run, {len(run.tests)} have a record")
    return None


def _lookup(run: Run, task: Checked) -> Finding:
    ours = {canary.test_id for canary in run.canaries}
    required = [*task.fail_to_pass, *task.pass_to_pass]
    seen = Counter(test_id for test_id, _ in run.tests)
    twice = [test_id for test_id in required if seen[test_id] > 1]
    if twice:
        return Finding(Clarity.STOPPED, "duplicate-id", f"{len(twice)} required ids occur twice, first {twice[0]!r}")
    outcomes = dict(run.tests)
    checks: dict[str, Outcome] = {}
    for test_id in required:
        if test_id in outcomes:
            checks[test_id] = outcomes[test_id]
        else:
            checks[test_id] = Outcome.UNCOLLECTED if _is_uncollected(test_id, run.uncollected) else Outcome.MISSING
    missing = [test_id for test_id, outcome in checks.items() if outcome is Outcome.MISSING]
    uncollected = sum(outcome is Outcome.UNCOLLECTED for outcome in checks.values())
    if missing and not any(test_id not in ours for test_id in outcomes):
        return Finding(Clarity.UNCLEAR, "no-test", "no test of the target ran", checks)
    if missing:
        known = (
            "none of the required ids has"
            if len(missing) == len(checks)
            else f"{len(missing)} required ids are without"
        )
        which = f"{known} a record, first {missing[0]!r}"
        return Finding(Clarity.UNCLEAR, "unmatched-id", which, checks)
    if uncollected:
        reason = f"collection error: {uncollected} required tests could not be collected"
        return Finding(Clarity.UNCLEAR, "collection-error", reason, checks)
    return Finding(Clarity.ANSWERS, checks=checks)


def _is_uncollected(test_id: str, uncollected: Mapping[str, str]) -> bool:
    if test_id in uncollected:
        return True
    # Every prefix that ends at a separator: a file, a class, a suite, or a folder with its conftest.
    for at, character in enumerate(test_id):
        if character in "/:[ " and test_id[:at].rstrip(": ") in uncollected:
            return True
    return "" in uncollected


def decide(report: Report, task: Checked) -> Verdict:
    """The verdict on a report."""
    healthy = _healthy(report)
    work = report.run("work")
    if work is None:
        return Verdict(Status.GRADING_ERROR, "no-report", "no run of the work is in the report", {})
    finding = examine(work, task, healthy)
    if finding.clarity is Clarity.ANSWERS:
        return _graded(finding.checks, task)
    if finding.clarity is Clarity.FORGED:
        return Verdict(Status.TAMPERED, finding.kind, finding.reason, {})
    if finding.clarity is Clarity.STOPPED:
        return Verdict(Status.GRADING_ERROR, finding.kind, finding.reason, {})
    return _attribute(finding, report, task, healthy)


def _healthy(report: Report) -> frozenset[int]:
    framework = FRAMEWORKS.get(report.framework)
    if framework is None:
        raise GradeError(f"report: framework {report.framework!r} is not known", slug="bad-report")
    return framework.healthy_exits


def is_unclear(report: Report, task: Checked) -> bool:
    """True when the work's run alone gives no verdict and a control could."""
    work = report.run("work")
    return work is not None and examine(work, task, _healthy(report)).clarity is Clarity.UNCLEAR


def _attribute(finding: Finding, report: Report, task: Checked, healthy: frozenset[int]) -> Verdict:
    """Whose fault an unclear run is."""
    control, again = report.run("control"), report.run("again")
    if control is None or again is None:
        return Verdict(Status.GRADING_ERROR, finding.kind, finding.reason, {})
    without = examine(control, task, healthy)
    if without.clarity is not Clarity.ANSWERS or not passes(without.checks, task.pass_to_pass):
        reason = f"{finding.reason}; without the work it does not answer either"
        return Verdict(Status.GRADING_ERROR, finding.kind, reason, {})
    second = examine(again, task, healthy)
    if second.clarity is not Clarity.UNCLEAR or second.kind != finding.kind:
        return Verdict(Status.GRADING_ERROR, "not-repeatable", f"{finding.reason}; a second run disagreed", {})
    checks = finding.checks or dict.fromkeys([*task.fail_to_pass, *task.pass_to_pass], Outcome.MISSING)
    reason = f"caused by the work: {finding.reason}; without the work the suite runs well"
    return Verdict(Status.UNRESOLVED, finding.kind, reason, checks)


def passes(checks: Mapping[str, Outcome], ids: Iterable[str]) -> bool:
    """True when every id plainly passed."""
    return all(COUNTS_AS_PASS[checks.get(test_id, Outcome.MISSING)] for test_id in ids)


def _graded(checks: Mapping[str, Outcome], task: Checked) -> Verdict:
    failing = [test_id for test_id, outcome in checks.items() if not COUNTS_AS_PASS[outcome]]
    if not failing:
        return Verdict(Status.RESOLVED, "passed", "every required test passed", checks)
    wanted = sum(test_id in failing for test_id in task.fail_to_pass)
    kept = len(failing) - wanted
    reason = (
        f"{wanted} of {len(task.fail_to_pass)} fail_to_pass and {kept} of {len(task.pass_to_pass)} pass_to_pass fail"
    )
    return Verdict(Status.UNRESOLVED, "failed", reason, checks)
