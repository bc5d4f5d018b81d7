"""One attempt of a cell, from an empty sandbox to a receipt."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import zstandard

from pairtrial.core.canonical import sha256_hex
from pairtrial.core.errors import GradeError, PairtrialError, SandboxError, TaskError
from pairtrial.core.status import Status, StopReason
from pairtrial.grading import COUNTS_AS_PASS, Grade, Outcome, Work, capture, grade
from pairtrial.harness.agents import AgentAdapter, Invocation, render_prompt
from pairtrial.harness.delivery import Arm, Delivered, DeliveryError, deliver, mounts, remove_context
from pairtrial.harness.trial import Trial, run_agent
from pairtrial.prereg.lock import Lock
from pairtrial.prereg.plan import Plan
from pairtrial.prereg.schedule import Cell
from pairtrial.runs.receipt import (
    CellRecord,
    GradeRecord,
    Receipt,
    SandboxRecord,
    ServerRecord,
    StartupRecord,
    Times,
    Usage,
    rounded,
)
from pairtrial.runs.redact import Redactor, machine_paths
from pairtrial.sandbox import Isolation, Limits, Sandbox, SandboxSpec, make_sandbox
from pairtrial.tasks import Prepared, Task, test_command

LISTED = 100
"""So many test ids a receipt names; the whole report lies beside it."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """What every rollout of a run shares."""

    lock: Lock
    adapter: AgentAdapter
    prepared: Mapping[str, Prepared]
    arms: Mapping[str, Arm]
    prompt: str
    """The prompt template."""
    scratch: Path
    cache: Path
    toolchain: Mapping[str, str]

    @property
    def plan(self) -> Plan:
        """The plan as it was frozen."""
        return self.lock.plan

    def invocation(self, task: Task) -> Invocation:
        """The agent's command line for a task: no arm can reach it."""
        prompt = render_prompt(self.prompt, task=task.prompt, test_command=" ".join(test_command(task)))
        return self.adapter.invocation(self.plan.agent, prompt)


@dataclass(slots=True)
class Course:
    """What is known of an attempt so far; becomes the receipt."""

    status: Status | None = None
    reason: str | None = None
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    delivered: Delivered | None = None
    trial: Trial | None = None
    work: Work | None = None
    grade: Grade | None = None
    setup_s: float = 0.0
    index_s: float | None = None
    agent_s: float | None = None
    grading_s: float | None = None

    def end(self, status: Status, reason: str | None) -> None:
        """Settle the status; the first one stays."""
        if self.status is None:
            self.status, self.reason = status, reason


async def run_attempt(experiment: Experiment, cell: Cell, attempt: int) -> tuple[Receipt, dict[str, bytes]]:
    """Run one attempt; whatever happens in it becomes a status, not an exception."""
    course = Course()
    task = experiment.prepared[cell.task].task
    agent_box = _sandbox(experiment, cell, "agent", experiment.plan.agent.limits.wall_s)
    try:
        await _agent_phase(experiment, cell, agent_box, course)
    except DeliveryError as fault:
        course.end(fault.status, str(fault))
    except SandboxError as fault:
        course.end(Status.SANDBOX_LOST, str(fault))
    except (TaskError, OSError) as fault:
        course.end(Status.SETUP_FAILURE, str(fault))
    finally:
        await _destroy(agent_box, course)
    if course.status is None:
        await _grade_phase(experiment, cell, course)
    return _receipt(experiment, cell, attempt, agent_box, course, task)


