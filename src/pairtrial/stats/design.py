"""What a design can show before it is run: floor, boundary, power, detectable effect."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from pairtrial.stats._numbers import StatsError, count, decimal_fraction, normal_cdf, normal_quantile, probability, root
from pairtrial.stats.paired import binomial_p
from pairtrial.stats.results import Result

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def floor_discordant(alpha: float | Fraction = 0.05, comparisons: int = 1, method: str = "exact") -> int:
    """Smallest number of discordant tasks that can reach significance at all.

    Parameters
    ----------
    alpha
        Two-sided level.
    comparisons
        Registered comparisons; Holm's first step needs p <= alpha/comparisons.
    method
        ``"exact"``: smallest m with ``2**(1-m) <= alpha/K``; six at 0.05. ``"midp"``: ``2**-m``; five.

    Notes
    -----
    Necessary, not sufficient: see :func:`max_losses`. It costs no alpha, because a result below the floor could not
    have been significant.
    """
    probability(float(alpha), "alpha")
    k = count(comparisons, "comparisons")
    if k == 0:
        raise StatsError("comparisons must be at least 1")
    _check_method(method, "exact", "midp")
    limit = decimal_fraction(alpha) / k
    m = 1
    while binomial_p(m, 0, midp=method == "midp", alternative="two-sided") > limit:
        m += 1
    return m


def max_losses(discordant: int, alpha: float | Fraction = 0.05, method: str = "exact") -> int | None:
    """Most losses (or wins) among ``discordant`` tasks that still give p <= alpha; None below the floor."""
    m = count(discordant, "discordant")
    _check_method(method, "exact", "midp")
    boundary = rejection_boundaries(m, decimal_fraction(alpha), method == "midp")[m]
    return None if boundary < 0 else boundary


@lru_cache(maxsize=64)
def rejection_boundaries(n: int, alpha: Fraction, midp: bool) -> tuple[int, ...]:
    """Rejection boundary for every m = 0..n: reject when min(wins, losses) <= boundary; -1 means never.

    The boundary rises by at most one a step, so tail and binomial coefficient are carried along in integers.
    """
    out = [-1]
    for m in range(1, n + 1):
        k = out[-1]
        if k < 0:
            tail, coefficient = 0, 0
        else:
            tail, coefficient = 2 * tail - coefficient, coefficient * m // (m - k)
        following = 1 if k < 0 else coefficient * (m - k) // (k + 1)
        candidate = tail + following
        twice = 2 * candidate - (following if midp else 0)
        # at equal counts both tails share the middle, and p is 1 or nearly so: never a rejection at alpha < 0.5
        if 2 * (k + 1) < m and Fraction(twice, 2**m) <= alpha:
            k, tail, coefficient = k + 1, candidate, following
        out.append(k)
    return tuple(out)


def power(n: int, p_discordant: float, delta: float, alpha: float | Fraction = 0.05, method: str = "exact") -> float:
    """Power of McNemar's test with one run per task and arm.

    Parameters
    ----------
    n
        Tasks.
    p_discordant
        Probability that a task is discordant, in [0, 1].
    delta
        True difference, |delta| <= p_discordant.
    alpha
        Two-sided level; divide by the number of comparisons for Holm's first step.
    method
        ``"exact"`` or ``"midp"``: ``sum_m Bin(m; n, pd) P(reject | m, psi)`` with ``psi = (pd + d)/(2 pd)``, the
        conditional power averaged over the discordant count (SAS PROC POWER, PAIREDFREQ DIST=EXACT_COND).
        ``"connor"``: Connor's normal approximation, which overstates the power of few tasks.

    Returns
    -------
    float
        0.0 when p_discordant is 0.
    """
    total = count(n, "n")
    pd = probability(p_discordant, "p_discordant", closed=True)
    d = float(delta)
    if not abs(d) <= pd + 1e-12:
        raise StatsError(f"|delta| = {abs(d)} cannot exceed p_discordant = {pd}")
    _check_method(method, "exact", "midp", "connor")
    probability(float(alpha), "alpha")
    if pd == 0.0 or total == 0:
        return 0.0
    if method == "connor":
        spread = math.sqrt(max(pd - d * d, 0.0))
        gap = abs(d) * math.sqrt(total) - normal_quantile(1.0 - float(alpha) / 2.0) * math.sqrt(pd)
        return normal_cdf(gap / spread) if spread else float(gap > 0)
    discordant, win, loss = _rejections(total, pd, d, alpha, method)
    return min(1.0, float(discordant @ (win + loss)))


def _rejections(
    n: int, pd: float, d: float, alpha: float | Fraction, method: str
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """P(m discordant), and P(rejects in favour of treatment | m), P(… of control | m), for m = 0..n."""
    import numpy as np
    from scipy.stats import binom

    boundary = np.array(rejection_boundaries(n, decimal_fraction(alpha), method == "midp"))
    m = np.arange(n + 1)
    psi = min(1.0, max(0.0, (pd + d) / (2.0 * pd)))
    never = boundary < 0
    win = np.where(never, 0.0, binom.cdf(boundary, m, 1.0 - psi))
    loss = np.where(never, 0.0, binom.cdf(boundary, m, psi))
    return binom.pmf(m, n, pd), win, loss


@dataclass(frozen=True, slots=True)
class DetectableEffect(Result):
    """Smallest true difference found with the wanted power, or None and the best power that is possible."""

    delta: float | None
    max_power: float
    reason: str | None = None


def mde(
    n: int,
    p_discordant: float,
    power: float = 0.8,
    alpha: float | Fraction = 0.05,
    method: str = "exact",
    *,
    step: float = 0.001,
) -> DetectableEffect:
    """Minimal detectable effect: smallest delta on a grid of ``step`` whose power is at least ``power``.

    Connor's approximation is solved without a grid.
    ``max_power`` is the power when every discordant task is a win; when it is below the target nothing is
    detectable, ``delta`` is None and the reason says so.
    """
    target = probability(power, "power")
    pd = probability(p_discordant, "p_discordant", closed=True)
    of = _power_function(n, pd, alpha, method)
    best = of(pd)
    if best < target:
        return DetectableEffect(None, best, "not reachable even if every discordant task is a win")
    if best == target:
        return DetectableEffect(pd, best)
    if method == "connor":
        return DetectableEffect(root(lambda delta: of(delta) - target, 0.0, pd), best)
    low, high = 0, math.floor(pd / step + 1e-9)
    if of(high * step) < target:  # only the very edge reaches it
        return DetectableEffect(pd, best)
    while low < high:
        middle = (low + high) // 2
        if of(middle * step) >= target:
            high = middle
        else:
            low = middle + 1
    return DetectableEffect(round(low * step, 12), best)


def _power_function(n: int, pd: float, alpha: float | Fraction, method: str) -> Callable[[float], float]:
    return lambda delta: power(n, pd, min(delta, pd), alpha, method)


def connor_sample_size(p_discordant: float, delta: float, power: float = 0.8, alpha: float = 0.05) -> float:
    """Connor's number of tasks, before rounding up: ``(z_a sqrt(pd) + z_b sqrt(pd - d**2))**2 / d**2``.

    Connor 1987, Biometrics 43:207-211. A normal approximation, good for hundreds of tasks.
    """
    pd = probability(p_discordant, "p_discordant", closed=True)
    d = float(delta)
    if not 0.0 < abs(d) <= pd:
        raise StatsError(f"|delta| must lie in (0, p_discordant], but is {abs(d)}")
    z_a = normal_quantile(1.0 - probability(alpha, "alpha") / 2.0)
    z_b = normal_quantile(probability(power, "power"))
    return (z_a * math.sqrt(pd) + z_b * math.sqrt(pd - d * d)) ** 2 / (d * d)


def sample_size(p_discordant: float, delta: float, power: float = 0.8, alpha: float = 0.05) -> int:
    """Tasks needed by Connor's formula, rounded up."""
    return math.ceil(connor_sample_size(p_discordant, delta, power, alpha))


