"""What would have to be different for the result to be another: missing runs, position, repositories.

Every figure here is exploratory but for the bounds of missing runs; none decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from pairtrial import stats
from pairtrial.prereg.lock import Lock
from pairtrial.prereg.plan import Plan
from pairtrial.prereg.schedule import Block
from pairtrial.report.figures import number
from pairtrial.report.scorecard import MissingRuns, Sensitivity
from pairtrial.report.tally import CellResult, Tally, deltas

ENOUGH_CLUSTERS = 10
"""With fewer repositories a clustered standard error is printed and called unreliable."""


def sensitivity(lock: Lock, table: Tally, treatment: str) -> Sensitivity:
    """The block of one registered comparison."""
    plan, control = lock.plan, lock.plan.control.name
    rows = table.by_task()
    difference = deltas(rows, treatment, control)
    first, second = _by_order(table, treatment, control)
    targets = [lock.identities.get(f"task.{task}.target") for task in difference]
    clustered = None
    if len(difference) > 1 and all(targets) and len(set(targets)) > 1:
        clustered = stats.clustered_t(list(difference.values()), targets, plan.analysis.level)
    clusters = len(set(targets)) if all(targets) else None
    replicate = plan.replicates[0].name if plan.replicates else None
    return Sensitivity(
        treatment=treatment,
        missing=_missing(plan, table, treatment, control),
        delta_treatment_first=number(_mean(first)),
        delta_control_first=number(_mean(second)),
        blocks_treatment_first=len(first),
        blocks_control_first=len(second),
        clusters=clusters,
        clustered_low=number(clustered.low) if clustered else None,
        clustered_high=number(clustered.high) if clustered else None,
        clustered_reliable=None if clusters is None else clusters >= ENOUGH_CLUSTERS,
        delta_pooled_control=number(_pooled(rows, treatment, control, replicate)) if replicate else None,
        clean_cache={name: number(_clean_cache(rows, name)) for name in (control, treatment)},
        within_task_p=_within(plan, rows, treatment, control),
    )


def _mean(values: list[int]) -> float | None:
    return sum(values) / len(values) if values else None


def _by_order(table: Tally, treatment: str, control: str) -> tuple[list[int], list[int]]:
    """Block differences, split by which of the two arms ran first."""
    first: list[int] = []
    second: list[int] = []
    for block in table.complete_blocks():
        place = {cell.arm: cell.position for cell in block.cells}
        result = table.results(block)
        value = int(result[treatment].resolved) - int(result[control].resolved)
        (first if place[treatment] < place[control] else second).append(value)
    return first, second


def _pooled(
    rows: Mapping[str, list[dict[str, CellResult]]], treatment: str, control: str, replicate: str
) -> Fraction | None:
    """Difference against the mean of control and replicate."""
    values = [
        Fraction(
            sum(2 * row[treatment].resolved - row[control].resolved - row[replicate].resolved for row in blocks), 2
        )
        / len(blocks)
        for blocks in rows.values()
    ]
    return sum(values, Fraction(0)) / len(values) if values else None


def _clean_cache(rows: Mapping[str, list[dict[str, CellResult]]], arm: str) -> float | None:
    costs = [cost for blocks in rows.values() for row in blocks if (cost := row[arm].cost_neutral_usd) is not None]
    return sum(costs) / len(costs) if costs else None


def _within(plan: Plan, rows: Mapping[str, list[dict[str, CellResult]]], treatment: str, control: str) -> float | None:
    """Q test: do runs inside these very tasks differ more than relabelled runs? None with one repetition."""
    whole = [blocks for blocks in rows.values() if len(blocks) == plan.repetitions]
    if plan.repetitions == 1 or not whole:
        return None
    totals = [[sum(row[name].resolved for row in blocks) for blocks in whole] for name in (treatment, control)]
    return number(stats.q_test(totals[0], totals[1], plan.repetitions).p)


def _outcome(table: Tally, block: Block, arm: str) -> int | None:
    cell = next(cell for cell in block.cells if cell.arm == arm)
    result = table.cells.get(cell.id)
    return int(result.resolved) if result is not None and result.graded else None


def _missing(plan: Plan, table: Tally, treatment: str, control: str) -> MissingRuns:
    """Every missing run as failure and as success: the range of the difference and the tipping point."""
    by_task: dict[str, list[tuple[int | None, int | None]]] = {task: [] for task in plan.tasks.ids}
    for block in sorted(table.blocks, key=lambda item: item.repetition):
        by_task[block.task].append((_outcome(table, block, control), _outcome(table, block, treatment)))
    missing = sum(value is None for pairs in by_task.values() for pair in pairs for value in pair)
    if plan.repetitions == 1:
        alpha = plan.analysis.alpha / len(plan.analysis.family)
        found = stats.bounds([pairs[0] for pairs in by_task.values()], alpha)
        return MissingRuns(
            missing=missing,
            low=number(found.delta_low),
            high=number(found.delta_high),
            p_low=number(found.p_low),
            p_high=number(found.p_high),
            tipping_point=found.tipping_point,
        )
    outcomes = [[[pair[side] for pair in pairs] for pairs in by_task.values()] for side in (1, 0)]
    repeated = stats.repeated_bounds(outcomes[0], outcomes[1])
    ends = [value for value in (repeated.p_worst.p, repeated.p_best.p) if value is not None]
    return MissingRuns(
        missing=missing,
        low=number(repeated.delta_low),
        high=number(repeated.delta_high),
        p_low=number(min(ends)) if ends else None,
        p_high=number(max(ends)) if ends else None,
        tipping_point=None,
    )
