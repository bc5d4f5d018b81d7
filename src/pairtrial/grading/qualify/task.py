"""Qualifying one task: every run, the agent that does nothing, the agent that reads everything, the verdict.

What was found is kept in the cache under the digest of all that it depends on: the definition, the trees, the
environment, the grader and the conditions. Runs of the unbroken tree are the same for all tasks of a target and are
made once.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from pairtrial.core.canonical import digest_json, tree_digest
from pairtrial.core.disk import remove_tree, write_atomic
from pairtrial.core.errors import GradeError, TaskError
from pairtrial.core.status import Status
from pairtrial.grading.frameworks.base import COUNTS_AS_PASS, Outcome
from pairtrial.grading.grader import Grade, grade
from pairtrial.grading.observe import framework_of, run_suite
from pairtrial.grading.qualify.conditions import Condition, clock_method, conditions_digest, note_of, plan_of
from pairtrial.grading.qualify.example import run_example
from pairtrial.grading.qualify.needles import fingerprints, gold_passages, hidden_passages
from pairtrial.grading.qualify.probe import Reading, other_copies, read_everything
from pairtrial.grading.qualify.rounds import Seen, Where, as_expected, problems_of, run_all
from pairtrial.grading.work import capture
from pairtrial.tasks.locking import locked
from pairtrial.tasks.pack import Task
from pairtrial.tasks.prompts import example
from pairtrial.tasks.qualification import MIN_REPEAT, Fault, Fingerprints, Problem, Qualification, Rounds
from pairtrial.tasks.workspace import Prepared, copy_workspace, prepare, unbroken_tree

FORMAT = 3
"""Raised when this package looks for more than before: what is in the cache is then made again."""
CONDITIONS = ("as-graded", "varied", "load")


@cache
def grader_digest() -> str:
    """Of what decides a grade."""
    return tree_digest(Path(__file__).resolve().parents[1], exclude=("__pycache__", "qualify"))


@dataclass(frozen=True, slots=True)
class Qualifier:
    """Qualifies tasks with one set of settings."""

    cache: Path
    where: Where
    """Where suites run."""
    reader: Where
    """Where the agent that reads everything runs; an isolating sandbox where there is one."""
    repeat: int = MIN_REPEAT
    further: tuple[Path, ...] = ()
    """What a rollout mounts beside the task's environment."""
    runtime: str = ""
    """Identity of the interpreter that it mounts for the agent and its servers."""
    told: Callable[[], None] = lambda: None
    """Called after every run of a suite."""

    @property
    def runs(self) -> int:
        """Runs of one tree."""
        return len(plan_of(self.repeat))

    async def qualify(self, task: Task) -> tuple[Qualification, bool]:
        """What is found about ``task``, and whether it came from the cache."""
        return await self.qualify_prepared(await prepare(task, self.cache))

    async def qualify_prepared(self, prepared: Prepared) -> tuple[Qualification, bool]:
        """The same for a task that is prepared already."""
        task = prepared.task
        key = digest_json({**self._depends(prepared), "task": task.digest, "visible": prepared.visible_digest,
                           "runtime": self.runtime})  # fmt: skip
        path = self.cache / "qualifications" / f"{key[:32]}.json"
        if path.exists():
            return Qualification.model_validate(json.loads(path.read_bytes()), strict=False), True
        found = await _Work(self, prepared).all()
        write_atomic(path, json.dumps(found.model_dump(mode="json", by_alias=True)).encode())
        return found, False

    def _depends(self, prepared: Prepared) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "environment": prepared.environment.digest,
            "grader": grader_digest(),
            "conditions": conditions_digest(self.repeat),
            "sandbox": [self.where.kind, self.reader.kind],
        }

    async def unbroken_runs(self, prepared: Prepared, unbroken: Path, patch: bytes) -> list[Seen]:
        """Runs of the unbroken tree under every condition, made once a target."""
        tree = await anyio.to_thread.run_sync(tree_digest, unbroken)
        key = digest_json({**self._depends(prepared), "target": prepared.task.target.digest, "tree": tree})
        path = self.cache / "qualifications" / f"target-{key[:32]}.json"
        async with locked(self.cache, f"qualify-{key[:32]}"):
            if not path.exists():
                plan = plan_of(self.repeat)
                runs = await run_all(prepared, patch, self.where, plan, self.told)
                write_atomic(path, json.dumps([_plain(seen) for seen in runs]).encode())
            return [_seen(item) for item in json.loads(path.read_bytes())]


