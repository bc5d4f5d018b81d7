"""Permutation of runs inside tasks: did the treatment change THESE tasks?

The sign-flip test and the t test speak about tasks like these; these two speak about the tasks that were run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from pairtrial.stats._convolve import SumDistribution
from pairtrial.stats._numbers import StatsError
from pairtrial.stats.noise import successes_per_task
from pairtrial.stats.results import HypothesisTest


@dataclass(frozen=True, slots=True)
class WithinTaskTest(HypothesisTest):
    """A permutation test with the mean of its statistic under the null."""

    null_mean: float | None = None


def cmh(
    treatment: Sequence[int],
    control: Sequence[int],
    repetitions: int,
    *,
    alternative: str = "two-sided",
    tail: str = "probability",
) -> WithinTaskTest:
    """Exact Cochran-Mantel-Haenszel test: treatment successes, run labels permuted inside each task.

    Parameters
    ----------
    treatment, control
        Successes per task, out of ``repetitions`` runs each.
    alternative
        ``"two-sided"``, ``"greater"`` (treatment better) or ``"less"``.
    tail
        How two-sided is ordered: ``"probability"`` (all sums no likelier than the observed one, as R
        ``mantelhaen.test(exact = TRUE)``) or ``"deviation"`` (all sums at least as far from their mean).

    Returns
    -------
    WithinTaskTest
        ``statistic`` is the sum of treatment successes. Given a task's total, its treatment successes are
        hypergeometric; the sum is their convolution. With one repetition this is exact McNemar.
    """
    t, c, runs = _arms(treatment, control, repetitions)
    if alternative not in ("two-sided", "greater", "less") or tail not in ("probability", "deviation"):
        raise StatsError("alternative must be two-sided, greater or less; tail must be probability or deviation")
    terms: Counter[tuple[int, ...]] = Counter()
    shift = 0
    for x, y in zip(t, c, strict=True):
        low, weights = _hypergeometric(x + y, runs)
        shift += low
        terms[weights] += 1
    observed, null_mean = sum(t), Fraction(sum(t) + sum(c), 2)
    reason = None if any(len(weights) > 1 for weights in terms) else "no task with mixed outcomes, no information"
    distribution = SumDistribution(terms)
    value = observed - shift
    if alternative == "greater":
        p = distribution.at_least(value)
    elif alternative == "less":
        p = distribution.at_most(value)
    elif tail == "probability":
        p = distribution.as_unlikely_as(value)
    else:
        p = distribution.as_far_as(int(2 * (null_mean - shift)), value)
    return _result(p, "exact CMH", alternative, observed, null_mean, reason)


def q_test(treatment: Sequence[int], control: Sequence[int], repetitions: int) -> WithinTaskTest:
    """Non-directional within-task test: ``Q = sum (T_i - C_i)**2`` against permuted run labels.

    Finds changes that go both ways and cancel in the net difference. One-sided by nature: p = P(Q >= observed).
    """
    t, c, runs = _arms(treatment, control, repetitions)
    terms: Counter[tuple[int, ...]] = Counter()
    observed, null_mean = 0, Fraction(0)
    for x, y in zip(t, c, strict=True):
        total = x + y
        low, weights = _hypergeometric(total, runs)
        squares: Counter[int] = Counter()
        for j, weight in enumerate(weights):
            squares[(2 * (low + j) - total) ** 2] += weight
        terms[tuple(squares.get(value, 0) for value in range(max(squares) + 1))] += 1
        observed += (x - y) ** 2
        null_mean += Fraction(sum(value * weight for value, weight in squares.items()), sum(weights))
    reason = None if any(len(weights) > 1 for weights in terms) else "no task with mixed outcomes, no information"
    return _result(SumDistribution(terms).at_least(observed), "within-task Q", "greater", observed, null_mean, reason)


def _arms(treatment: Sequence[int], control: Sequence[int], repetitions: int) -> tuple[list[int], list[int], int]:
    t, runs = successes_per_task(treatment, repetitions)
    c, _ = successes_per_task(control, repetitions)
    if len(t) != len(c):
        raise StatsError(f"{len(c)} control and {len(t)} treatment tasks: the arms must be paired")
    return t, c, runs


def _hypergeometric(total: int, runs: int) -> tuple[int, tuple[int, ...]]:
    """Treatment successes of a task with ``total`` successes in 2R runs: smallest value, and counts from there."""
    low, high = max(0, total - runs), min(total, runs)
    return low, tuple(math.comb(total, j) * math.comb(2 * runs - total, runs - j) for j in range(low, high + 1))


def _result(
    p: Fraction | float, method: str, alternative: str, observed: int, null_mean: Fraction, reason: str | None
) -> WithinTaskTest:
    exact = p if isinstance(p, Fraction) else None
    return WithinTaskTest(float(p), method, alternative, float(observed), exact, reason, float(null_mean))