def _sandbox(experiment: Experiment, cell: Cell, role: str, wall_s: float) -> Sandbox:
    """A sandbox whose name tells no arm: what runs in it can read its own path."""
    plan = experiment.plan.sandbox
    prepared = experiment.prepared[cell.task]
    name = sha256_hex(f"{experiment.lock.plan_id}/{cell.id}/{role}/{time.monotonic_ns()}".encode())[:12]
    limits = Limits(wall_s=wall_s, memory_bytes=plan.memory_mb << 20 if plan.memory_mb else None, cpus=plan.cpus)
    provider = experiment.arms[cell.arm].provider if role == "agent" else None
    spec = SandboxSpec(
        label=name,
        scratch=experiment.scratch,
        mounts=mounts(prepared, provider),
        image=plan.image,
        limits=limits,
    )
    return make_sandbox(plan.kind, spec)


async def _agent_phase(experiment: Experiment, cell: Cell, sandbox: Sandbox, course: Course) -> None:
    begun = time.monotonic()
    prepared = experiment.prepared[cell.task]
    arm = experiment.arms[cell.arm]
    await sandbox.prepare()
    delivered = await deliver(sandbox, prepared, arm, experiment.invocation(prepared.task), cell.seed)
    course.delivered = delivered
    course.index_s = delivered.index_s
    course.setup_s = time.monotonic() - begun
    limits = experiment.plan.agent.limits
    launched = time.monotonic()
    trial = await run_agent(sandbox, delivered.argv, delivered.env, delivered.stdin, arm.expected, limits.wall_s)
    course.trial = trial
    course.agent_s = time.monotonic() - launched
    if trial.problems:
        course.end(Status.INVALID_ENVIRONMENT, "; ".join(trial.problems))
    elif trial.startup is None:
        tail = (trial.ended.stderr if trial.ended else b"").decode(errors="replace").strip().splitlines()[-1:]
        code = trial.ended.exit_code if trial.ended else None
        course.end(
            Status.INVALID_ENVIRONMENT, f"the agent never said that it started (exit {code}): {''.join(tail)[:300]}"
        )
    elif trial.foreign_servers:
        course.end(Status.CONTAMINATED, f"called {', '.join(sorted(trial.foreign_servers))}, which the arm has not")
    await sandbox.kill()
    if course.status is None:
        workspace = sandbox.host_path(sandbox.workspace)
        remove_context(workspace, arm.provider)
        try:
            course.work = capture(prepared.visible, workspace)
        except GradeError as fault:
            course.end(Status.GRADING_ERROR, f"the work could not be captured: {fault}")


async def _grade_phase(experiment: Experiment, cell: Cell, course: Course) -> None:
    """Grade in a fresh sandbox. Nothing that is passed on names the arm."""
    prepared = experiment.prepared[cell.task]
    begun = time.monotonic()
    limit = prepared.task.target.document.tests.timeout_s
    box = _sandbox(experiment, cell, "grading", limit)
    try:
        await box.prepare()
        course.grade = await grade(prepared, course.work.patch if course.work else b"", box, timeout_s=limit)
        course.end(course.grade.status, course.grade.reason)
    except SandboxError as fault:
        course.end(Status.SANDBOX_LOST, str(fault))
    except (PairtrialError, OSError) as fault:
        course.end(Status.GRADING_ERROR, str(fault))
    finally:
        course.grading_s = time.monotonic() - begun
        await _destroy(box, course)


async def _destroy(sandbox: Sandbox, course: Course) -> None:
    try:
        await sandbox.destroy()
    except (SandboxError, OSError) as fault:
        # What stays behind could reach a later rollout, so this one does not count as clean.
        course.status, course.reason = Status.CLEANUP_FAILURE, str(fault)