@dataclass(frozen=True, slots=True)
class _Work:
    """The work on one task."""

    by: Qualifier
    prepared: Prepared

    @property
    def task(self) -> Task:
        return self.prepared.task

    async def all(self) -> Qualification:
        """Everything, in order of cost."""
        with tempfile.TemporaryDirectory(dir=self.by.where.scratch) as name:
            folder = Path(name)
            unbroken = folder / "unbroken"
            await unbroken_tree(self.task, self.by.cache, unbroken)
            gold = await anyio.to_thread.run_sync(partial(capture, self.prepared.defective, unbroken))
            reading = await self._read(unbroken)
            code, example_problems = await self._example(unbroken)
            noop, gold_grade, grade_problems = await self._graded(folder, gold.patch)
            visible, visible_problems = await self._visible(folder)
            plan = plan_of(self.by.repeat)
            broken = await run_all(self.prepared, b"", self.by.where, plan, self.by.told)
            whole = await self.by.unbroken_runs(self.prepared, unbroken, gold.patch)
            prints = await anyio.to_thread.run_sync(self._fingerprints, unbroken)
        declared = frozenset(self.task.fail_to_pass)
        problems = [
            *reading.problems,
            *other_copies(self.prepared),
            *problems_of(broken, declared, "with the defect"),
            *problems_of(whole, frozenset(), "without the defect"),
            *grade_problems,
            *visible_problems,
            *example_problems,
        ]
        if self.by.repeat < MIN_REPEAT:
            text = f"{self.by.repeat} repetition(s); {MIN_REPEAT} are needed"
            problems.append(Problem(fault=Fault.TOO_FEW, text=text))
        return Qualification(
            definition=self.task.digest,
            workspace=self.prepared.visible_digest,
            environment=self.prepared.environment.digest,
            grader=grader_digest(),
            conditions=conditions_digest(self.by.repeat),
            repeat=self.by.repeat,
            sandbox=self.by.where.kind,
            clock=clock_method(framework_of(self.prepared).name),
            rounds=tuple(self._rounds(name, broken, whole) for name in CONDITIONS),
            noop=noop,
            gold=gold_grade,
            visible_tests=visible,
            example=code,
            reader=reading.sandbox,
            runtime=self.by.runtime,
            needles=reading.needles,
            exposed=reading.exposed,
            fingerprints=prints,
            problems=tuple(dict.fromkeys(problems)),
        )

    def _rounds(self, name: str, broken: Sequence[Seen], whole: Sequence[Seen]) -> Rounds:
        defective = as_expected(broken, name, frozenset(self.task.fail_to_pass))
        unbroken = as_expected(whole, name, frozenset())
        return Rounds(
            condition=name,
            defective=defective[0],
            defective_runs=defective[1],
            unbroken=unbroken[0],
            unbroken_runs=unbroken[1],
            note=note_of(name, framework_of(self.prepared).name),
        )

    def _fingerprints(self, unbroken: Path) -> Fingerprints:
        return fingerprints(unbroken, self.prepared.defective, self.prepared.visible, self.task.defect)

    async def _read(self, unbroken: Path) -> Reading:
        hidden = await anyio.to_thread.run_sync(hidden_passages, self.prepared.defective, self.prepared.visible)
        passages = (*hidden, *gold_passages(unbroken, self.task.defect))
        reading = await read_everything(self.prepared, passages, self.by.reader, self.by.further)
        if hidden:
            return reading
        text = "nothing of the tests was hidden from the agent's tree"
        return replace(reading, problems=(*reading.problems, Problem(fault=Fault.LEAKING, text=text)))

    async def _example(self, unbroken: Path) -> tuple[str, list[Problem]]:
        try:
            code = example(self.task)
        except TaskError as fault:
            return "none", [Problem(fault=Fault.INVALID, text=fault.message)]
        before = await run_example(self.prepared, self.prepared.defective, code, self.by.where)
        after = await run_example(self.prepared, unbroken, code, self.by.where)
        problems = []
        if before is None:
            text = "prompt: the example passes on the defective tree, so it shows nothing"
            problems.append(Problem(fault=Fault.INVALID, text=text))
        if after is not None:
            text = f"prompt: the example fails on the unbroken tree ({after[:300]})"
            problems.append(Problem(fault=Fault.INVALID, text=text))
        return f"{'passes' if before is None else 'fails'}, then {'passes' if after is None else 'fails'}", problems

    async def _graded(self, folder: Path, gold: bytes) -> tuple[str, str, list[Problem]]:
        """Two whole gradings: of an agent that did nothing, and of the unbroken source."""
        idle = folder / "idle"
        await copy_workspace(self.prepared, idle)
        work = await anyio.to_thread.run_sync(partial(capture, self.prepared.visible, idle))
        problems = []
        if work.patch:
            text = f"an agent that does nothing leaves changes behind ({len(work.changes)} files)"
            problems.append(Problem(fault=Fault.INVALID, text=text))
        noop, why = await self._grade(work.patch)
        mended, why_not = await self._grade(gold)
        if noop is Status.RESOLVED:
            problems.append(Problem(fault=Fault.INVALID, text="an agent that does nothing resolves the task"))
        elif not noop.is_graded:
            text = f"an agent that does nothing cannot be graded ({noop.value}: {why})"
            problems.append(Problem(fault=Fault.INVALID, text=text))
        if mended is not Status.RESOLVED:
            text = f"the unbroken source does not resolve the task ({mended.value}: {why_not})"
            problems.append(Problem(fault=Fault.INVALID, text=text))
        return noop.value, mended.value, problems

    async def _grade(self, patch: bytes) -> tuple[Status, str]:
        async with self._sandbox("grade") as sandbox:
            try:
                found: Grade = await grade(self.prepared, patch, sandbox)
            except GradeError as fault:
                return Status.GRADING_ERROR, fault.message
        self.by.told()
        return found.status, found.reason

    @asynccontextmanager
    async def _sandbox(self, what: str) -> AsyncIterator[Any]:
        sandbox = self.by.where.sandbox(self.prepared, f"{what} {self.task.id}")
        try:
            await sandbox.prepare()
            yield sandbox
        finally:
            with anyio.CancelScope(shield=True):
                await sandbox.destroy()

    async def _visible(self, folder: Path) -> tuple[int, list[Problem]]:
        """The suite as the agent can run it: it works, and no hidden test is in it."""
        tree = folder / "visible"
        await copy_workspace(self.prepared, tree)
        await anyio.to_thread.run_sync(remove_tree, tree / ".git")
        seen_by_agent = replace(self.prepared, defective=tree, defective_digest=self.prepared.visible_digest)
        limit = self.task.target.tests.timeout_s
        async with self._sandbox("visible") as sandbox:
            seen = await run_suite(seen_by_agent, b"", sandbox, timeout_s=limit, label="work")
        self.by.told()
        ours = {canary.test_id for canary in seen.run.canaries}
        tests = {test_id: outcome for test_id, outcome in seen.run.tests if test_id not in ours}
        return len(tests), list(self._visible_problems(tests, ended=seen.run.ended))

    def _visible_problems(self, tests: dict[str, Outcome], *, ended: bool) -> Iterable[Problem]:
        shown = sorted(tests.keys() & set(self.task.fail_to_pass))
        if shown:
            text = f"the agent's tree still runs {len(shown)} hidden tests, first {shown[0]}"
            yield Problem(fault=Fault.LEAKING, text=text)
        if not ended:
            yield Problem(fault=Fault.INVALID, text="the suite does not run in the agent's tree")
        known = set(self.task.target.baseline)
        red = sorted(name for name, outcome in tests.items() if name in known and not COUNTS_AS_PASS[outcome])
        if red and not shown:
            text = f"{len(red)} tests that must pass fail in the agent's tree, first {red[0]}"
            yield Problem(fault=Fault.INVALID, text=text)


def _plain(seen: Seen) -> dict[str, Any]:
    failing = None if seen.failing is None else sorted(seen.failing)
    return {"condition": seen.condition.name, "failing": failing, "reason": seen.reason}


def _seen(item: dict[str, Any]) -> Seen:
    failing = None if item["failing"] is None else frozenset(item["failing"])
    return Seen(Condition(item["condition"]), failing, item["reason"])
