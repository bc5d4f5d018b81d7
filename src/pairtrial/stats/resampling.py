"""Exact bootstrap of designs beyond one run per task: repetitions, suites, repositories; and bootstrap by replicates."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pairtrial.stats._numbers import StatsError, count, exact, lattice_counts, probability
from pairtrial.stats.bootstrap import (
    DEGENERATE,
    BootstrapInterval,
    Lattice,
    Ties,
    bca_alphas,
    convolve_power,
    lattice_interval,
    mean_acceleration,
    one_draw,
    quantile_index,
)
from pairtrial.stats.intervals import MeanDifference, t_result
from pairtrial.stats.noise import successes_per_task

MAX_CLUSTERS = 40
"""More repositories than this are not enumerated; use :func:`clustered_t`."""
MAX_CLUSTER_STATES = 4_000_000
"""Above this many (sum, size) states the enumeration would take minutes."""
FEW_CLUSTERS = 10
"""Below this many repositories clustered figures are unreliable."""


def two_level(
    treatment: Sequence[int],
    control: Sequence[int],
    repetitions: int,
    level: float = 0.95,
    ties: Ties | None = "mid",
) -> BootstrapInterval:
    """Tasks resampled, then repetitions inside each task and arm: what a rerun of the same tasks would show.

    Parameters
    ----------
    treatment, control
        Successes per task, out of ``repetitions`` runs.
    ties
        ``"mid"`` or ``"strict"`` for BCa (see :func:`bca`), None for the percentile interval.

    Notes
    -----
    Wider than needed for inference on tasks, because the spread of the task differences already contains the
    replicate noise (coverage .961-.975 at 95%). Use :func:`paired_t` for that.
    """
    c, runs = successes_per_task(control, repetitions)
    t, _ = successes_per_task(treatment, repetitions)
    n = len(c)
    if n != len(t):
        raise StatsError(f"{n} control and {len(t)} treatment tasks: the arms must be paired")
    method, needs_bca = _method("two-level", ties)
    probability(level, "level")
    if n == 0 or runs == 0:
        return BootstrapInterval(None, None, None, level, method, "no task" if n == 0 else "no repetition")
    draw = np.zeros(2 * runs + 1)
    for (x, y), times in sorted(Counter(zip(c, t, strict=True)).items()):
        draw += times * np.convolve(_binomial(runs, y), _binomial(runs, runs - x))  # y* - x* + runs
    total = sum(t) - sum(c)
    first, weights = convolve_power(-runs, draw / n, n)
    lattice = Lattice(first, Fraction(1, runs * n), weights)
    estimate, se = total / (runs * n), lattice.sd()
    counts = Counter(y - x for x, y in zip(c, t, strict=True))
    if len(weights.nonzero()[0]) == 1 or not se:
        return BootstrapInterval(estimate, None, None, level, method, "degenerate: no run ever differs", se=0.0)
    acceleration = mean_acceleration(counts, n, total) if needs_bca else None
    return lattice_interval(lattice, total, level, method, acceleration, estimate, se)


def _binomial(runs: int, successes: int) -> NDArray[np.float64]:
    """Successes of ``runs`` draws with replacement from the observed ones."""
    p = successes / runs
    return np.array([math.comb(runs, j) * p**j * (1 - p) ** (runs - j) for j in range(runs + 1)])


def stratified(strata: Sequence[Iterable[object]], level: float = 0.95, ties: Ties | None = "mid") -> BootstrapInterval:
    """Tasks resampled inside each stratum (suite, language), sizes kept; the estimate is the mean over all tasks.

    Parameters
    ----------
    strata
        One list of task deltas per stratum.
    ties
        ``"mid"`` or ``"strict"`` for BCa, None for the percentile interval. The acceleration uses influences centred
        inside each stratum.
    """
    method, needs_bca = _method("stratified", ties)
    probability(level, "level")
    groups = [list(group) for group in strata]
    _, step = lattice_counts(value for group in groups for value in group)
    scale = step.denominator
    counted = [Counter(int(exact(value) * scale) for value in group) for group in groups if group]
    n = sum(sum(counts.values()) for counts in counted)
    if n == 0:
        return BootstrapInterval(None, None, None, level, method, "no task")
    first, weights = 0, np.ones(1)
    second = third = variance = Fraction(0)
    for counts in sorted(counted, key=lambda counts: sorted(counts.items())):  # rounding independent of the order
        size = sum(counts.values())
        start, part = convolve_power(*one_draw(counts), size)
        first, weights = first + start, np.convolve(weights, part)
        mean = Fraction(sum(v * times for v, times in counts.items()), size)
        second += sum(times * (v - mean) ** 2 for v, times in counts.items())
        third += sum(times * (v - mean) ** 3 for v, times in counts.items())
    variance = second
    total = sum(v * times for counts in counted for v, times in counts.items())
    estimate = float(Fraction(total, n) * step)
    if not variance:
        return BootstrapInterval(estimate, None, None, level, method, DEGENERATE + " within every stratum", se=0.0)
    se = math.sqrt(float(variance)) / n * float(step)
    acceleration = float(third) / (6.0 * float(second) ** 1.5) if needs_bca else None
    return lattice_interval(Lattice(first, step / n, weights), total, level, method, acceleration, estimate, se)


def clustered(
    clusters: Sequence[Iterable[object]], level: float = 0.95, ties: Ties | None = "mid"
) -> BootstrapInterval:
    """Whole clusters (repositories) resampled; the estimate is the mean over all tasks drawn.

    Exact for up to 40 clusters: the pair (sum, number of tasks) is convolved and the ratio read off as fractions.
    With fewer than 10 clusters the interval is unreliable, and the reason says so.
    """
    method, needs_bca = _method("clustered", ties)
    probability(level, "level")
    groups = [list(group) for group in clusters]
    groups = [group for group in groups if group]
    _, step = lattice_counts(value for group in groups for value in group)
    pairs = [(sum(int(exact(v) * step.denominator) for v in group), len(group)) for group in groups]
    k = len(pairs)
    if k < 2:
        return BootstrapInterval(None, None, None, level, method, "fewer than two clusters")
    if k > MAX_CLUSTERS:
        return BootstrapInterval(None, None, None, level, method, f"more than {MAX_CLUSTERS} clusters: use clustered_t")
    total, tasks = sum(s for s, _ in pairs), sum(m for _, m in pairs)
    theta = Fraction(total, tasks)
    numerators, denominators, weights = _ratio_distribution(pairs)
    scaled = float(step)
    if len(weights) == 1:
        return BootstrapInterval(float(theta * step), None, None, level, method, DEGENERATE, se=0.0)
    cumulative = weights.cumsum()
    against = numerators * tasks - total * denominators  # the sign of ratio - theta, in integers
    less, equal = float(weights[against < 0].sum()), float(weights[against == 0].sum())
    ratios = numerators / denominators
    se = scaled * math.sqrt(float(weights @ (ratios - weights @ ratios) ** 2))
    z0: float | None = None
    acceleration: float | None = None
    alphas: tuple[float, float] | None = ((1.0 - level) / 2.0, (1.0 + level) / 2.0)
    if needs_bca:
        leave_out = [Fraction(total - s, tasks - m) for s, m in pairs]
        acceleration = jackknife_acceleration([float(value) for value in leave_out])
        z0, alphas = bca_alphas(less + (equal / 2.0 if ties == "mid" else 0.0), acceleration, level)
    estimate = float(theta * step)
    if alphas is None:
        reason = "BCa undefined: the bias correction or the acceleration is too large"
        return BootstrapInterval(estimate, None, None, level, method, reason, se=se, z0=z0, acceleration=acceleration)
    points = [quantile_index(cumulative, alpha) for alpha in alphas]
    low, high = (Fraction(int(numerators[i]), int(denominators[i])) * step for i in points)
    few = None if k >= FEW_CLUSTERS else f"unreliable: {k} clusters, at least {FEW_CLUSTERS} are needed"
    return BootstrapInterval(
        estimate, float(low), float(high), level, method, few, low, high, se, z0, acceleration, *alphas, less, equal
    )


def _ratio_distribution(
    pairs: Sequence[tuple[int, int]],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Distribution of (sum of sums)/(sum of sizes) over K draws from K clusters: reduced fractions, ascending."""
    k = len(pairs)
    low = min(s for s, _ in pairs)
    wide, long = max(s for s, _ in pairs) - low, max(m for _, m in pairs)
    if (k * wide + 1) * (k * long + 1) > MAX_CLUSTER_STATES:
        raise StatsError("the clusters are too large or their values too finely spaced to enumerate; use clustered_t")
    grid = np.ones((1, 1))
    for _ in range(k):
        following = np.zeros((grid.shape[0] + wide, grid.shape[1] + long))
        for (s, m), times in sorted(Counter(pairs).items()):
            following[s - low : s - low + grid.shape[0], m : m + grid.shape[1]] += times / k * grid
        grid = following
    rows, sizes = grid.nonzero()
    sums = rows + k * low
    divisor = np.gcd(np.abs(sums), sizes)
    reduced = np.stack([sums // divisor, sizes // divisor], axis=1)
    unique, inverse = np.unique(reduced, axis=0, return_inverse=True)
    weights = np.zeros(len(unique))
    np.add.at(weights, inverse.ravel(), grid[rows, sizes])
    # two different fractions with denominators up to k*long differ by far more than a rounding error
    order = np.argsort(unique[:, 0] / unique[:, 1], kind="stable")
    return unique[order, 0], unique[order, 1], weights[order]


def _method(name: str, ties: Ties | None) -> tuple[str, bool]:
    if ties not in ("mid", "strict", None):
        raise StatsError(f"ties must be 'mid', 'strict' or None, not {ties!r}")
    return (f"{name} percentile", False) if ties is None else (f"{name} bca {ties}", True)


def clustered_t(deltas: Iterable[object], clusters: Sequence[object], level: float = 0.95) -> MeanDifference:
    """Mean over tasks with a standard error that allows tasks of one cluster to move together.

    ``SE = sqrt(sum over clusters of (sum of residuals)**2)/n`` (Miller 2024, arXiv:2411.00640; equals R
    ``sandwich::vcovCL`` HC0 without adjustment), with t on G - 1 degrees of freedom. With fewer than 10 clusters the
    reason calls it unreliable.
    """
    values = [exact(value) for value in deltas]
    if len(values) != len(clusters):
        raise StatsError(f"{len(values)} deltas but {len(clusters)} cluster labels")
    probability(level, "level")
    n, groups = len(values), len(set(clusters))
    if groups < 2:
        reason = "fewer than two clusters"
        return MeanDifference(None, None, None, None, None, None, None, level, "clustered t", reason)
    mean = sum(values, Fraction(0)) / n
    sums: dict[object, Fraction] = {}
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] = sums.get(cluster, Fraction(0)) + value - mean
    se = math.sqrt(float(sum(s * s for s in sums.values()))) / n
    if not se:
        reason = "degenerate: every cluster has the same mean"
        return MeanDifference(float(mean), 0.0, None, None, None, None, groups - 1, level, "clustered t", reason)
    few = None if groups >= FEW_CLUSTERS else f"unreliable: {groups} clusters, at least {FEW_CLUSTERS} are needed"
    return t_result(float(mean), se, groups - 1, level, "clustered t", few)


def jackknife_acceleration(leave_one_out: Sequence[float], estimate: float | None = None) -> float:
    """``a = sum u**3/(6 (sum u**2)**1.5)`` with u = centre minus leave-one-out estimate; 0 if all are equal.

    The centre is the mean of the leave-one-out estimates (Efron 1987), or ``estimate`` if given, which is what R
    ``boot::empinf(type = "jack")`` does. For a mean over tasks the two agree.
    """
    centre = math.fsum(leave_one_out) / len(leave_one_out) if estimate is None else estimate
    influences = [centre - value for value in leave_one_out]
    second = math.fsum(u * u for u in influences)
    return math.fsum(u**3 for u in influences) / (6.0 * second**1.5) if second else 0.0


def bca_replicates(
    replicates: Sequence[float],
    estimate: float,
    leave_one_out: Sequence[float],
    level: float = 0.95,
    ties: Ties = "mid",
    *,
    centre: Literal["mean", "estimate"] = "mean",
) -> BootstrapInterval:
    """BCa from replicates that were drawn elsewhere, for statistics without a lattice (ratios, correlations).

    Parameters
    ----------
    replicates
        Bootstrap replicates of the statistic.
    estimate
        The statistic on the data.
    leave_one_out
        The statistic with each task left out, for the acceleration.
    centre
        What the leave-one-out values are compared with, see :func:`jackknife_acceleration`; ``"estimate"`` is R
        ``boot.ci``.

    Returns
    -------
    BootstrapInterval
        End points are order statistics: the ceil(alpha B)-th smallest replicate.
    """
    if ties not in ("mid", "strict"):
        raise StatsError(f"ties must be 'mid' or 'strict', not {ties!r}")
    method = f"bca {ties}, {len(replicates)} replicates"
    probability(level, "level")
    if not len(replicates) or not len(leave_one_out):
        return BootstrapInterval(estimate, None, None, level, method, "no replicate")
    ordered = np.sort(np.asarray(replicates, dtype=float))
    if not np.isfinite(ordered).all():
        raise StatsError("a replicate is not finite")
    size = len(ordered)
    less = float((ordered < estimate).sum()) / size
    equal = float((ordered == estimate).sum()) / size
    acceleration = jackknife_acceleration(list(leave_one_out), estimate if centre == "estimate" else None)
    z0, alphas = bca_alphas(less + (equal / 2.0 if ties == "mid" else 0.0), acceleration, level)
    se = float(ordered.std(ddof=1)) if size > 1 else None
    if alphas is None or ordered[0] == ordered[-1]:
        reason = "BCa undefined: the replicates lie on one side of the estimate or do not vary"
        return BootstrapInterval(estimate, None, None, level, method, reason, se=se, z0=z0, acceleration=acceleration)
    low, high = (float(ordered[min(max(math.ceil(alpha * size - 1e-9), 1), size) - 1]) for alpha in alphas)
    return BootstrapInterval(
        estimate, low, high, level, method, None, None, None, se, z0, acceleration, *alphas, less, equal
    )


def resample_indices(n: int, resamples: int, seed: int) -> Iterator[list[int]]:
    """Rows of n indices drawn with replacement, the same in every numpy version.

    PCG64's raw stream is guaranteed stable while ``Generator`` methods are not, so the indices come from
    ``random_raw`` with our own rejection: the low 64-bit draws that would favour small indices are thrown away.
    """
    size, rows = count(n, "n"), count(resamples, "resamples")
    if size == 0:
        raise StatsError("there is no task to resample")
    bits = np.random.PCG64(seed)
    limit = (1 << 64) - (1 << 64) % size
    for _ in range(rows):
        row: list[int] = []
        while len(row) < size:
            raw: list[int] = bits.random_raw(size - len(row)).tolist()
            row += [draw % size for draw in raw if draw < limit]
        yield row
