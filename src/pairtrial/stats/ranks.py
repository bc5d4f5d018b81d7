"""Signed ranks: exact Wilcoxon with ties and zeros, and the Hodges-Lehmann estimate with its exact interval."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from pairtrial.stats._numbers import StatsError, normal_cdf, normal_quantile, probability
from pairtrial.stats.paired import ALTERNATIVES, sign_flip_p
from pairtrial.stats.results import HypothesisTest, Interval

EXACT_LIMIT = 1000
"""Above this many tasks the distribution of the rank sum is taken as normal."""
WALSH_LIMIT = 5000
"""Above this many tasks the Walsh averages (12.5 million) would not fit comfortably in memory."""


def wilcoxon(
    x: Sequence[float],
    y: Sequence[float] | None = None,
    *,
    zeros: str = "drop",
    method: str = "exact",
    alternative: str = "two-sided",
    correction: bool = True,
) -> HypothesisTest:
    """Wilcoxon signed-rank test of paired values, exact with ties and zeros too.

    Parameters
    ----------
    x, y
        Paired values, or differences alone in ``x``.
    zeros
        ``"drop"``: zero differences are left out before ranking. ``"pratt"``: they are ranked, then left out.
    method
        ``"exact"``: sign-flip distribution of the doubled mid-ranks, conditional on ties. ``"normal"``: normal
        approximation with the tie correction of the variance and, if ``correction``, one half subtracted.
    alternative
        ``"two-sided"``, ``"greater"`` (x larger) or ``"less"``.

    Returns
    -------
    HypothesisTest
        ``statistic`` is V, the sum of the ranks of positive differences. All differences zero: p = 1 with a reason.

    Notes
    -----
    ``scipy.stats.wilcoxon(method="exact")`` returns a wrong p without warning when there are ties or zeros; this
    equals R ``exactRankTests::wilcox.exact`` and coin's Pratt test. Differences are compared after rounding to twelve
    digits of the largest, so that 0.3 - 0.1 ties with 0.2.
    """
    if zeros not in ("drop", "pratt") or method not in ("exact", "normal") or alternative not in ALTERNATIVES:
        raise StatsError("zeros: drop or pratt; method: exact or normal; alternative: two-sided, greater or less")
    differences = paired_differences(x, y)
    name = f"wilcoxon {method}, zeros {'dropped' if zeros == 'drop' else 'ranked (Pratt)'}"
    ranked = [d for d in differences if d] if zeros == "drop" else differences
    ranks = [(rank, d) for rank, d in zip(_doubled_ranks(ranked), ranked, strict=True) if d]
    v2 = sum(rank for rank, d in ranks if d > 0)
    if not ranks:
        reason = "every difference is zero, no information" if differences else "no task"
        return HypothesisTest(1.0, name, alternative, 0.0, Fraction(1), reason)
    total2 = sum(rank for rank, _ in ranks)
    if method == "normal":
        return HypothesisTest(_normal_p(ranks, v2, total2, alternative, correction), name, alternative, v2 / 2)
    p = sign_flip_p(dict(Counter(rank for rank, _ in ranks)), 2 * v2 - total2, alternative)
    return HypothesisTest(float(p), name, alternative, v2 / 2, p if isinstance(p, Fraction) else None)


def _normal_p(ranks: Sequence[tuple[int, float]], v2: int, total2: int, alternative: str, correction: bool) -> float:
    # sum of squared ranks / 4 equals n(n+1)(2n+1)/24 - sum(t^3 - t)/48, and holds for Pratt's ranks too
    sd = math.sqrt(sum(rank * rank for rank, _ in ranks)) / 4.0
    distance = (2 * v2 - total2) / 4.0
    if alternative == "two-sided":
        shift = math.copysign(0.5, distance) if correction and distance else 0.0
        return min(1.0, 2.0 * normal_cdf(-abs(distance - shift) / sd))
    sign = 1.0 if alternative == "greater" else -1.0
    return normal_cdf(-(sign * distance - (0.5 if correction else 0.0)) / sd)


def paired_differences(x: Sequence[float], y: Sequence[float] | None) -> list[float]:
    """Differences x - y (or x itself), rounded to twelve digits of the largest one."""
    if y is not None and len(x) != len(y):
        raise StatsError(f"{len(x)} and {len(y)} values: both must have one value per task")
    raw = [float(a) for a in x] if y is None else [float(a) - float(b) for a, b in zip(x, y, strict=True)]
    if not all(math.isfinite(d) for d in raw):
        raise StatsError("a difference is not finite; leave the task out of both arms")
    largest = max((abs(d) for d in raw), default=0.0)
    if not largest:
        return raw
    digits = 12 - math.ceil(math.log10(largest))
    return [round(d, digits) for d in raw]


def _doubled_ranks(values: Sequence[float]) -> list[int]:
    """Twice the mid-ranks of |value|, so that they are integers."""
    order = sorted(range(len(values)), key=lambda i: abs(values[i]))
    ranks = [0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and abs(values[order[end + 1]]) == abs(values[order[start]]):
            end += 1
        for i in order[start : end + 1]:
            ranks[i] = start + end + 2
        start = end + 1
    return ranks


@dataclass(frozen=True, slots=True)
class HodgesLehmann(Interval):
    """Pseudo-median with an interval whose confidence is ``achieved``, at least ``level`` unless the reason says so."""

    achieved: float | None = None


def hodges_lehmann(x: Sequence[float], y: Sequence[float] | None = None, level: float = 0.95) -> HodgesLehmann:
    """Median of the Walsh averages of the differences, with the exact signed-rank interval.

    Parameters
    ----------
    x, y
        Paired values, or differences alone in ``x``. Use logs for ratios.

    Returns
    -------
    HodgesLehmann
        End points are Walsh averages, chosen from the exact distribution of the signed-rank sum without ties (with
        ties the interval is conservative). Five tasks reach at most 93.75%; then the widest interval is returned,
        ``achieved`` tells its confidence and the reason says that the level is out of reach.

    References
    ----------
    Hodges and Lehmann 1963; equals R ``wilcox.test(conf.int = TRUE, exact = TRUE)``.
    """
    import numpy as np

    probability(level, "level")
    differences = paired_differences(x, y)
    n = len(differences)
    if n == 0:
        return HodgesLehmann(None, None, None, level, "hodges-lehmann", "no task")
    if n == 1:
        return HodgesLehmann(differences[0], None, None, level, "hodges-lehmann", "one task has no spread")
    if n > WALSH_LIMIT:
        raise StatsError(f"{n} tasks: the Walsh averages of more than {WALSH_LIMIT} do not fit in memory")
    d = np.array(differences)
    rows, columns = np.triu_indices(n)
    walsh = np.sort((d[rows] + d[columns]) / 2.0)
    estimate = float(np.median(walsh))
    k, achieved = _rank_quantile(n, (1.0 - level) / 2.0)
    reason = None if achieved >= level - 1e-12 else f"{n} tasks reach at most {achieved:.4g} confidence"
    low, high = float(walsh[k - 1]), float(walsh[len(walsh) - k])
    return HodgesLehmann(estimate, low, high, level, "hodges-lehmann", reason, achieved)


def _rank_quantile(n: int, tail: float) -> tuple[int, float]:
    """Order statistic k >= 1 for the lower end, and the confidence 1 - 2 P(V < k) that it achieves."""
    if n > EXACT_LIMIT:
        mean, sd = n * (n + 1) / 4.0, math.sqrt(n * (n + 1) * (2 * n + 1) / 24.0)
        k = max(1, math.floor(mean + normal_quantile(tail) * sd))
        return k, 1.0 - 2.0 * normal_cdf((k - 0.5 - mean) / sd)
    cumulative = _rank_sum_cdf(n)
    k = next(v for v, share in enumerate(cumulative) if share >= tail - 1e-15)  # smallest V with P(V <= v) >= tail
    k = max(k, 1)
    return k, 1.0 - 2.0 * cumulative[k - 1]


@lru_cache(maxsize=16)
def _rank_sum_cdf(n: int) -> list[float]:
    """P(V <= v) of the signed-rank sum of n untied differences, up to its median."""
    import numpy as np

    half = n * (n + 1) // 4 + 1
    weights = np.zeros(half + 1)
    weights[0] = 1.0
    for rank in range(1, n + 1):
        shifted = np.zeros_like(weights)
        if rank <= half:
            shifted[rank:] = weights[: half + 1 - rank]
        weights = (weights + shifted) / 2.0
    out: list[float] = weights.cumsum().tolist()
    return out