def chance_to_reach_floor(n: int, p_discordant: float, floor: int | None = None, alpha: float = 0.05) -> float:
    """P(at least ``floor`` of n tasks are discordant); the floor defaults to that of the exact test at alpha."""
    from scipy.stats import binom

    total = count(n, "n")
    pd = probability(p_discordant, "p_discordant", closed=True)
    need = floor_discordant(alpha) if floor is None else count(floor, "floor")
    return float(binom.sf(need - 1, total, pd))


@dataclass(frozen=True, slots=True)
class Inflation(Result):
    """What a significant result would look like: ``mean_significant`` is E[|estimate| given significance].

    ``factor`` divides it by the true |delta| (None when that is 0), ``wrong_sign`` is the share of significant
    results that point the wrong way.
    """

    power: float
    mean_significant: float | None
    factor: float | None
    wrong_sign: float | None
    reason: str | None = None


def significance_inflation(
    n: int, p_discordant: float, delta: float, alpha: float | Fraction = 0.05, method: str = "exact"
) -> Inflation:
    """How much a significant estimate overstates the effect when power is low (the winner's curse).

    Exact over all tables. Gelman and Carlin 2014 call the factor a type M error and the wrong sign a type S error.
    """
    import numpy as np
    from scipy.stats import binom

    strength = power(n, p_discordant, delta, alpha, method)
    if strength == 0.0:
        return Inflation(0.0, None, None, None, "no result of this design can be significant")
    boundaries = rejection_boundaries(n, decimal_fraction(alpha), method == "midp")
    discordant = binom.pmf(np.arange(n + 1), n, p_discordant)
    psi = min(1.0, max(0.0, (p_discordant + delta) / (2.0 * p_discordant)))
    size = wrong = 0.0
    for m, boundary in enumerate(boundaries):
        if boundary < 0:
            continue
        losses = np.arange(boundary + 1)
        gain = (m - 2 * losses) / n
        for_treatment, for_control = binom.pmf(losses, m, 1.0 - psi), binom.pmf(losses, m, psi)
        size += float(discordant[m] * (gain @ (for_treatment + for_control)))
        wrong += float(discordant[m] * (for_control if delta > 0 else for_treatment).sum())
    mean = size / strength
    if delta == 0:
        return Inflation(strength, mean, None, None, "the true difference is 0: every significant result is false")
    return Inflation(strength, mean, mean / abs(delta), wrong / strength)


