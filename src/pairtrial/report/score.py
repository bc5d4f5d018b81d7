"""Computing the scorecard from a lock and its receipts: offline, deterministic, nothing started.

Only what the lock registers is computed as registered.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pairtrial import stats
from pairtrial.core.errors import PlanError
from pairtrial.core.status import StopReason
from pairtrial.prereg.lock import Lock
from pairtrial.prereg.plan import Arm, ArmKind, Plan
from pairtrial.prereg.review import difference_lines, estimand_lines
from pairtrial.prereg.schedule import position_counts, schedule, schedule_digest
from pairtrial.prereg.wording import ClaimKind
from pairtrial.report.claims import authorise
from pairtrial.report.figures import number
from pairtrial.report.scorecard import (
    ArmCounts,
    Comparison,
    ExcludedBlock,
    IntervalRecord,
    Replicate,
    Scorecard,
    TaskRow,
)
from pairtrial.report.secondary import secondary
from pairtrial.report.sensitivity import sensitivity
from pairtrial.report.tally import CellResult, Tally, deltas, tally
from pairtrial.runs.journal import Line
from pairtrial.runs.receipt import Receipt

Rows = Mapping[str, list[dict[str, CellResult]]]


@dataclass(frozen=True, slots=True)
class JournalFacts:
    """What the score takes from a journal."""

    started: Mapping[str, int]
    """Arm → attempts that were started."""
    committed: bool | None
    """Whether the lock was committed at every start; None outside a git repository."""


def journal_facts(lines: Iterable[Line]) -> JournalFacts:
    """Read the facts from journal lines."""
    started: Counter[str] = Counter()
    committed: list[bool | None] = []
    for line in lines:
        if line.event == "attempt-started":
            started[str(line.fields["cell"]).split(".")[1]] += 1
        elif line.event == "run-started":
            committed.append(line.fields.get("committed"))
    known = [flag for flag in committed if flag is not None]
    return JournalFacts(started, None if not known else all(known))


def score(lock: Lock, receipts: Iterable[Receipt], facts: JournalFacts) -> Scorecard:
    """The scorecard of a run.

    Parameters
    ----------
    lock
        The frozen plan.
    receipts
        All receipts of the run, attempts of a cell in order. Read once.
    facts
        What the journal says beside them.

    Raises
    ------
    PlanError
        The schedule that this version derives from the plan is not the one that was frozen.
    """
    plan = lock.plan
    blocks = schedule(plan)
    if schedule_digest(blocks) != lock.identities.get("schedule"):
        raise PlanError(
            "schedule: this version derives another schedule from the plan than was frozen", slug="schedule"
        )
    table = tally(plan, blocks, receipts)
    rows = table.by_task()
    comparisons = _comparisons(plan, rows)
    replicates = tuple(_replicate(plan, arm, rows) for arm in plan.replicates)
    arms = tuple(_counts(table, arm, facts.started) for arm in plan.arms)
    embedded = lock.identities.get("agent.embedded") == "true"
    complete = all(counts.not_run == 0 for counts in arms)
    card = Scorecard(
        schema_="pairtrial.scorecard.v1",
        plan_id=lock.plan_id,
        plan=plan.id,
        question=plan.question,
        stage=plan.stage,
        estimand=tuple(estimand_lines(plan)),
        conflict_of_interest=plan.conflict_of_interest,
        agent={"adapter": plan.agent.adapter, "version": plan.agent.version, "model": plan.agent.model},
        agent_limits=lock.identities.get("agent.limits", ""),
        embedded=embedded,
        isolation=tuple(sorted(table.isolation)),
        exceptions=tuple(f"{name}: {reason}" for name, reason in sorted(plan.tasks.exceptions.items())),
        differences=tuple(line for arm in plan.arms for line in difference_lines(arm)),
        amendments=tuple(
            f"{item.date}, from plan {item.parent[:12]}: {item.reason} Likely bias: {item.bias}. {len(item.changes)} change(s)."
            for item in lock.amendments
        ),
        committed=facts.committed,
        complete=complete,
        blocks_planned=len(blocks),
        blocks_complete=len(table.complete_blocks()),
        excluded=_excluded(table),
        arms=arms,
        tasks=_task_rows(plan, lock, rows),
        comparisons=comparisons,
        replicates=replicates,
        variance=_variance(plan, rows),
        secondary=secondary(plan, rows),
        sensitivity=tuple(sensitivity(lock, table, arm.name) for arm in plan.treatments),
        positions={arm: tuple(counts) for arm, counts in position_counts(blocks).items()},
        invalidation_p={
            arm.name: _invalidation(table, arm.name) for arm in plan.arms if arm.kind is not ArmKind.CONTROL
        },
        toolchains=tuple(dict(items) for items in sorted(table.toolchains)),
        claims=(),
    )
    return card.model_copy(
        update={"claims": tuple(authorise(plan, card, item) for item in comparisons if item.registered)}
    )


def _counts(table: Tally, arm: Arm, started: Mapping[str, int]) -> ArmCounts:
    cells = [cell for block in table.blocks for cell in block.cells if cell.arm == arm.name]
    seen = [table.cells[cell.id] for cell in cells if cell.id in table.cells]
    graded = [result for result in seen if result.graded]
    counted = sum(1 for block in table.complete_blocks())
    attempts = table.attempts[arm.name]
    return ArmCounts(
        arm=arm.name,
        kind=arm.kind.value,
        planned=len(cells),
        graded=len(graded),
        resolved=sum(result.resolved for result in graded),
        finished=sum(result.stop_reason is StopReason.FINISHED for result in graded),
        invalid=dict(sorted(Counter(result.status.value for result in seen if not result.graded).items())),
        not_run=len(cells) - len(seen),
        excluded=len(graded) - counted,
        attempts=attempts,
        regrades=table.regrades[arm.name],
        interrupted=max(0, started.get(arm.name, attempts) - attempts),
        stop_reasons=dict(sorted(Counter(result.stop_reason.value for result in graded).items())),
        context_used=sum(bool(result.context_calls) for result in graded) if arm.kind is ArmKind.TREATMENT else None,
        touched_tests=sum(result.touched for result in graded),
    )


def _excluded(table: Tally) -> tuple[ExcludedBlock, ...]:
    found = []
    for block in table.blocks:
        if table.is_complete(block):
            continue
        statuses = {
            cell.arm: table.cells[cell.id].status.value if cell.id in table.cells else "not_run" for cell in block.cells
        }
        found.append(
            ExcludedBlock(task=block.task, repetition=block.repetition, statuses=dict(sorted(statuses.items())))
        )
    return tuple(sorted(found, key=lambda item: (item.task, item.repetition)))


def _task_rows(plan: Plan, lock: Lock, rows: Rows) -> tuple[TaskRow, ...]:
    names = [arm.name for arm in plan.arms]
    return tuple(
        TaskRow(
            task=task,
            category=lock.identities.get(f"task.{task}.category"),
            blocks=len(blocks),
            resolved={arm: sum(row[arm].resolved for row in blocks) for arm in names},
            finished={arm: sum(row[arm].stop_reason is StopReason.FINISHED for row in blocks) for arm in names},
        )
        for task, blocks in rows.items()
    )


def _comparisons(plan: Plan, rows: Rows) -> tuple[Comparison, ...]:
    """Registered treatments first, under Holm together; a comparison that could not be run counts with p = 1."""
    found = [_compare(plan, arm, rows, registered=True) for arm in plan.treatments]
    adjusted = stats.holm([1.0 if item.p is None else item.p for item in found])
    final = []
    for item, p_holm in zip(found, adjusted, strict=True):
        effect = _effect(plan, item, p_holm)
        final.append(item.model_copy(update={"p_holm": number(p_holm), "effect": effect,
                                             "disagreement": _disagreement(plan, item, p_holm)}))  # fmt: skip
    final += [_compare(plan, arm, rows, registered=False) for arm in plan.replicates]
    return tuple(final)


def _compare(plan: Plan, arm: Arm, rows: Rows, *, registered: bool) -> Comparison:
    analysis = plan.analysis
    control = plan.control.name
    difference = deltas(rows, arm.name, control)
    values = list(difference.values())
    wins, losses = sum(value > 0 for value in values), sum(value < 0 for value in values)
    n = len(values)
    single = plan.repetitions == 1
    test = stats.mcnemar(wins, losses) if single else stats.sign_flip(values)
    p = number(test.p) if n else None
    midp = stats.mcnemar(wins, losses, method="midp").p if single and n else None
    floor = max(analysis.floor_discordant, stats.floor_discordant(analysis.alpha, len(analysis.family)))
    equivalence = None
    if single and n and analysis.equivalence_margin is not None:
        equivalence = number(stats.tost(wins, losses, n, analysis.equivalence_margin).p)
    return Comparison(
        treatment=arm.name, control=control, registered=registered,
        tasks=n, wins=wins, losses=losses, ties=n - wins - losses, discordant=wins + losses,
        delta=number(sum(values, Fraction(0)) / n) if n else None,
        test="exact McNemar, two-sided" if single else "exact sign-flip on task sums, two-sided",
        p=p, p_holm=None, p_midp=number(midp), s_value=number(_s_value(p)),
        floor=floor,
        intervals=_intervals(plan, values, wins, losses) if n else (),
        equivalence_p=equivalence,
        effect=ClaimKind.INCONCLUSIVE,
        disagreement=None,
    )  # fmt: skip


def _intervals(plan: Plan, values: list[Fraction], wins: int, losses: int) -> tuple[IntervalRecord, ...]:
    level = plan.analysis.level
    if plan.repetitions == 1:
        first: Any = stats.tango(wins, losses, len(values), level)
        name = "Tango score"
    else:
        first, name = stats.paired_t(values, level), "paired t on task means"
    second = stats.bca(values, level, ties=plan.analysis.bca_ties)
    named = ((name, first), (f"BCa, exact bootstrap ({plan.analysis.bca_ties} ties)", second))
    return tuple(
        IntervalRecord(method=label, level=level, low=number(item.low), high=number(item.high), reason=item.reason)
        for label, item in named
    )


def _s_value(p: float | None) -> float | None:
    return None if p is None or p <= 0 else -math.log2(p)


def _effect(plan: Plan, item: Comparison, p_holm: float) -> ClaimKind:
    """Test, floor and margin; an interval never decides."""
    shown = item.p is not None and stats.at_most(p_holm, plan.analysis.alpha) and item.discordant >= item.floor
    equal = item.equivalence_p is not None and stats.at_most(item.equivalence_p, plan.analysis.alpha)
    if shown:
        return ClaimKind.SMALL_DIFFERENCE if equal else ClaimKind.DIFFERENCE
    return ClaimKind.EQUIVALENT if equal else ClaimKind.INCONCLUSIVE


def _disagreement(plan: Plan, item: Comparison, p_holm: float) -> str | None:
    shown = stats.at_most(p_holm, plan.analysis.alpha) and item.discordant >= item.floor
    for interval in item.intervals:
        if interval.low is None or interval.high is None:
            continue
        outside = interval.low > 0 or interval.high < 0
        if outside != shown:
            verb = "leaves out" if outside else "holds"
            return f"The {interval.method} interval {verb} 0, the registered test decides: p = {p_holm:.3g}."
    return None


def _replicate(plan: Plan, arm: Arm, rows: Rows) -> Replicate:
    control = plan.control.name
    blocks = [row for task in rows.values() for row in task]
    flips = sum(row[arm.name].resolved != row[control].resolved for row in blocks)
    n = len(blocks)
    interval = stats.flip_rate(flips, n) if n and plan.repetitions == 1 else None
    difference = list(deltas(rows, arm.name, control).values())
    wins, losses = sum(value > 0 for value in difference), sum(value < 0 for value in difference)
    own = stats.mcnemar(wins, losses) if plan.repetitions == 1 else stats.sign_flip(difference)
    odd: dict[str, Any] = {}
    for treatment in plan.treatments:
        if plan.repetitions > 1 or not n:
            continue
        triples = [(row[control].resolved, row[arm.name].resolved, row[treatment.name].resolved) for row in blocks]
        mixed = [triple for triple in triples if len(set(triple)) == 2]
        count = sum(triple[0] == triple[1] for triple in mixed)
        odd[treatment.name] = {"odd": count, "mixed": len(mixed), "p": number(stats.odd_one_out(count, len(mixed)).p)}
    return Replicate(
        arm=arm.name, blocks=n, flips=flips, rate=number(flips / n) if n else None,
        low=number(interval.low) if interval else None, high=number(interval.high) if interval else None,
        limit=plan.analysis.max_aa_flip_rate, odd_one_out=odd, mcnemar_p=number(own.p) if n else None,
    )  # fmt: skip


def _variance(plan: Plan, rows: Rows) -> dict[str, dict[str, float]]:
    """Replicate noise against true spread, from tasks with all their repetitions."""
    whole = [blocks for blocks in rows.values() if len(blocks) == plan.repetitions]
    if plan.repetitions == 1 or len(whole) < 2:
        return {}
    found = {}
    for arm in plan.treatments:
        totals = [
            [sum(row[name].resolved for row in blocks) for blocks in whole] for name in (arm.name, plan.control.name)
        ]
        parts = stats.variance_components(totals[0], totals[1], plan.repetitions)
        names = ("omega2", "sigma2_control", "sigma2_treatment", "noise", "variance")
        values = {name: number(getattr(parts, name)) for name in names}
        found[arm.name] = {name: value for name, value in values.items() if value is not None}
    return found


def _invalidation(table: Tally, arm: str) -> float | None:
    """Exact McNemar on "invalid" itself: unequal invalidation between arms is a finding."""
    control = table.plan.control.name
    more = fewer = seen = 0
    for block in table.blocks:
        ids = {cell.arm: cell.id for cell in block.cells}
        if ids[arm] in table.cells and ids[control] in table.cells:
            seen += 1
            a, c = not table.cells[ids[arm]].graded, not table.cells[ids[control]].graded
            more += a and not c
            fewer += c and not a
    return number(stats.mcnemar(more, fewer).p) if seen else None
