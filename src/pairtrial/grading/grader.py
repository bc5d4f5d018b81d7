"""Grading one rollout's work in a fresh sandbox.

The grader gets a prepared task, a patch and an empty sandbox, and nothing else: no arm, no provider, no receipt. Order:
pristine defective tree (with all original tests) → the work without its changes to protected paths → canaries with
random names → the whole suite once → report → verdict. The code under test never runs in this process.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio.to_thread

from pairtrial.core.canonical import tree_digest
from pairtrial.core.disk import remove_tree
from pairtrial.core.errors import EnvironmentFault
from pairtrial.core.status import Status
from pairtrial.grading.frameworks.base import COUNTS_AS_PASS, Framework, Outcome, Run
from pairtrial.grading.frameworks.channel import read_frames
from pairtrial.grading.frameworks.pytest import Pytest, reporter_source, site_packages
from pairtrial.grading.protect import protection, shadowed_names
from pairtrial.grading.report import Report, read_report, write_report
from pairtrial.grading.verdict import Checked, decide, is_unclear
from pairtrial.grading.work import apply_work
from pairtrial.sandbox.protocol import Sandbox
from pairtrial.tasks.workspace import Prepared, task_env

REPORT_CAP = 48 << 20
"""Bytes of report that one run may give; 64,000 tests need 6 MiB."""
PRINTED_KEPT = 32 << 10
"""Bytes kept from the start, and from the end, of what the runner printed."""
FRAMEWORKS: Mapping[str, Framework] = {"pytest": Pytest()}


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
    framework = FRAMEWORKS[prepared.task.target.document.tests.framework]
    touched, run, log = await _run(prepared, work_patch, sandbox, framework, limit, "work")
    report = Report(framework.name, touched, (run,))
    if is_unclear(report, prepared.task):
        _, control, _ = await _run(prepared, b"", sandbox, framework, limit, "control")
        _, again, _ = await _run(prepared, work_patch, sandbox, framework, limit, "again")
        report = Report(framework.name, touched, (run, control, again))
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
        log=log,
        duration_s=time.monotonic() - began,
    )


async def _run(
    prepared: Prepared, patch: bytes, sandbox: Sandbox, framework: Framework, timeout_s: float, label: str
) -> tuple[tuple[str, ...], Run, bytes]:
    """Lay the tree, run the suite once, read the report."""
    await sandbox.kill()
    await anyio.to_thread.run_sync(_empty, sandbox.host_path(sandbox.workspace))
    await sandbox.put_tree(prepared.defective, sandbox.workspace)
    workspace = sandbox.host_path(sandbox.workspace)
    await anyio.to_thread.run_sync(_check_copy, prepared, workspace)
    touched = await anyio.to_thread.run_sync(partial(lay, prepared, patch, workspace))
    environment = sandbox.inside_path(prepared.environment.root)
    env = task_env(prepared.task, prepared, sandbox.workspace, environment=environment)
    invocation = framework.invocation(prepared, sandbox.workspace, env)
    for name, data in invocation.files.items():
        await sandbox.put_file(f"{sandbox.workspace}/{name}", data)
    seal = secrets.token_bytes(32)
    config = {
        "argv": list(invocation.argv),
        "cwd": sandbox.workspace,
        "gift": invocation.gift,
        "seal": seal.hex(),
        "cap": REPORT_CAP,
        "keep": PRINTED_KEPT,
    }
    result = await sandbox.exec(
        ["python", "-I", "-S", "-c", reporter_source("supervisor.py")],
        env=invocation.env,
        cwd=sandbox.workspace,
        stdin=json.dumps(config).encode(),
        timeout_s=timeout_s,
        output_cap=REPORT_CAP + (16 << 20),
    )
    frames = read_frames(result.stdout, seal)
    limit: str | None = "memory" if result.oom else result.limit or ("wall" if result.timed_out else None)
    end = frames.end or {}
    if limit is None and (result.truncated or end.get("truncated")):
        limit = "output"
    run = Run(
        label=label,
        exit_code=end.get("exit"),
        signal=end.get("signal"),
        limit=limit,
        seal="whole" if frames.sealed else "broken" if result.exit_code == 0 else "absent",
        chained=False,
        ended=False,
    )
    return touched, framework.read(invocation, frames.report, run), frames.printed + result.stderr[-4096:]


def lay(prepared: Prepared, patch: bytes, workspace: Path) -> tuple[str, ...]:
    """Apply the work to a copy of the defective tree; gives the protected paths that stay pristine."""
    document = prepared.task.target.document
    mended = {span.file for span in prepared.task.defect}
    tests = {*document.tests.paths, *prepared.task.document.hide}
    tests |= {item.partition("::")[0] for item in (*prepared.task.fail_to_pass, *prepared.task.pass_to_pass)}
    is_protected = protection(
        pristine=prepared.defective,
        # A path that is collected for its doctests is source, not test: there the work must count.
        test_paths=[path for path in tests if not any(file == path or file.startswith(path + "/") for file in mended)],
        extra=document.protected,
        pythonpath=document.pythonpath,
        shadowed=shadowed_names(site_packages(prepared)),
    )
    return apply_work(patch, workspace, skip=is_protected)


def _check_copy(prepared: Prepared, workspace: Path) -> None:
    """Whoever wrote into the cache since it was made (a test of an earlier grading, say) must not decide this one."""
    if tree_digest(workspace) != prepared.defective_digest:
        raise EnvironmentFault(
            f"{prepared.defective}: the prepared tree has been changed since it was made",
            hint="remove the folder; it is prepared again",
            slug="damaged-cache",
        )


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        remove_tree(entry)
