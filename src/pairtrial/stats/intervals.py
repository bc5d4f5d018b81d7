"""Intervals for a paired difference of two success rates, and for one proportion."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real

from pairtrial.stats._numbers import StatsError, count, exact, probability, root, table, two_sided_z
from pairtrial.stats.results import Interval, Result

_EDGE = 1e-12
"""How close to -1 and 1 the search for a root starts."""


def score_statistic(wins: int, losses: int, n: int, delta: float) -> float:
    """Tango's score statistic for the hypothesis that the true difference is ``delta``, -1 < delta < 1.

    ``(c - b - n d) / sqrt(n (2q + d (1 - d)))`` with q the maximum-likelihood loss probability under d. With no
    discordant task and d = 0 numerator and variance both vanish and the statistic is 0.
    """
    c, b = wins, losses
    linear = -b - c + (2 * n - c + b) * delta
    root_term = max(linear * linear + 8 * n * b * delta * (1 - delta), 0.0)  # rounding can go below 0
    q = (math.sqrt(root_term) - linear) / (4 * n)
    variance = n * (2 * q + delta * (1 - delta))
    distance = c - b - n * delta
    if variance <= 0.0:
        return 0.0 if distance == 0 else math.copysign(math.inf, distance)
    return distance / math.sqrt(variance)


def tango(wins: int, losses: int, n: int, level: float = 0.95) -> Interval:
    """Tango's score interval for delta = (wins - losses)/n, the one that we print first.

    Parameters
    ----------
    wins, losses, n
        Treatment-only and control-only tasks, and all tasks.
    level
        Confidence, 0.95 by default.

    Returns
    -------
    Interval
        The two differences whose score statistic is +-z. Never of zero width: with no discordant task it is
        ``+-z**2/(n + z**2)``. Ends at -1 when every task is a loss and at 1 when every task is a win.

    References
    ----------
    Tango 1998, Statistics in Medicine 17:891-908.
    """
    c, b, total = table(wins, losses, n)
    z = two_sided_z(level)
    delta = (c - b) / total
    if b + c == 0:
        half = z * z / (total + z * z)
        return Interval(0.0, -half, half, level, "tango")
    low = -1.0 if b == total else root(lambda d: score_statistic(c, b, total, d) - z, -1.0 + _EDGE, delta)
    high = 1.0 if c == total else root(lambda d: score_statistic(c, b, total, d) + z, delta, 1.0 - _EDGE)
    return Interval(delta, low, high, level, "tango")


def bonett_price(wins: int, losses: int, n: int, level: float = 0.95) -> Interval:
    """Bonett and Price's adjusted Wald interval: one success added to each discordant cell.

    With ``p1 = (c+1)/(n+2)`` and ``p2 = (b+1)/(n+2)``: ``p1 - p2 +- z sqrt((p1 + p2 - (p1-p2)**2)/(n+2))``,
    clipped to [-1, 1]. Bonett and Price 2012, British Journal of Mathematical and Statistical Psychology 65:479.
    """
    low, high = _adjusted_wald(wins, losses, n, level, 1.0)
    return Interval((wins - losses) / n, max(-1.0, low), min(1.0, high), level, "bonett-price")


def agresti_min(wins: int, losses: int, n: int, level: float = 0.95) -> Interval:
    """Agresti and Min's adjusted Wald interval: one half added to each of the four cells.

    As :func:`bonett_price` with 1/2 in place of 1, and as published not clipped: with few tasks an end can lie
    outside [-1, 1]. For comparison only. Agresti and Min 2005, Statistics in Medicine 24:729-740.
    """
    low, high = _adjusted_wald(wins, losses, n, level, 0.5)
    return Interval((wins - losses) / n, low, high, level, "agresti-min")


def _adjusted_wald(wins: int, losses: int, n: int, level: float, added: float) -> tuple[float, float]:
    c, b, total = table(wins, losses, n)
    z = two_sided_z(level)
    p_win, p_loss = (c + added) / (total + 2), (b + added) / (total + 2)
    centre = p_win - p_loss
    half = z * math.sqrt((p_win + p_loss - centre * centre) / (total + 2))
    return centre - half, centre + half


def newcombe(wins: int, losses: int, both: int, neither: int, level: float = 0.95) -> Interval:
    """Newcombe's method 10: Wilson limits of both arms, joined with a corrected correlation.

    Parameters
    ----------
    wins, losses, both, neither
        The four cells. Unlike Tango's, this interval depends on how the concordant tasks split.

    References
    ----------
    Newcombe 1998, Statistics in Medicine 17:2635-2650, method 10. The correlation is 0 when a margin is 0.
    """
    c, b = count(wins, "wins"), count(losses, "losses")
    a, d = count(both, "both"), count(neither, "neither")
    n = a + b + c + d
    table(c, b, n)
    z = two_sided_z(level)
    low_t, high_t = _wilson(a + c, n, z)
    low_c, high_c = _wilson(a + b, n, z)
    margins = (a + b) * (c + d) * (a + c) * (b + d)
    excess = a * d - b * c
    corrected = max(excess - n / 2, 0.0) if excess >= 0 else float(excess)
    phi = corrected / math.sqrt(margins) if margins else 0.0
    p_t, p_c = (a + c) / n, (a + b) / n

    def reach(one: float, other: float) -> float:
        return math.sqrt(max(one * one - 2 * phi * one * other + other * other, 0.0))

    delta = (c - b) / n
    low = delta - reach(p_t - low_t, high_c - p_c)
    high = delta + reach(high_t - p_t, p_c - low_c)
    return Interval(delta, low, high, level, "newcombe")


def _wilson(successes: int, n: int, z: float) -> tuple[float, float]:
    centre = (2 * successes + z * z) / (2 * (n + z * z))
    half = z * math.sqrt(z * z + 4 * successes * (n - successes) / n) / (2 * (n + z * z))
    return centre - half, centre + half


def clopper_pearson(successes: int, n: int, level: float = 0.95) -> Interval:
    """Exact interval for one proportion by inverting two binomial tests.

    Ends at 0 when nothing succeeded and at 1 when everything did; with n = 0 there is no interval and the reason
    says so. Clopper and Pearson 1934, Biometrika 26:404-413; equals R ``binom.test``.
    """
    x, total = count(successes, "successes"), count(n, "n")
    probability(level, "level")
    if x > total:
        raise StatsError(f"successes = {x} exceeds n = {total}")
    if total == 0:
        return Interval(None, None, None, level, "clopper-pearson", "no observation")
    from scipy.special import betaincinv

    tail = (1.0 - level) / 2.0
    low = 0.0 if x == 0 else float(betaincinv(x, total - x + 1, tail))
    high = 1.0 if x == total else float(betaincinv(x + 1, total - x, 1.0 - tail))
    return Interval(x / total, low, high, level, "clopper-pearson")


@dataclass(frozen=True, slots=True)
class MeanDifference(Result):
    """A mean over tasks with its t interval and test; ``se`` is the paired standard error."""

    estimate: float | None
    se: float | None
    low: float | None
    high: float | None
    p: float | None
    t: float | None
    df: int | None
    level: float
    method: str
    reason: str | None = None


def paired_t(deltas: Iterable[object], level: float = 0.95) -> MeanDifference:
    """Paired t on task means: ``mean +- t_{n-1} sd/sqrt(n)``.

    Parameters
    ----------
    deltas
        One difference per task (mean over repetitions, treatment minus control). Any finite numbers.

    Returns
    -------
    MeanDifference
        Without a test when there are fewer than two tasks or all differences are equal (zero variance); the
        reason says which. Repetitions shorten the interval only through the spread of the task means.

    References
    ----------
    Student 1908; the standard error is Miller's paired one (arXiv:2411.00640) with t in place of the normal.
    """
    values = _floats(deltas)
    probability(level, "level")
    n = len(values)
    if n == 0:
        return MeanDifference(None, None, None, None, None, None, None, level, "paired t", "no task")
    mean = math.fsum(values) / n
    if n == 1:
        return MeanDifference(mean, None, None, None, None, None, 0, level, "paired t", "one task has no spread")
    # nearly equal floats, such as 1/3 computed in two ways, must not look like a tiny variance
    if max(values) - min(values) <= 1e-12 * max(1.0, *map(abs, values)):
        reason = "degenerate: all task deltas are equal"
        return MeanDifference(mean, 0.0, None, None, None, None, n - 1, level, "paired t", reason)
    se = math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (n - 1) / n)
    return t_result(mean, se, n - 1, level, "paired t")


def t_result(mean: float, se: float, df: int, level: float, method: str, reason: str | None = None) -> MeanDifference:
    """Interval and two-sided p of ``mean/se`` on the t distribution."""
    from scipy.special import stdtr, stdtrit

    t = mean / se
    half = float(stdtrit(df, (1.0 + level) / 2.0)) * se
    p = 2.0 * float(stdtr(df, -abs(t)))
    return MeanDifference(mean, se, mean - half, mean + half, p, t, df, level, method, reason)


def _floats(values: Iterable[object]) -> list[float]:
    out = []
    for value in values:
        number = float(value) if isinstance(value, Real) else float(exact(value))
        if not math.isfinite(number):
            raise StatsError(f"{value!r} is not a finite number")
        out.append(number)
    return out
