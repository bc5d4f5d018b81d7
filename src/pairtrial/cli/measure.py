"""Holding a task against what its author says about it: which tests fail, what the prompt's example does."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio.to_thread

from pairtrial.core.canonical import tree_digest
from pairtrial.core.errors import TaskError
from pairtrial.core.status import Status
from pairtrial.grading import COUNTS_AS_PASS, Grade, Outcome, capture, grade
from pairtrial.grading.qualify.example import run_example
from pairtrial.grading.qualify.rounds import Where
from pairtrial.grading.report import read_report
from pairtrial.tasks import Category, Prepared, Span, Target, Task, prepare, unbroken_tree
from pairtrial.tasks.environment import build_environment
from pairtrial.tasks.model import TaskDocument
from pairtrial.tasks.prompts import example
from pairtrial.tasks.sources import source_for


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was found about one task."""

    task: str
    broken: tuple[str, ...]
    """Ids of the baseline that fail on the defective tree, in its order."""
    seconds: float
    """One run of the suite on the defective tree."""
    problems: tuple[str, ...]
    """What is not as the task says; empty when all is."""

    @property
    def ok(self) -> bool:
        """True when the task is what it says."""
        return not self.problems


async def measure_task(task: Task, cache: Path, scratch: Path, *, kind: str = "local") -> Measurement:
    """Run the suite and the example on the defective and on the unbroken tree."""
    code, problems = None, []
    try:
        code = example(task)
    except TaskError as fault:
        problems.append(str(fault))
    prepared = await prepare(task, cache)
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        unbroken = Path(name) / "unbroken"
        await unbroken_tree(task, cache, unbroken)
        work = await anyio.to_thread.run_sync(partial(capture, prepared.defective, unbroken))
        defective = await _graded(prepared, b"", scratch, kind)
        mended = await _graded(prepared, work.patch, scratch, kind)
        broken = tuple(item for item in task.target.baseline if _is_broken(defective, item))
        problems += _suite_problems(task, defective, mended, broken)
        if code is not None:
            where = Where(kind, scratch)
            before = await run_example(prepared, prepared.defective, code, where)
            after = await run_example(prepared, unbroken, code, where)
            problems += _example_problems(before, after)
    return Measurement(task.id, broken, defective.duration_s, tuple(problems))


async def passing_ids(target: Target, cache: Path, scratch: Path, *, kind: str = "local", repeat: int = 2) -> list[str]:
    """Ids that pass on the unbroken tree in every one of ``repeat`` runs, in the order of the first."""
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        tree = Path(name) / "unbroken"
        await source_for(target).materialise(cache, tree)
        environment = await build_environment(target, cache, tree)
        digest = await anyio.to_thread.run_sync(tree_digest, tree)
        prepared = Prepared(_undefined(target), tree, digest, "", tree, digest, "", environment)
        runs: list[dict[str, Outcome]] = []
        for _ in range(repeat):
            found = await _graded(prepared, b"", scratch, kind)
            run = read_report(found.report).run("work")
            if run is None or not run.ended:
                raise TaskError(f"{target.id}: the suite did not reach its end: {found.reason}", slug="no-baseline")
            ours = {canary.test_id for canary in run.canaries}
            runs.append({test_id: outcome for test_id, outcome in run.tests if test_id not in ours})
    return [item for item in runs[0] if all(COUNTS_AS_PASS[run.get(item, Outcome.MISSING)] for run in runs)]


def _undefined(target: Target) -> Task:
    """A task that breaks nothing, for running a suite of which no id is known yet."""
    nothing = Span(file="none", line=1, column=0, old="", new=" ")
    document = TaskDocument.model_construct(
        schema_="pairtrial.task.v1", id=target.id, title="baseline", target=target.id, category=Category.CALL,
        prompt="none", defect=(nothing,), fail_to_pass=(), hide=(), expect={},
    )  # fmt: skip
    return Task(document, target.folder, "", target)


def _is_broken(found: Grade, test_id: str) -> bool:
    outcome = found.checks.get(test_id)
    return outcome is not None and not COUNTS_AS_PASS[Outcome(outcome)]


def _suite_problems(task: Task, defective: Grade, mended: Grade, broken: tuple[str, ...]) -> list[str]:
    problems = []
    if not defective.status.is_graded:
        problems.append(f"defective tree: cannot be graded ({defective.status}: {defective.reason})")
    else:
        declared = frozenset(task.fail_to_pass)
        problems += [f"fail_to_pass: {item} passes in spite of the defect" for item in declared.difference(broken)]
        problems += [f"{item} fails as well but is not in fail_to_pass" for item in broken if item not in declared]
    if mended.status is not Status.RESOLVED:
        first = next((name for name, value in mended.checks.items() if not COUNTS_AS_PASS[Outcome(value)]), None)
        detail = f", first {first}" if first else ""
        problems.append(f"unbroken tree: does not pass its baseline ({mended.status}: {mended.reason}{detail})")
    return problems


def _example_problems(before: str | None, after: str | None) -> list[str]:
    problems = []
    if before is None:
        problems.append("prompt: the example passes on the defective tree, so it shows nothing")
    if after is not None:
        problems.append(f"prompt: the example fails on the unbroken tree ({after})")
    return problems


async def _graded(prepared: Prepared, patch: bytes, scratch: Path, kind: str) -> Grade:
    sandbox = Where(kind, scratch).sandbox(prepared, f"measure {prepared.task.id}")
    try:
        await sandbox.prepare()
        return await grade(prepared, patch, sandbox)
    finally:
        with anyio.CancelScope(shield=True):
            await sandbox.destroy()