def mde_repetitions(
    n: int,
    omega2: float,
    sigma2_control: float,
    sigma2_treatment: float,
    repetitions: int = 1,
    power: float = 0.8,
    alpha: float = 0.05,
) -> float:
    """Minimal detectable effect with repetitions: ``(z_a + z_b) sqrt((omega2 + s2_C/R + s2_T/R)/n)``.

    The variances come from :func:`variance_components` of an earlier run. Miller 2024, arXiv:2411.00640.
    """
    total, runs = count(n, "n"), count(repetitions, "repetitions")
    if not total or not runs:
        raise StatsError("n and repetitions must be at least 1")
    return _z_sum(power, alpha) * math.sqrt((omega2 + (sigma2_control + sigma2_treatment) / runs) / total)


def tasks_for_repetitions(
    delta: float,
    omega2: float,
    sigma2_control: float,
    sigma2_treatment: float,
    repetitions: int = 1,
    power: float = 0.8,
    alpha: float = 0.05,
) -> float:
    """Tasks needed (not rounded): ``(z_a + z_b)**2 (omega2 + s2_C/R + s2_T/R)/delta**2``."""
    runs = count(repetitions, "repetitions")
    if not runs or delta == 0:
        raise StatsError("repetitions must be at least 1 and delta must not be 0")
    return _z_sum(power, alpha) ** 2 * (omega2 + (sigma2_control + sigma2_treatment) / runs) / delta**2


def _z_sum(power: float, alpha: float) -> float:
    return normal_quantile(1.0 - probability(alpha, "alpha") / 2.0) + normal_quantile(probability(power, "power"))


def _check_method(method: str, *known: str) -> None:
    if method not in known:
        raise StatsError(f"method must be one of {', '.join(known)}, not {method!r}")
