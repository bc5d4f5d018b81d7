"""One attempt of a cell, from an empty sandbox to a receipt."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import zstandard

from pairtrial.core.canonical import sha256_hex
from pairtrial.core.errors import GradeError, PairtrialError, SandboxError, TaskError
from pairtrial.core.status import Status, StopReason
from pairtrial.grading import COUNTS_AS_PASS, Grade, Outcome, Work, capture, grade
from pairtrial.harness.agents import AgentAdapter, Invocation, render_prompt
from pairtrial.harness.agents.base import split_turns
from pairtrial.harness.delivery import Arm, Delivered, DeliveryError, Link, deliver, remove_context
from pairtrial.harness.differences import registered_flags
from pairtrial.harness.gateway import Ledger, Route
from pairtrial.harness.runtime import Runtime
from pairtrial.harness.trial import Trial, run_agent
from pairtrial.harness.wiring import (
    complete_startup,
    make_terms,
    provider_failure,
    secret_values,
    wire_log,
    wire_record,
    wire_usage,
)
from pairtrial.prereg.lock import Lock
from pairtrial.prereg.plan import AgentSpec, Plan
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
from pairtrial.tasks import Prepared, Task, mounts_of, test_command

if TYPE_CHECKING:
    from pairtrial.harness.gateway.server import GatewayServer

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
    runtime: Runtime
    """What agents, MCP servers and indexers run with."""
    gateway: GatewayServer | None = None
    """The only way to a model; None for an agent that asks none."""
    route: Route | None = None

    @property
    def plan(self) -> Plan:
        """The plan as it was frozen."""
        return self.lock.plan

    def invocation(self, task: Task, agent: AgentSpec) -> Invocation:
        """The agent's command line for a task: no arm can reach it but by the differences that it declares."""
        prompt = render_prompt(self.prompt, task=task.prompt, test_command=" ".join(test_command(task)))
        return self.adapter.invocation(agent, prompt)


@dataclass(slots=True)
class Course:
    """What is known of an attempt so far; becomes the receipt."""

    status: Status | None = None
    reason: str | None = None
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    delivered: Delivered | None = None
    trial: Trial | None = None
    ledger: Ledger | None = None
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


@dataclass(frozen=True, slots=True)
class Probe:
    """An agent that was started and asked its first question; nothing is graded."""

    trial: Trial
    ledger: Ledger | None
    paths: Mapping[str, str]
    """What belongs to this one sandbox: name → absolute path inside."""
    void: tuple[Status, str] | None


async def probe_attempt(experiment: Experiment, cell: Cell) -> Probe:
    """Set a rollout up and run its agent, without grading; errors of the set-up are raised."""
    course = Course()
    box = _sandbox(experiment, cell, "agent", experiment.plan.agent.limits.wall_s)
    try:
        trial = await _run_phase(experiment, cell, box, course)
        paths = {"workspace": box.workspace, "home": box.home, "tmp": box.tmp}
        void = (course.status, course.reason or "") if course.status is not None else None
        return Probe(trial, course.ledger, paths, void)
    finally:
        await box.destroy()


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
    agent = experiment.plan.agent
    further: list[Path] = []
    if role == "agent":
        provider = experiment.arms[cell.arm].provider
        further += [*experiment.runtime.folders, *experiment.adapter.folders(agent)]
        further += [Path(provider.folder)] if provider else []
    spec = SandboxSpec(
        label=name,
        scratch=experiment.scratch,
        mounts=mounts_of(prepared.environment, experiment.cache, *further),
        network="gateway" if role == "agent" and experiment.gateway is not None else "none",
        image=plan.image,
        limits=limits,
    )
    return make_sandbox(plan.kind, spec)


async def _agent_phase(experiment: Experiment, cell: Cell, sandbox: Sandbox, course: Course) -> None:
    await _run_phase(experiment, cell, sandbox, course)
    if course.status is None:
        prepared = experiment.prepared[cell.task]
        workspace = sandbox.host_path(sandbox.workspace)
        remove_context(workspace, experiment.arms[cell.arm].provider)
        try:
            course.work = capture(prepared.visible, workspace)
        except GradeError as fault:
            course.end(Status.GRADING_ERROR, f"the work could not be captured: {fault}")


