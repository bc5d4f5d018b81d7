"""Grading one rollout's work in a fresh sandbox.

The grader gets a prepared task, a patch and an empty sandbox, and nothing else: no arm, no provider, no receipt. Order:
pristine defective tree (with all original tests) → the work without its changes to protected paths → canaries with
random names → the whole suite once → report → verdict. The code under test never runs in this process.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from pairtrial.core.status import Status
from pairtrial.grading.frameworks.base import COUNTS_AS_PASS, Outcome
from pairtrial.grading.observe import framework_of, run_suite
from pairtrial.grading.report import Report, read_report, write_report
from pairtrial.grading.verdict import Checked, decide, is_unclear
from pairtrial.sandbox.protocol import Sandbox
from pairtrial.tasks.workspace import Prepared


@dataclass(frozen=True, slots=True)
class Grade:
    """What the hidden checks said about the work."""

    status: Status
    kind: str
    """Stable word for the reason, such as ``passed``, ``failed``, ``collection-error``, ``canary``."""
    reason: str
    checks: Mapping[str, str]
    """Outcome of every fail_to_pass id, and of each pass_to_pass id that did not pass."""
    passed: int
    """Required ids that plainly passed."""
    required: int
    touched: tuple[str, ...]
    """Protected paths that the work changed; the pristine ones were graded."""
    report: bytes
    """All that the verdict was made from; `grade_from_report` gives the same verdict from it."""
    log: bytes = b""
    """Start and end of what the runner printed: for people, may hold paths of this machine, never a result."""
    duration_s: float = 0.0


def grade_from_report(report: bytes, task: Checked) -> Grade:
    """The grade that a stored report gives; needs no sandbox. `grade` itself ends here."""
    document = read_report(report)
    verdict = decide(document, task)
    first = frozenset(task.fail_to_pass)
    shown = {
        test_id: outcome.value
        for test_id, outcome in verdict.checks.items()
        if test_id in first or not COUNTS_AS_PASS[outcome]
    }
    return Grade(
        status=verdict.status,
        kind=verdict.kind,
        reason=verdict.reason,
        checks=shown,
        passed=sum(outcome is Outcome.PASSED for outcome in verdict.checks.values()),
        required=len(task.fail_to_pass) + len(task.pass_to_pass),
        touched=document.touched,
        report=report,
    )


async def grade(prepared: Prepared, work_patch: bytes, sandbox: Sandbox, *, timeout_s: float | None = None) -> Grade:
    """Grade ``work_patch`` in ``sandbox``, which must be fresh and prepared; the caller destroys it.

    ``timeout_s`` is for one run of the suite and defaults to the target's. Raises `GradeError` when the patch does not
    fit the tree, `SandboxError` when the sandbox fails.
    """
    began = time.monotonic()
    limit = timeout_s if timeout_s is not None else prepared.task.target.document.tests.timeout_s
    run = partial(run_suite, prepared, sandbox=sandbox, timeout_s=limit)
    seen = await run(patch=work_patch, label="work")
    name = framework_of(prepared).name
    report = Report(name, seen.touched, (seen.run,))
    if is_unclear(report, prepared.task):
        control = await run(patch=b"", label="control")
        again = await run(patch=work_patch, label="again")
        report = Report(name, seen.touched, (seen.run, control.run, again.run))
    found = grade_from_report(write_report(report), prepared.task)
    return Grade(
        status=found.status,
        kind=found.kind,
        reason=found.reason,
        checks=found.checks,
        passed=found.passed,
        required=found.required,
        touched=found.touched,
        report=found.report,
        log=seen.log,
        duration_s=time.monotonic() - began,
    )