def _receipt(
    experiment: Experiment, cell: Cell, attempt: int, sandbox: Sandbox, course: Course, task: Task
) -> tuple[Receipt, dict[str, bytes]]:
    redactor = Redactor(
        machine_paths(
            scratch=experiment.scratch,
            cache=experiment.cache,
            program=Path(__file__).resolve().parents[3],
        )
    )
    trial, files = course.trial, {}
    if trial is not None:
        files["events.jsonl.zst"] = trial.compressed(redactor.data)
        if trial.ended is not None and trial.ended.stderr.strip():
            files["stderr.txt"] = redactor.data(trial.ended.stderr[-16_384:])
    if course.work is not None:
        files["work.patch"] = course.work.patch
    if course.grade is not None:
        files["report.zst"] = zstandard.ZstdCompressor(level=12).compress(redactor.data(course.grade.report))
    fixed = sandbox.isolation is not Isolation.NONE
    return Receipt(
        schema_="pairtrial.receipt.v1",
        plan_id=experiment.lock.plan_id,
        cell=CellRecord(
            id=cell.id, task=cell.task, arm=cell.arm, repetition=cell.repetition,
            block=cell.block, position=cell.position, seed=cell.seed,
        ),
        attempt=attempt,
        status=course.status or Status.GRADING_ERROR,
        reason=redactor.text(course.reason)[:2000] if course.reason else None,
        stop_reason=trial.stop_reason if trial else StopReason.NOT_STARTED,
        limit=trial.ended.limit if trial and trial.ended else None,
        started_at=course.started_at,
        observed=course.delivered.observed if course.delivered else {},
        toolchain=dict(experiment.toolchain),
        sandbox=SandboxRecord(
            kind=sandbox.kind, isolation=sandbox.isolation.value, paths="fixed" if fixed else "same-length"
        ),
        startup=_startup(trial, redactor),
        grade=_grade_record(course.grade, task),
        usage=_usage(trial),
        tool_calls=trial.tool_calls if trial else None,
        context_tool_calls=trial.context_tool_calls if trial else None,
        files_modified=tuple(change.path for change in course.work.changes) if course.work else None,
        times=Times(
            setup_s=rounded(course.setup_s) or 0.0,
            index_s=rounded(course.index_s),
            agent_s=rounded(course.agent_s),
            grading_s=rounded(course.grading_s),
        ),
        truncated=trial.truncated if trial else False,
        redactions=redactor.count,
        files={},
        journal_prev="0" * 64,
    ), files  # fmt: skip


def _startup(trial: Trial | None, redactor: Redactor) -> StartupRecord | None:
    if trial is None or trial.startup is None:
        return None
    seen = trial.startup
    return StartupRecord(
        agent=seen.agent,
        version=seen.version,
        model=seen.model,
        servers=tuple(
            ServerRecord(name=s.name, status=s.status, tools=tuple(sorted(s.tools or ()))) for s in seen.mcp_servers
        ),
        tools=tuple(sorted(seen.tools)),
        problems=tuple(redactor.text(problem) for problem in trial.problems),
    )


def _grade_record(result: Grade | None, task: Task) -> GradeRecord | None:
    if result is None or not result.status.is_graded:
        return None
    # The grade lists every fail_to_pass, and of pass_to_pass those alone that did not pass.
    missed = [name for name in task.fail_to_pass if not COUNTS_AS_PASS[Outcome(result.checks[name])]]
    broken = [name for name in task.pass_to_pass if name in result.checks]
    return GradeRecord(
        fail_to_pass=len(task.fail_to_pass) - len(missed),
        fail_to_pass_total=len(task.fail_to_pass),
        pass_to_pass=len(task.pass_to_pass) - len(broken),
        pass_to_pass_total=len(task.pass_to_pass),
        broken=tuple(broken[:LISTED]),
        missed=tuple(missed[:LISTED]),
        touched=tuple(result.touched[:LISTED]),
    )


def _usage(trial: Trial | None) -> tuple[Usage, ...]:
    if trial is None:
        return ()
    return tuple(
        Usage(
            model=event.model or "",
            steps=event.steps,
            input_tokens=event.input_tokens,
            output_tokens=event.output_tokens,
            cache_read_tokens=event.cache_read_tokens,
            cache_write_tokens=event.cache_write_tokens,
            cost_usd=None if event.cost_usd is None else str(event.cost_usd),
        )
        for event in trial.usage
    )