async def _run_phase(experiment: Experiment, cell: Cell, sandbox: Sandbox, course: Course) -> Trial:
    """Set up, run the agent, and say whether its run counts."""
    begun = time.monotonic()
    prepared = experiment.prepared[cell.task]
    arm = experiment.arms[cell.arm]
    agent, adapter = experiment.plan.agent_of(cell.arm), experiment.adapter
    flags = registered_flags(adapter, experiment.lock, cell.arm)
    await sandbox.prepare()
    link = await _open_gateway(experiment, arm, sandbox, course)
    invocation = experiment.invocation(prepared.task, agent)
    delivered = await deliver(
        sandbox, prepared, arm, invocation, cell.seed, adapter, agent, experiment.runtime.python, link
    )
    delivered.observed.update({"runtime": experiment.runtime.digest, **flags})
    course.delivered = delivered
    course.index_s = delivered.index_s
    course.setup_s = time.monotonic() - begun
    launched = time.monotonic()
    session = adapter.session(agent, invocation, arm.expected, delivered.place)
    halted, cleared = _halted(experiment, course), course.ledger.clear if course.ledger else None
    trial = await run_agent(
        sandbox, delivered.argv, delivered.env, session, arm.expected, agent.limits.wall_s, halted, cleared
    )
    course.trial = trial
    turns = len(split_turns(invocation.stdin.decode()))
    if turns > 1:  # sessions send them in their registered order, each after the one before
        delivered.observed["turns"] = f"{trial.turns + bool(trial.result)} of {turns}"
    course.agent_s = time.monotonic() - launched
    await sandbox.kill()
    _judge(experiment, trial, course)
    return trial


async def _open_gateway(experiment: Experiment, arm: Arm, sandbox: Sandbox, course: Course) -> Link | None:
    server, route = experiment.gateway, experiment.route
    if server is None or route is None:
        return None
    plan = experiment.plan
    cap = plan.budget.per_rollout_usd
    terms = make_terms(plan.agent, experiment.adapter, route, cap, arm.expected, arm.provider)
    course.ledger = server.open(terms)
    if sandbox.isolation is Isolation.NONE:
        url = await sandbox.serve_gateway(host_port=server.port)
    else:
        url = await sandbox.serve_gateway(unix_socket=server.socket_path)
    return Link(url, course.ledger.token)


def _halted(experiment: Experiment, course: Course) -> Callable[[], str | None]:
    """Why an agent must not go on: the gateway died, found the rollout void, or came to a spend cap."""
    server, ledger = experiment.gateway, course.ledger

    def reason() -> str | None:
        if server is None or ledger is None:
            return None
        return ledger.halted if server.alive else "the gateway died"

    return reason


def _judge(experiment: Experiment, trial: Trial, course: Course) -> None:
    """Settle the status of a run that says nothing about the task; the wire is heard before the agent."""
    ledger = course.ledger
    if experiment.gateway is not None and ledger is not None:
        experiment.gateway.close(ledger)
        experiment.gateway.demand()
        trial.capped = ledger.capped
        trial.turned = ledger.turned
        if ledger.capped or ledger.turned:  # what the agent calls the provider's failure was the gateway's refusal
            trial.voids = tuple(void for void in trial.voids if void.status is not Status.SANDBOX_LOST)
        complete_startup(trial, ledger)
        if ledger.problems:
            course.end(Status.INVALID_ENVIRONMENT, "; ".join(ledger.problems))
    if trial.void is not None:
        course.end(*trial.void)
    if ledger is not None and trial.stop_reason in (StopReason.CRASHED, StopReason.TIMEOUT):
        failure = provider_failure(ledger)
        if failure is not None:
            course.end(Status.SANDBOX_LOST, failure)
    if ledger is not None and ledger.first is None and not ledger.capped:
        course.end(Status.INVALID_ENVIRONMENT, "the agent ended without asking the model")


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
        ),
        secrets=secret_values(experiment.route, experiment.arms.values(), course.ledger),
    )
    trial, files = course.trial, {}
    if trial is not None:
        files["events.jsonl.zst"] = trial.compressed(redactor.data)
        if (raw := trial.raw(redactor.data)) is not None:
            files["raw.jsonl.zst"] = raw
        if trial.ended is not None and trial.ended.stderr.strip():
            files["stderr.txt"] = redactor.data(trial.ended.stderr[-16_384:])
    if course.ledger is not None:
        files["wire.jsonl.zst"] = wire_log(course.ledger, redactor)
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
        usage=wire_usage(course.ledger, experiment.plan.agent.model) if course.ledger else _usage(trial),
        wire=wire_record(course.ledger) if course.ledger else None,
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
