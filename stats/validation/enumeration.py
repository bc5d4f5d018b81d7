"""Exact coverage, size and power with one run per task and arm: every table is listed, nothing is simulated."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np
import scipy.stats
from rivals import wald

from pairtrial import stats

SETTINGS = tuple(
    (discordance, delta)
    for discordance in (0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
    for delta in (0.0, 0.05, 0.1, 0.2, 0.3)
    if delta <= discordance
)
"""25 pairs of discordance and true difference."""
EDGE = 1e-12
"""A true difference on an end point counts as covered."""
NEGLIGIBLE = 1e-13
"""Tables less likely than this are left out; what they add up to is far below the digits shown."""

Ends = tuple[float, float]
Method = Callable[[int, int, int], Ends]


def _ends(interval: stats.Interval | stats.BootstrapInterval | stats.MeanDifference, estimate: float) -> Ends:
    """End points; where a method gives none (all deltas equal) the estimate itself, as other packages print it."""
    if interval.low is None or interval.high is None:
        return estimate, estimate
    return interval.low, interval.high


def _deltas(wins: int, losses: int, n: int) -> list[int]:
    return [1] * wins + [-1] * losses + [0] * (n - wins - losses)


def _on_deltas(function: Callable[[Sequence[int]], stats.BootstrapInterval | stats.MeanDifference]) -> Method:
    return lambda wins, losses, n: _ends(function(_deltas(wins, losses, n)), (wins - losses) / n)


def _posterior(wins: int, losses: int, n: int) -> Ends:
    belief = stats.posterior(wins, losses, n)
    return belief.low, belief.high


METHODS: dict[str, Method] = {
    "wald": wald,
    "bca_strict": _on_deltas(lambda deltas: stats.bca(deltas, ties="strict")),
    "bca_mid": _on_deltas(stats.bca),
    "percentile": _on_deltas(stats.percentile),
    "paired_t": _on_deltas(stats.paired_t),
    "agresti_min": lambda wins, losses, n: _ends(stats.agresti_min(wins, losses, n), 0.0),
    "bonett_price": lambda wins, losses, n: _ends(stats.bonett_price(wins, losses, n), 0.0),
    "tango": lambda wins, losses, n: _ends(stats.tango(wins, losses, n), 0.0),
    "posterior": _posterior,
}


def tables(n: int, discordance: float, delta: float) -> Iterator[tuple[int, int, float]]:
    """(wins, losses, probability) of every table that is likely enough to matter."""
    share = (discordance + delta) / (2 * discordance)
    counts = np.arange(n + 1)
    for m, weight in enumerate(scipy.stats.binom.pmf(counts, n, discordance)):
        if weight < NEGLIGIBLE:
            continue
        for wins, part in enumerate(scipy.stats.binom.pmf(np.arange(m + 1), m, share)):
            if weight * part >= NEGLIGIBLE:
                yield wins, m - wins, float(weight * part)


def coverage(
    n: int, methods: Sequence[str], settings: Sequence[tuple[float, float]] = SETTINGS
) -> list[dict[str, float]]:
    """Coverage and mean width of each method at each setting: one row a setting and method."""
    rows = []
    intervals = {name: cache(METHODS[name]) for name in methods}
    for discordance, delta in settings:
        listed = list(tables(n, discordance, delta))
        for name in methods:
            hit = width = 0.0
            for wins, losses, weight in listed:
                low, high = intervals[name](wins, losses, n)
                hit += weight * (low - EDGE <= delta <= high + EDGE)
                width += weight * (high - low)
            rows.append({"n": n, "discordance": discordance, "delta": delta, "method": name,
                         "coverage": hit, "width": width})  # fmt: skip
    return rows  # type: ignore[return-value]


TESTS: dict[str, Callable[[int, int], bool]] = {
    "exact": lambda wins, losses: stats.mcnemar(wins, losses).rejects(0.05),
    "midp": lambda wins, losses: stats.mcnemar(wins, losses, "midp").rejects(0.05),
    "asymptotic": lambda wins, losses: stats.mcnemar(wins, losses, "asymptotic").rejects(0.05),
    "corrected": lambda wins, losses: stats.mcnemar(wins, losses, "corrected").rejects(0.05),
}


@cache
def _regions(test: str, n: int) -> list[list[int]]:
    """For every discordant count the numbers of wins at which the test rejects, read from the test itself."""
    rejects = TESTS[test]
    # the p-value depends on the smaller count only and falls as it shrinks, so scanning up may stop at the first miss
    regions: list[list[int]] = []
    for m in range(n + 1):
        few = []
        for k in range(m // 2 + 1):
            if not rejects(m - k, k):
                break
            few.append(k)
        regions.append(few)
    return regions


def rejection(test: str, n: int, discordance: float, delta: float) -> float:
    """Probability that a test rejects at 5%, two-sided: its size when delta is 0, its power otherwise."""
    share = (discordance + delta) / (2 * discordance)
    total = 0.0
    for m, weight in enumerate(scipy.stats.binom.pmf(np.arange(n + 1), n, discordance)):
        few = _regions(test, n)[m]
        if few and weight > NEGLIGIBLE:
            both = {*few, *(m - k for k in few)}
            total += weight * float(np.sum(scipy.stats.binom.pmf(sorted(both), m, share)))
    return total


def excludes_zero(method: str, n: int, discordance: float) -> float:
    """Probability under no effect that an interval excludes 0: its size if it were used as a test."""
    total = 0.0
    for wins, losses, weight in tables(n, discordance, 0.0):
        low, high = METHODS[method](wins, losses, n)
        total += weight * (low > EDGE or high < -EDGE)
    return total


def equivalence(n: int, discordance: float, delta: float, margin: float) -> float:
    """Probability that TOST claims equivalence: its size when delta is the margin, its power when delta is 0."""
    return math.fsum(
        weight
        for wins, losses, weight in tables(n, discordance, delta)
        if stats.tost(wins, losses, n, margin).equivalent
    )


def odd_one_out_size(n: int, mixed: float) -> float:
    """Size of the odd-one-out test at 5% when each task has mixed outcomes with probability ``mixed``."""
    total = 0.0
    for m, weight in enumerate(scipy.stats.binom.pmf(np.arange(n + 1), n, mixed)):
        if weight > NEGLIGIBLE:
            total += weight * float(scipy.stats.binom.sf(_fewest_odd(m) - 1, m, 1 / 3))
    return total


@cache
def _fewest_odd(mixed: int) -> int:
    """Smallest number of odd tasks at which the test rejects; more than all of them when none does."""
    low, high = 0, mixed + 1
    while low < high:
        middle = (low + high) // 2
        if stats.odd_one_out(middle, mixed).rejects(0.05):
            high = middle
        else:
            low = middle + 1
    return low


def flip_rate_coverage(n: int, rate: float) -> float:
    """Coverage of the Clopper-Pearson interval of the flip rate."""
    total = 0.0
    for flips, weight in enumerate(scipy.stats.binom.pmf(np.arange(n + 1), n, rate)):
        interval = stats.flip_rate(flips, n)
        if interval.low is not None and interval.high is not None:
            total += weight * (interval.low <= rate <= interval.high)
    return total
