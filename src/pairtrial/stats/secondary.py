"""Secondary measures: tokens, time and cost as paired ratios, with medians beside means.

Every function takes one value per task. Values of several repetitions are averaged on the log scale by
:func:`log_ratio` when a task is given as a sequence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from pairtrial.stats._numbers import StatsError, count, normal_quantile, probability
from pairtrial.stats.intervals import paired_t
from pairtrial.stats.paired import mcnemar
from pairtrial.stats.results import HypothesisTest, Result

Value = float | Sequence[float]


@dataclass(frozen=True, slots=True)
class LogRatio(Result):
    """Geometric mean ratio treatment/control with its t interval, and what stands beside it."""

    level: float
    n: int
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    median_ratio: float | None = None
    ratio_of_means: float | None = None
    ratio_of_medians: float | None = None
    mean_treatment: float | None = None
    mean_control: float | None = None
    median_treatment: float | None = None
    median_control: float | None = None
    mean_difference: float | None = None
    median_difference: float | None = None
    reason: str | None = None


def log_ratio(treatment: Sequence[Value], control: Sequence[Value], level: float = 0.95) -> LogRatio:
    """Geometric mean ratio with a t interval on log ratios.

    Parameters
    ----------
    treatment, control
        One positive number per task, or a sequence of repetitions, whose logs are averaged first.

    Returns
    -------
    LogRatio
        With a zero (a cached cost) the log is undefined: ratio and interval are None, the reason points to
        :func:`hodges_lehmann` on differences, and the plain means and medians stay. ``ratio_of_means`` can be owned
        by one long task, which is why medians stand beside it.
    """
    n = _paired(treatment, control)
    probability(level, "level")
    t = [_repetitions(value) for value in treatment]
    c = [_repetitions(value) for value in control]
    if n == 0:
        return LogRatio(level, 0, reason="no task")
    t_mean, c_mean = ([math.fsum(runs) / len(runs) for runs in arm] for arm in (t, c))
    differences = [x - y for x, y in zip(t_mean, c_mean, strict=True)]
    mean_t, mean_c = math.fsum(t_mean) / n, math.fsum(c_mean) / n
    median_t, median_c = float(median(t_mean)), float(median(c_mean))
    plain = LogRatio(
        level,
        n,
        ratio_of_means=mean_t / mean_c if mean_c else None,
        ratio_of_medians=median_t / median_c if median_c else None,
        mean_treatment=mean_t,
        mean_control=mean_c,
        median_treatment=median_t,
        median_control=median_c,
        mean_difference=math.fsum(differences) / n,
        median_difference=float(median(differences)),
    )
    if min(min(runs) for runs in (*t, *c)) <= 0:
        reason = "a value is zero or negative, so its log is undefined; use hodges_lehmann on the differences"
        return replace(plain, reason=reason)
    logs = [_mean_log(x) - _mean_log(y) for x, y in zip(t, c, strict=True)]
    result = paired_t(logs, level)
    return replace(
        plain,
        ratio=math.exp(math.fsum(logs) / n),
        low=None if result.low is None else math.exp(result.low),
        high=None if result.high is None else math.exp(result.high),
        p=result.p,
        median_ratio=float(median(math.exp(x) for x in logs)),
        reason=result.reason,
    )


def _repetitions(value: Value) -> list[float]:
    runs = [float(x) for x in value] if isinstance(value, Sequence) else [float(value)]
    if not runs or not all(math.isfinite(x) for x in runs):
        raise StatsError(f"{value!r} is not a finite measurement; leave the task out of both arms")
    return runs


def _mean_log(runs: Sequence[float]) -> float:
    return math.fsum(math.log(x) for x in runs) / len(runs)


@dataclass(frozen=True, slots=True)
class RestrictedMean(Result):
    """Paired comparison of min(time, limit), and a sign test that calls both-censored a tie."""

    limit: float
    mean_treatment: float | None
    mean_control: float | None
    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    censored_treatment: int
    censored_control: int
    both_censored: int
    shorter: int
    longer: int
    sign_test: HypothesisTest
    level: float
    reason: str | None = None


def restricted_mean(
    treatment: Sequence[float | None], control: Sequence[float | None], limit: float, level: float = 0.95
) -> RestrictedMean:
    """Compare times that were cut off at ``limit``.

    Parameters
    ----------
    treatment, control
        Time per task; a value of at least ``limit``, or None, was censored there.

    Returns
    -------
    RestrictedMean
        Mean difference of min(time, limit) with a paired t interval (treatment minus control), and how many were
        censored. Censored times are never averaged as if they had finished.
    """
    n = _paired(treatment, control)
    if not (math.isfinite(limit) and limit > 0):
        raise StatsError(f"limit must be a positive time, not {limit!r}")
    t, c = ([limit if x is None else min(float(x), limit) for x in arm] for arm in (treatment, control))
    differences = [x - y for x, y in zip(t, c, strict=True)]
    shorter, longer = sum(d < 0 for d in differences), sum(d > 0 for d in differences)
    result = paired_t(differences, level)
    mean_t, mean_c = (math.fsum(arm) / n if n else None for arm in (t, c))
    return RestrictedMean(
        limit,
        mean_t,
        mean_c,
        result.estimate,
        result.low,
        result.high,
        result.p,
        sum(x == limit for x in t),
        sum(x == limit for x in c),
        sum(x == y == limit for x, y in zip(t, c, strict=True)),
        shorter,
        longer,
        mcnemar(shorter, longer),
        level,
        result.reason,
    )


@dataclass(frozen=True, slots=True)
class CostPerSolved(Result):
    """Total cost over number of solved tasks in one arm; None, not infinity, when nothing was solved."""

    value: float | None
    se: float | None
    se_jackknife: float | None
    total_cost: float
    solved: float
    n: int
    reason: str | None = None


def cost_per_solved(cost: Sequence[float], solved: Sequence[float]) -> CostPerSolved:
    """Cost per solved task of one arm, over ALL tasks (never among solved ones only, which selects easy tasks).

    Parameters
    ----------
    cost, solved
        One value per task; with repetitions, sums over them.

    Notes
    -----
    ``R = sum c/sum s``; SE by linearisation, sd of ``(c_i - R s_i)/mean(s)`` over sqrt(n). Cochran 1977, ch. 6.
    """
    c, s = _costs(cost, solved)
    n, total_c, total_s = len(c), math.fsum(c), math.fsum(s)
    if not total_s:
        return CostPerSolved(None, None, None, total_c, total_s, n, "no task solved")
    spread = _linearised(c, s)
    return CostPerSolved(
        total_c / total_s, _se(spread), _jackknife([(c, s)], lambda values: values[0]), total_c, total_s, n
    )


@dataclass(frozen=True, slots=True)
class CostComparison(Result):
    """Cost per solved task, treatment against control, with standard errors that use the pairing."""

    level: float
    treatment: float | None = None
    control: float | None = None
    difference: float | None = None
    se_difference: float | None = None
    se_difference_jackknife: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    log_ratio: float | None = None
    se_log_ratio: float | None = None
    se_log_ratio_jackknife: float | None = None
    reason: str | None = None


def compare_cost_per_solved(
    cost_treatment: Sequence[float],
    solved_treatment: Sequence[float],
    cost_control: Sequence[float],
    solved_control: Sequence[float],
    level: float = 0.95,
) -> CostComparison:
    """Compare cost per solved task; the interval is normal on the log ratio, tasks are the units.

    ``reason`` says so when an arm solved nothing, or when leaving out one task would leave an arm without a solved
    task (then the jackknife errors are None).
    """
    t, c = _costs(cost_treatment, solved_treatment), _costs(cost_control, solved_control)
    _paired(t[0], c[0])
    probability(level, "level")
    r_t, r_c = _ratio(t), _ratio(c)
    if r_t is None or r_c is None:
        which = "treatment" if r_t is None else "control"
        return CostComparison(level, r_t, r_c, reason=f"no task solved by the {which} arm")
    z_t, z_c = _linearised(*t), _linearised(*c)
    result = CostComparison(
        level,
        r_t,
        r_c,
        r_t - r_c,
        _se([x - y for x, y in zip(z_t, z_c, strict=True)]),
        _jackknife([t, c], lambda values: values[0] - values[1]),
    )
    if not r_t or not r_c:
        return replace(result, reason="an arm cost nothing, so the ratio of costs is undefined")
    log, se_log = math.log(r_t / r_c), _se([x / r_t - y / r_c for x, y in zip(z_t, z_c, strict=True)])
    if se_log is None:
        return replace(result, ratio=r_t / r_c, log_ratio=log, reason="one task has no spread")
    half = normal_quantile((1.0 + level) / 2.0) * se_log
    jackknife = _jackknife([t, c], lambda values: math.log(values[0] / values[1]) if all(values) else None)
    return replace(
        result,
        ratio=r_t / r_c,
        low=math.exp(log - half),
        high=math.exp(log + half),
        log_ratio=log,
        se_log_ratio=se_log,
        se_log_ratio_jackknife=jackknife,
        reason=None if jackknife is not None else "one task holds all of an arm's successes or cost: no jackknife",
    )


Arm = tuple[list[float], list[float]]


def _ratio(arm: Arm) -> float | None:
    solved = math.fsum(arm[1])
    return math.fsum(arm[0]) / solved if solved else None


def _linearised(cost: Sequence[float], solved: Sequence[float]) -> list[float]:
    total = math.fsum(solved)
    ratio = math.fsum(cost) / total
    return [(c - ratio * s) * len(solved) / total for c, s in zip(cost, solved, strict=True)]


def _se(values: Sequence[float]) -> float | None:
    n = len(values)
    if n < 2:
        return None
    mean = math.fsum(values) / n
    return math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (n - 1) / n)


def _jackknife(arms: Sequence[Arm], statistic: Callable[[list[float]], float | None]) -> float | None:
    """Delete-one-task standard error of a function of cost per solved; None when some deletion leaves it undefined."""
    n = len(arms[0][0])
    values = []
    for i in range(n):
        ratios = [_ratio((cost[:i] + cost[i + 1 :], solved[:i] + solved[i + 1 :])) for cost, solved in arms]
        defined = [ratio for ratio in ratios if ratio is not None]
        value = statistic(defined) if len(defined) == len(arms) else None
        if value is None:
            return None
        values.append(value)
    se = _se(values)
    return None if se is None else (n - 1) * se


def _costs(cost: Sequence[float], solved: Sequence[float]) -> Arm:
    _paired(cost, solved)
    c, s = [float(x) for x in cost], [float(x) for x in solved]
    if not all(math.isfinite(x) and x >= 0 for x in (*c, *s)):
        raise StatsError("costs and solved counts must be finite and not negative")
    return c, s


def _paired(first: Sequence[object], second: Sequence[object]) -> int:
    if len(first) != len(second):
        raise StatsError(f"{len(first)} and {len(second)} values: both must have one value per task")
    return count(len(first), "n")
