"""Registered secondary metrics: paired ratios over all tasks, medians beside means, censoring shown. They decide nothing."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from pairtrial import stats
from pairtrial.core.status import StopReason
from pairtrial.prereg.plan import Plan
from pairtrial.report.figures import number
from pairtrial.report.scorecard import Metric, Ratio
from pairtrial.report.tally import CellResult

UNITS = {"steps": "steps", "wall_s": "s", "tool_calls": "calls", "cost_usd": "USD"}
Rows = Mapping[str, list[dict[str, CellResult]]]


def secondary(plan: Plan, rows: Rows) -> tuple[Metric, ...]:
    """Every registered metric."""
    return tuple(_metric(plan, name, rows) for name in plan.analysis.secondary)


def _metric(plan: Plan, name: str, rows: Rows) -> Metric:
    arms: dict[str, dict[str, float | None]] = {}
    for arm in plan.arms:
        values = [v for blocks in rows.values() for row in blocks if (v := row[arm.name].metric(name)) is not None]
        arms[arm.name] = {
            "median": number(statistics.median(values)) if values else None,
            "mean": number(statistics.fmean(values)) if values else None,
            "n": float(len(values)),
        }
    control = plan.control.name
    ratios = {arm.name: _ratio(plan, name, rows, arm.name, control) for arm in (*plan.treatments, *plan.replicates)}
    return Metric(name=name, unit=UNITS[name], arms=arms, ratios=ratios)


def _ratio(plan: Plan, name: str, rows: Rows, arm: str, control: str) -> Ratio:
    """Paired by task: geometric mean of the ratios (means over repetitions taken on the log scale)."""
    pairs = []
    for blocks in rows.values():
        both = [(row[arm].metric(name), row[control].metric(name)) for row in blocks]
        known = [(t, c) for t, c in both if t is not None and c is not None]
        if known:
            pairs.append(([t for t, _ in known], [c for _, c in known]))
    censored = sum(
        row[which].stop_reason is StopReason.TIMEOUT
        for blocks in rows.values()
        for row in blocks
        for which in (arm, control)
    )
    if len(pairs) < 2:
        return Ratio(tasks=len(pairs), geometric=None, low=None, high=None, median=None, of_means=None,
                     censored=censored, reason="fewer than two tasks with figures in both arms")  # fmt: skip
    found = stats.log_ratio([t for t, _ in pairs], [c for _, c in pairs], plan.analysis.level)
    return Ratio(
        tasks=len(pairs),
        geometric=number(found.ratio),
        low=number(found.low),
        high=number(found.high),
        median=number(found.median_ratio),
        of_means=number(found.ratio_of_means),
        censored=censored,
        reason=found.reason,
    )
