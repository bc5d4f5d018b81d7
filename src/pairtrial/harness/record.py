"""What is known of an attempt, and the receipt that it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import zstandard

from pairtrial.core.status import Status, StopReason
from pairtrial.grading import COUNTS_AS_PASS, Grade, Outcome, Work
from pairtrial.harness.agents.reads import below
from pairtrial.harness.delivery import Delivered
from pairtrial.harness.experiment import Experiment
from pairtrial.harness.gateway import Ledger
from pairtrial.harness.trial import Trial
from pairtrial.harness.turns import TurnLog
from pairtrial.harness.wiring import secret_values, wire_log, wire_record, wire_usage
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
from pairtrial.runs.regrade import carried
from pairtrial.sandbox import Isolation, Sandbox
from pairtrial.tasks import Task

MAX_PATHS = 1000
"""So many paths a receipt lists as modified, and as read; where there are more, ``truncated`` says so."""
LISTED = 100
"""So many test ids a receipt names; the whole report lies beside it."""


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
    facts: Mapping[str, str] = field(default_factory=dict)
    turns: TurnLog | None = None

    def end(self, status: Status, reason: str | None) -> None:
        """Settle the status; the first one stays."""
        if self.status is None:
            self.status, self.reason = status, reason


def build_receipt(
    experiment: Experiment, cell: Cell, attempt: int, sandbox: Sandbox, course: Course, task: Task
) -> tuple[Receipt, dict[str, bytes]]:
    """The receipt of an attempt and the files that go beside it, both without secrets and machine paths."""
    redactor = _redactor(experiment, course)
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
    modified = tuple(sorted(_shown(change.path) for change in course.work.changes)) if course.work else None
    read = _files_read(experiment, sandbox, trial, task)
    cut = len(modified or ()) > MAX_PATHS or len(read or ()) > MAX_PATHS
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
            kind=sandbox.kind, isolation=sandbox.isolation.value, paths="fixed" if fixed else "same-length",
            facts={name: redactor.text(value) for name, value in sorted(course.facts.items())} or None,
        ),
        startup=_startup(trial, redactor),
        grade=_grade_record(course.grade, task),
        usage=wire_usage(course.ledger, experiment.plan.agent.model) if course.ledger else _usage(trial),
        wire=wire_record(course.ledger) if course.ledger else None,
        tool_calls=trial.tool_calls if trial else None,
        context_tool_calls=trial.context_tool_calls if trial else None,
        files_modified=None if modified is None else modified[:MAX_PATHS],
        files_read=None if read is None else read[:MAX_PATHS],
        turns=tuple(course.turns.sent) if course.turns and course.turns.registered else None,
        times=Times(
            setup_s=rounded(course.setup_s) or 0.0,
            index_s=rounded(course.index_s),
            agent_s=rounded(course.agent_s),
            grading_s=rounded(course.grading_s),
        ),
        truncated=cut or (trial.truncated if trial else False),
        redactions=redactor.count,
        files={},
        journal_prev="0" * 64,
    ), files  # fmt: skip


def build_regrade(
    experiment: Experiment, attempt: int, source: Receipt, kept: Mapping[str, bytes], course: Course, task: Task
) -> tuple[Receipt, dict[str, bytes]]:
    """The receipt of a grading that was made up for: the agent's part is the source's, the rest is new."""
    redactor = _redactor(experiment, course)
    files = {name: data for name, data in kept.items() if name in carried(source)}
    if course.grade is not None:
        files["report.zst"] = zstandard.ZstdCompressor(level=12).compress(redactor.data(course.grade.report))
    changes = {
        "attempt": attempt,
        "regrades": source.attempt,
        "status": course.status or Status.GRADING_ERROR,
        "reason": redactor.text(course.reason)[:2000] if course.reason else None,
        "toolchain": dict(experiment.toolchain),
        "grade": _grade_record(course.grade, task),
        "times": source.times.model_copy(update={"grading_s": rounded(course.grading_s)}),
        "redactions": source.redactions + redactor.count,
    }
    return source.model_copy(update=changes), files


def _redactor(experiment: Experiment, course: Course) -> Redactor:
    return Redactor(
        machine_paths(
            scratch=experiment.scratch,
            cache=experiment.cache,
            program=Path(__file__).resolve().parents[3],
        ),
        secrets=secret_values(experiment.route, experiment.arms.values(), course.ledger),
    )


def _shown(path: str) -> str:
    """A path as a receipt can hold it: a backslash, which also stands for bytes that are not UTF-8, is written %5C."""
    return path.replace("\\", "%5C")


def _files_read(experiment: Experiment, sandbox: Sandbox, trial: Trial | None, task: Task) -> tuple[str, ...] | None:
    if (
        trial is None
        or trial.startup is None
        or not (experiment.adapter.manifest.tells_reads or trial.reads is not None)
    ):
        return None
    return below(sandbox.workspace, trial.reads or (), experiment.prepared[task.id].visible)


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
