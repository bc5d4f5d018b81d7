"""One attempt of a cell, from an empty sandbox to a receipt."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pairtrial.core.canonical import sha256_hex
from pairtrial.core.errors import GradeError, PairtrialError, SandboxError, TaskError
from pairtrial.core.status import Status, StopReason
from pairtrial.grading import capture, grade
from pairtrial.harness.delivery import Arm, DeliveryError, Link, deliver, remove_context
from pairtrial.harness.differences import registered_flags
from pairtrial.harness.experiment import Experiment
from pairtrial.harness.gateway import Ledger
from pairtrial.harness.record import Course, build_receipt, build_regrade
from pairtrial.harness.trial import Trial, run_agent
from pairtrial.harness.turns import TurnLog
from pairtrial.harness.wiring import complete_startup, make_terms, provider_failure
from pairtrial.prereg.schedule import Cell
from pairtrial.runs.receipt import Receipt
from pairtrial.runs.regrade import WORK_FILE, is_ungraded
from pairtrial.sandbox import Isolation, Limits, Sandbox, SandboxSpec, make_sandbox
from pairtrial.tasks import mounts_of

__all__ = ["Course", "Experiment", "Probe", "probe_attempt", "regrade_attempt", "run_attempt"]


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


async def run_attempt(
    experiment: Experiment, cell: Cell, attempt: int, on_turn: Callable[[int, str], None] = lambda number, digest: None
) -> tuple[Receipt, dict[str, bytes]]:
    """Run one attempt; whatever happens in it becomes a status, not an exception.

    ``on_turn`` gets number and digest of every turn of a prompt that has several, as it is sent.
    """
    task = experiment.prepared[cell.task].task
    prompt = experiment.invocation(task, experiment.plan.agent_of(cell.arm)).stdin.decode()
    course = Course(turns=TurnLog(prompt, on_turn))
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
        await _grade_phase(experiment, cell, course, course.work.patch if course.work else b"")
    return build_receipt(experiment, cell, attempt, agent_box, course, task)


async def regrade_attempt(
    experiment: Experiment, cell: Cell, attempt: int, source: Receipt, kept: Mapping[str, bytes]
) -> tuple[Receipt, dict[str, bytes]]:
    """Grade the work that attempt ``source`` left, whose grading failed by our fault; no agent is started."""
    if not is_ungraded(source):
        raise GradeError(f"{cell.id}/{source.attempt}: is {source.status.value} and is not graded again", slug="graded")
    course = Course()
    await _grade_phase(experiment, cell, course, kept[WORK_FILE])
    return build_regrade(experiment, attempt, source, kept, course, experiment.prepared[cell.task].task)


def _sandbox(experiment: Experiment, cell: Cell, role: str, wall_s: float) -> Sandbox:
    """A sandbox whose name tells no arm: what runs in it can read its own path."""
    plan = experiment.plan.sandbox
    prepared = experiment.prepared[cell.task]
    name = sha256_hex(f"{experiment.lock.plan_id}/{cell.id}/{role}/{time.monotonic_ns()}".encode())[:12]
    limits = Limits(
        wall_s=wall_s,
        memory_bytes=plan.memory_mb << 20 if plan.memory_mb else None,
        cpus=plan.cpus,
        pids=plan.pids,
        disk_bytes=plan.disk_mb << 20 if plan.disk_mb else None,
    )
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
    course.facts = sandbox.facts
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
        sandbox,
        delivered.argv,
        delivered.env,
        session,
        arm.expected,
        agent.limits.wall_s,
        halted,
        cleared,
        course.turns,
    )
    course.trial = trial
    if course.turns is not None and course.turns.registered:
        delivered.observed["turns"] = f"{trial.turns + bool(trial.result)} of {len(course.turns.registered)}"
        if course.turns.problems:
            reason = f"the turns did not run in their order: {'; '.join(course.turns.problems)}"
            course.end(Status.INVALID_ENVIRONMENT, reason)
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


async def _grade_phase(experiment: Experiment, cell: Cell, course: Course, patch: bytes) -> None:
    """Grade in a fresh sandbox. Nothing that is passed on names the arm."""
    prepared = experiment.prepared[cell.task]
    begun = time.monotonic()
    limit = prepared.task.target.document.tests.timeout_s
    box = _sandbox(experiment, cell, "grading", limit)
    try:
        await box.prepare()
        course.grade = await grade(prepared, patch, box, timeout_s=limit)
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
