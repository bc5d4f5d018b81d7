"""Plans, locks and receipts for tests, small and complete."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pairtrial.core.status import Status, StopReason
from pairtrial.prereg.lock import Lock
from pairtrial.prereg.plan import Plan
from pairtrial.prereg.schedule import Cell, schedule, schedule_digest
from pairtrial.runs.receipt import CellRecord, GradeRecord, Receipt, SandboxRecord, Times, Usage

WORDING = {
    "difference": "{treatment} resolved {direction} tasks: {wins} wins, {losses} losses, p = {p}.",
    "inconclusive": (
        "No difference was shown between {treatment} and {control}: {tasks} tasks, {discordant} discordant, {floor} "
        "needed, p = {p}, [{low_pp}, {high_pp}] pp."
    ),
    "descriptive": "Descriptive only ({reason}): {delta_pp} pp, p = {p}.",
    "invalid": "Invalid ({reason}): nothing can be said.",
}

PLAN: dict[str, Any] = {
    "schema": "pairtrial.plan.v1",
    "id": "trial",
    "stage": "confirmatory",
    "question": "Does the treatment change anything?",
    "conflict_of_interest": "None that anybody knows of.",
    "agent": {"adapter": "tinker", "version": "1.0.0", "model": "tinker-1", "limits": {"wall_s": 60, "turns": 10}},
    "prompt": "prompt.md",
    "arms": [
        {"name": "control", "kind": "control"},
        {"name": "treat", "kind": "treatment", "provider": "provider"},
        {"name": "aa", "kind": "replicate"},
    ],
    "tasks": {"pack": "pack", "ids": ["t1", "t2", "t3"]},
    "repetitions": 1,
    "sandbox": {"kind": "local"},
    "seed": "s",
    "budget": {"ceiling_usd": 0, "per_rollout_usd": 0},
    "estimand": {
        "population": "Small tasks of a test.",
        "intercurrent": {
            "timeout": "treatment-policy",
            "turn_limit": "treatment-policy",
            "spend_limit": "treatment-policy",
            "crash": "treatment-policy",
            "invalid_start": "block-excluded",
            "infrastructure_loss": "block-excluded",
            "budget_stop": "completed-blocks",
        },
    },
    "analysis": {"primary": "mcnemar-exact", "family": ["treat"]},
    "wording": WORDING,
}


def plan_data(**changes: Any) -> dict[str, Any]:
    """The plan as a mapping, with top-level keys replaced."""
    return {**copy.deepcopy(PLAN), **copy.deepcopy(changes)}


def make_plan(**changes: Any) -> Plan:
    """A plan."""
    return Plan.model_validate(plan_data(**changes), strict=False)


def make_lock(plan: Plan | None = None, **identities: str) -> Lock:
    """A lock whose only computed identity is the schedule."""
    plan = plan or make_plan()
    table = {"schedule": schedule_digest(schedule(plan)), "agent.embedded": "false", "agent.limits": "", **identities}
    return Lock(schema_="pairtrial.lock.v1", pairtrial="0.1.0", plan=plan, identities=table).whole()


def make_receipt(lock: Lock, cell: Cell, status: Status, **changes: Any) -> Receipt:
    """A receipt of a cell that ended with ``status``."""
    graded = status.is_graded
    values: dict[str, Any] = {
        "schema_": "pairtrial.receipt.v1",
        "plan_id": lock.plan_id,
        "cell": CellRecord(
            id=cell.id,
            task=cell.task,
            arm=cell.arm,
            repetition=cell.repetition,
            block=cell.block,
            position=cell.position,
            seed=cell.seed,
        ),
        "attempt": 1,
        "status": status,
        "reason": None,
        "stop_reason": StopReason.FINISHED if graded else StopReason.NOT_STARTED,
        "limit": None,
        "started_at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "observed": {},
        "toolchain": {"python": "3.11.7"},
        "sandbox": SandboxRecord(kind="local", isolation="none", paths="same-length"),
        "startup": None,
        "grade": GradeRecord(
            fail_to_pass=int(status is Status.RESOLVED),
            fail_to_pass_total=1,
            pass_to_pass=1,
            pass_to_pass_total=1,
            broken=(),
            missed=() if status is Status.RESOLVED else ("test_a.py::test",),
            touched=(),
        )
        if graded
        else None,
        "usage": (
            Usage(
                model="tinker-1",
                steps=5,
                input_tokens=None,
                output_tokens=None,
                cache_read_tokens=None,
                cache_write_tokens=None,
                cost_usd=None,
            ),
        ),
        "tool_calls": 2,
        "context_tool_calls": 1,
        "files_modified": (),
        "times": Times(setup_s=0.1, index_s=None, agent_s=1.0, grading_s=0.5),
        "truncated": False,
        "redactions": 0,
        "files": {},
        "journal_prev": "0" * 64,
    }
    return Receipt(**{**values, **changes})


def receipts_for(lock: Lock, outcomes: Mapping[str, Status], default: Status = Status.UNRESOLVED) -> list[Receipt]:
    """One receipt for every scheduled cell; ``outcomes`` maps cell ids to statuses."""
    cells = [cell for block in schedule(lock.plan) for cell in block.cells]
    return [make_receipt(lock, cell, outcomes.get(cell.id, default)) for cell in cells]
