"""The exact bootstrap of a mean over tasks: no resampling, no seed.

A mean of n draws from a few integers has a distribution on a lattice, the n-fold convolution of one draw. It is
computed by repeated squaring, so the interval is the limit of infinitely many resamples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pairtrial.stats._numbers import (
    MAX_LATTICE_POINTS,
    StatsError,
    lattice_counts,
    normal_cdf,
    normal_quantile,
    probability,
)
from pairtrial.stats.results import Result

Ties = Literal["mid", "strict"]
DEGENERATE = "degenerate: all task deltas are equal"

_GUARD = 1e-12
"""A lattice point counts as reached when its cumulative probability misses the target by less than this."""
_NEGLIGIBLE = 1e-60
"""Tail weights below this are cut off: they are far below the rounding of a cumulative probability."""


@dataclass(frozen=True, slots=True)
class BootstrapInterval(Result):
    """A bootstrap interval with what it was computed from.

    ``low_exact`` and ``high_exact`` are the end points as fractions, ``z0`` and ``acceleration`` the two BCa
    corrections, ``alpha_low`` and ``alpha_high`` the probabilities whose quantiles the end points are, ``p_less``
    and ``p_equal`` the bootstrap probabilities below and at the estimate.
    """

    estimate: float | None
    low: float | None
    high: float | None
    level: float
    method: str
    reason: str | None = None
    low_exact: Fraction | None = None
    high_exact: Fraction | None = None
    se: float | None = None
    z0: float | None = None
    acceleration: float | None = None
    alpha_low: float | None = None
    alpha_high: float | None = None
    p_less: float | None = None
    p_equal: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Lattice:
    """A distribution on equally spaced points: point i is ``(first + i) * step`` with probability ``weights[i]``."""

    first: int
    step: Fraction
    weights: NDArray[np.float64]

    def at_index(self, index: int) -> Fraction:
        """Value of one point."""
        return (self.first + index) * self.step

    def cumulative(self) -> NDArray[np.float64]:
        """Probability up to and including each point."""
        out: NDArray[np.float64] = self.weights.cumsum()
        return out

    def quantile(self, alpha: float) -> Fraction:
        """Smallest point whose cumulative probability is at least alpha (up to 1e-12)."""
        return self.at_index(quantile_index(self.cumulative(), alpha))

    def mean(self) -> float:
        """Expected value."""
        return float((self.first + np.arange(len(self.weights))) @ self.weights) * float(self.step)

    def sd(self) -> float:
        """Standard deviation."""
        points = (self.first + np.arange(len(self.weights))) * float(self.step)
        centred = points - points @ self.weights
        return math.sqrt(float((centred * centred) @ self.weights))


def quantile_index(cumulative: NDArray[np.float64], alpha: float) -> int:
    """Index of the smallest point with cumulative probability >= alpha, with the guard for rounding."""
    return min(int(cumulative.searchsorted(alpha - _GUARD)), len(cumulative) - 1)


def one_draw(counts: Mapping[int, int]) -> tuple[int, NDArray[np.float64]]:
    """Distribution of one task drawn from ``counts``: its first point and the weights from there on."""
    first, last = min(counts), max(counts)
    total = sum(counts.values())
    if last - first >= MAX_LATTICE_POINTS:
        raise StatsError("the values span too many lattice points; pass integers on a coarser scale")
    weights = np.zeros(last - first + 1)
    for value, times in counts.items():
        weights[value - first] = times / total
    return first, weights


def convolve_power(first: int, weights: NDArray[np.float64], n: int) -> tuple[int, NDArray[np.float64]]:
    """Distribution of the sum of n independent draws, by repeated squaring with negligible tails cut off."""
    out_first, out = 0, None
    while True:
        if n & 1:
            if out is None:
                out_first, out = first, weights
            else:
                out_first, out = _trim(out_first + first, np.convolve(out, weights))
        n >>= 1
        if not n:
            break
        first, weights = _trim(2 * first, np.convolve(weights, weights))
    if out is None:
        raise StatsError("a sum needs at least one draw")
    return out_first, out


def _trim(first: int, weights: NDArray[np.float64]) -> tuple[int, NDArray[np.float64]]:
    if len(weights) < 256:
        return first, weights
    kept = (weights > _NEGLIGIBLE).nonzero()[0]
    low, high = int(kept[0]), int(kept[-1]) + 1
    return first + low, weights[low:high]


def bootstrap_distribution(deltas: Iterable[object]) -> Lattice:
    """Exact bootstrap distribution of the mean of ``deltas`` (tasks resampled with replacement).

    Parameters
    ----------
    deltas
        One value per task: ints, Fractions, or floats on a common lattice. At least one.
    """
    counts, step = lattice_counts(deltas)
    n = sum(counts.values())
    if n == 0:
        raise StatsError("there is no task to resample")
    first, weights = convolve_power(*one_draw(counts), n)
    return Lattice(first, step / n, weights)


def bca(
    deltas: Iterable[object], level: float = 0.95, ties: Ties = "mid", *, acceleration: float | None = None
) -> BootstrapInterval:
    """Bias-corrected and accelerated bootstrap interval for the mean delta, without resampling.

    Parameters
    ----------
    deltas
        One value per task: ints, Fractions, or floats on a common lattice (task means), which are read as fractions.
    level
        Confidence.
    ties
        ``"mid"`` (default) counts replicates equal to the estimate half, as scipy does; swapping the arms then
        mirrors the interval. ``"strict"`` counts only smaller ones, as Efron's definition and R ``boot.ci`` do;
        on a lattice that is a spurious bias correction, kept to reproduce earlier reports.
    acceleration
        Replaces the jackknife acceleration; 0 gives the BC interval.

    Returns
    -------
    BootstrapInterval
        End points are lattice points: the smallest value whose cumulative probability reaches
        ``Phi(z0 + (z0 + z)/(1 - a (z0 + z)))``. When all deltas are equal there is no interval (the reason says
        so); with one run per task use :func:`tango`, which stays defined.

    References
    ----------
    Efron 1987, JASA 82:171-185; ``a = sum u**3 / (6 (sum u**2)**1.5)`` with jackknife influences u.
    """
    counts, step = lattice_counts(deltas)
    n = sum(counts.values())
    total = sum(value * times for value, times in counts.items())
    if acceleration is None:
        acceleration = mean_acceleration(counts, n, total)
    method = f"bca {ties}" if ties in ("mid", "strict") else ""
    if not method:
        raise StatsError(f"ties must be 'mid' or 'strict', not {ties!r}")
    return _mean_interval(counts, step, n, total, level, method, acceleration)


def percentile(deltas: Iterable[object], level: float = 0.95) -> BootstrapInterval:
    """Exact percentile interval for the mean delta; arguments and degenerate case as :func:`bca`."""
    counts, step = lattice_counts(deltas)
    n = sum(counts.values())
    total = sum(value * times for value, times in counts.items())
    return _mean_interval(counts, step, n, total, level, "percentile", None)


def mean_acceleration(counts: Mapping[int, int], n: int, total: int) -> float:
    """Jackknife acceleration of a mean from integer counts; 0 when all values are equal."""
    second = third = 0
    for value, times in counts.items():
        centred = n * value - total
        square = centred * centred
        second += times * square
        third += times * square * centred
    return third / (6.0 * second**1.5) if second else 0.0


def _mean_interval(
    counts: Mapping[int, int],
    step: Fraction,
    n: int,
    total: int,
    level: float,
    method: str,
    acceleration: float | None,
) -> BootstrapInterval:
    probability(level, "level")
    if n == 0:
        return BootstrapInterval(None, None, None, level, method, "no task")
    estimate = float(total * step / n)
    if len(counts) == 1:
        return BootstrapInterval(estimate, None, None, level, method, DEGENERATE, se=0.0)
    first, weights = convolve_power(*one_draw(counts), n)
    second = sum(times * value * value for value, times in counts.items())
    se = math.sqrt(n * second - total * total) / n**1.5 * float(step)
    return lattice_interval(Lattice(first, step / n, weights), total, level, method, acceleration, estimate, se)


def lattice_interval(
    lattice: Lattice, observed: int, level: float, method: str, acceleration: float | None, estimate: float, se: float
) -> BootstrapInterval:
    """Interval from a lattice distribution; ``observed`` is the estimate as a lattice integer."""
    cumulative = lattice.weights.cumsum()
    index = observed - lattice.first
    equal = float(lattice.weights[index])
    less = float(cumulative[index - 1]) if index else 0.0
    z0: float | None = None
    alphas: tuple[float, float] | None = ((1.0 - level) / 2.0, (1.0 + level) / 2.0)
    if acceleration is not None:
        z0, alphas = bca_alphas(less + (equal / 2.0 if method.endswith("mid") else 0.0), acceleration, level)
    if alphas is None:
        reason = "BCa undefined: the bias correction or the acceleration is too large"
        return BootstrapInterval(
            estimate, None, None, level, method, reason, None, None, se, z0, acceleration, None, None, less, equal
        )
    low = lattice.at_index(quantile_index(cumulative, alphas[0]))
    high = lattice.at_index(quantile_index(cumulative, alphas[1]))
    return BootstrapInterval(
        estimate, float(low), float(high), level, method, None, low, high, se, z0, acceleration, *alphas, less, equal
    )


def bca_alphas(below: float, acceleration: float, level: float) -> tuple[float | None, tuple[float, float] | None]:
    """BCa bias correction and the two probabilities ``Phi(z0 + (z0 + z)/(1 - a (z0 + z)))``; None if undefined.

    ``below`` is the share of bootstrap replicates below the estimate.
    """
    if not 0.0 < below < 1.0:
        return None, None
    z0 = normal_quantile(below)
    alphas = []
    for z in (normal_quantile((1.0 - level) / 2.0), normal_quantile((1.0 + level) / 2.0)):
        denominator = 1.0 - acceleration * (z0 + z)
        if denominator <= 0.0:
            return z0, None
        alphas.append(normal_cdf(z0 + (z0 + z) / denominator))
    return z0, (alphas[0], alphas[1])
