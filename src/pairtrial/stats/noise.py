"""How much two runs of the same arm differ, and whether the treatment differs from the control by more.

Repetitions are given as successes per task: ``successes[i]`` of ``repetitions`` runs of task i were solved.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pairtrial.stats._numbers import StatsError, count, probability, two_sided_z
from pairtrial.stats.intervals import clopper_pearson
from pairtrial.stats.results import HypothesisTest, Interval, Result


def flip_rate(flips: int, n: int, level: float = 0.95) -> Interval:
    """Share of tasks whose outcome differs between control and replicate, with its Clopper-Pearson interval.

    Parameters
    ----------
    flips
        Discordant tasks of the control against the A/A arm, in both directions together.
    n
        All tasks. With n = 0 there is no rate.
    """
    return dataclasses.replace(clopper_pearson(flips, n, level), method="flip rate, clopper-pearson")


@dataclass(frozen=True, slots=True)
class ReplicateNoise(Result):
    """Flip rate inside one arm, and the mean within-task variance, which is half of it."""

    flip_rate: float | None
    flip_rate_exact: Fraction | None
    variance: float | None
    per_task: tuple[Fraction, ...]
    reason: str | None = None


def within_arm_flip_rate(successes: Sequence[int], repetitions: int) -> ReplicateNoise:
    """Probability that two repetitions of a task disagree: mean of ``2 c (R - c)/(R (R - 1))`` over tasks.

    Unbiased. Undefined with fewer than two repetitions or without a task; the reason says which.
    """
    counts, runs = successes_per_task(successes, repetitions)
    if runs < 2 or not counts:
        reason = "one repetition shows no noise" if counts else "no task"
        return ReplicateNoise(None, None, None, (), reason)
    per_task = tuple(Fraction(2 * c * (runs - c), runs * (runs - 1)) for c in counts)
    rate = sum(per_task, Fraction(0)) / len(counts)
    return ReplicateNoise(float(rate), rate, float(rate / 2), per_task)


def noise_floor(flip_rate: float, n: int, repetitions: int = 1, level: float = 0.95) -> float:
    """Half width of what replicate noise alone does to a net delta: ``z sqrt(f/(n R))``.

    Descriptive, not a test: comparing a delta with the A/A delta would "find" an effect half of the time.
    """
    rate = probability(flip_rate, "flip_rate", closed=True)
    runs = count(n, "n") * count(repetitions, "repetitions")
    if not runs:
        raise StatsError("n and repetitions must be at least 1")
    return two_sided_z(level) * math.sqrt(rate / runs)


@dataclass(frozen=True, slots=True)
class Agreement(Result):
    """Agreement of control and replicate on one run each."""

    flip_rate: float
    kappa: float | None
    net_delta: float
    reason: str | None = None


def agreement(both: int, control_only: int, replicate_only: int, neither: int) -> Agreement:
    """Flip rate, Cohen's kappa and net difference of an A/A table.

    Kappa is None when both arms show one and the same class only, because chance agreement is then certain.
    Cohen 1960.
    """
    a, b = count(both, "both"), count(control_only, "control_only")
    c, d = count(replicate_only, "replicate_only"), count(neither, "neither")
    n = a + b + c + d
    if n == 0:
        raise StatsError("there is no task")
    chance = Fraction((a + b) * (a + c) + (c + d) * (b + d), n * n)
    value = None if chance == 1 else float((Fraction(a + d, n) - chance) / (1 - chance))
    reason = None if value is not None else "only one outcome class"
    return Agreement((b + c) / n, value, (c - b) / n, reason)


def kappa(both: int, control_only: int, replicate_only: int, neither: int) -> float | None:
    """Cohen's kappa of :func:`agreement`; None when only one outcome class occurs."""
    return agreement(both, control_only, replicate_only, neither).kappa


def odd_one_out(odd: int, mixed: int, method: str = "exact") -> HypothesisTest:
    """Odd-one-out test: is the treatment the differing run more often than one time in three?

    Parameters
    ----------
    odd
        Tasks where control and replicate agree and the treatment differs.
    mixed
        Tasks whose three outcomes are not all equal.
    method
        ``"exact"`` or ``"midp"``.

    Returns
    -------
    HypothesisTest
        One-sided ``P(Bin(mixed, 1/3) >= odd)``. Control, replicate and treatment of a task are exchangeable when
        the treatment does nothing, so each is the odd one with probability 1/3. It finds changes that cancel in
        the net difference; it is not independent of McNemar's test, so it is secondary.
    """
    x, m = count(odd, "odd"), count(mixed, "mixed")
    if x > m:
        raise StatsError(f"odd = {x} exceeds mixed = {m}")
    if method not in ("exact", "midp"):
        raise StatsError(f"method must be 'exact' or 'midp', not {method!r}")
    weights = [math.comb(m, i) * 2 ** (m - i) for i in range(x, m + 1)]
    p = Fraction(sum(weights), 3**m)
    if method == "midp":
        p -= Fraction(weights[0], 2 * 3**m)
    reason = None if m else "no task with mixed outcomes, no information"
    return HypothesisTest(float(p), f"odd-one-out {method}", "greater", float(x), p, reason)


def odd_one_out_rows(rows: Iterable[Sequence[int | bool]], method: str = "exact") -> HypothesisTest:
    """:func:`odd_one_out` from rows (control, replicate, treatment) of 0/1 outcomes, one row a task."""
    odd = mixed = 0
    for row in rows:
        control, replicate, treatment = (bool(x) for x in row)
        if not control == replicate == treatment:
            mixed += 1
            odd += control == replicate
    return odd_one_out(odd, mixed, method)


@dataclass(frozen=True, slots=True)
class VarianceComponents(Result):
    """Where the variance of the task differences comes from.

    ``variance = omega2 + sigma2_control/R + sigma2_treatment/R``; ``noise`` is the last two terms, ``share`` its part
    of the variance. ``omega2`` (spread of true effects over tasks) is clipped at 0 and ``clipped`` says so.
    """

    mean: float
    variance: float
    sigma2_control: float
    sigma2_treatment: float
    noise: float
    omega2: float
    omega2_unclipped: float
    clipped: bool
    se: float
    share: float | None
    reason: str | None = None


def variance_components(treatment: Sequence[int], control: Sequence[int], repetitions: int) -> VarianceComponents:
    """Split the variance of task differences into replicate noise and true spread.

    ``sigma2_arm = mean c (R - c)/(R (R - 1))``. A large ``share`` means that more repetitions help; a small one
    means that only more tasks do. Needs at least two tasks and two repetitions.
    """
    c, runs = successes_per_task(control, repetitions)
    t, _ = successes_per_task(treatment, repetitions)
    n = _same_length(c, t)
    if n < 2 or runs < 2:
        raise StatsError("variance components need at least two tasks and two repetitions")
    deltas = [Fraction(y - x, runs) for x, y in zip(c, t, strict=True)]
    mean = sum(deltas, Fraction(0)) / n
    variance = sum(((d - mean) ** 2 for d in deltas), Fraction(0)) / (n - 1)
    s2_c, s2_t = (sum(Fraction(x * (runs - x), runs * (runs - 1)) for x in arm) / n for arm in (c, t))
    noise = (s2_c + s2_t) / runs
    omega2 = variance - noise
    share = float(noise / variance) if variance else None
    return VarianceComponents(
        float(mean),
        float(variance),
        float(s2_c),
        float(s2_t),
        float(noise),
        float(max(omega2, Fraction(0))),
        float(omega2),
        omega2 < 0,
        math.sqrt(float(variance / n)),
        share,
        None if variance else "degenerate: all task deltas are equal",
    )


@dataclass(frozen=True, slots=True)
class IntraclassCorrelation(Result):
    """ICC(1) of one arm with its mean squares; may be negative, and is printed as it is."""

    icc: float | None
    msb: float | None
    msw: float | None
    sigma2_within: float | None
    sigma2_between: float | None
    reason: str | None = None


def icc(successes: Sequence[int], repetitions: int) -> IntraclassCorrelation:
    """Share of the outcome variance that lies between tasks: ``(MSB - MSW)/(MSB + (R - 1) MSW)``.

    None when all outcomes are equal, or with fewer than two tasks or repetitions. Shrout and Fleiss 1979.
    """
    counts, runs = successes_per_task(successes, repetitions)
    n = len(counts)
    if n < 2 or runs < 2:
        return IntraclassCorrelation(None, None, None, None, None, "needs two tasks and two repetitions")
    total = sum(counts)
    msb = sum(Fraction(n * c - total, n * runs) ** 2 for c in counts) * runs / (n - 1)
    msw = sum((Fraction(c * (runs - c), runs * (runs - 1)) for c in counts), Fraction(0)) / n
    between, scale = float((msb - msw) / runs), msb + (runs - 1) * msw
    if not scale:
        return IntraclassCorrelation(None, float(msb), float(msw), float(msw), between, "all outcomes are equal")
    return IntraclassCorrelation(float((msb - msw) / scale), float(msb), float(msw), float(msw), between)


def pass_at_k(n: int, c: int | Sequence[int], k: int) -> float | None:
    """Probability that at least one of k runs solves the task: ``1 - C(n-c, k)/C(n, k)``, mean over tasks.

    Parameters
    ----------
    n
        Runs per task.
    c
        Successes: one count, or one per task.
    k
        Size of the subset; None is returned when k > n. Chen et al. 2021, arXiv:2107.03374.
    """
    return _subset_mean(n, c, k, lambda successes, runs, size: 1 - _all_in(runs - successes, runs, size))


def pass_hat_k(n: int, c: int | Sequence[int], k: int) -> float | None:
    """Probability that all of k runs solve the task (pass^k): ``C(c, k)/C(n, k)``, mean over tasks.

    Arguments as :func:`pass_at_k`. Yao et al. 2024, arXiv:2406.12045.
    """
    return _subset_mean(n, c, k, _all_in)


def _all_in(c: int, runs: int, k: int) -> Fraction:
    return Fraction(math.comb(c, k), math.comb(runs, k))


def _subset_mean(n: int, c: int | Sequence[int], k: int, of: Callable[[int, int, int], Fraction]) -> float | None:
    counts, runs = successes_per_task(c if isinstance(c, Sequence) else [c], n)
    size = count(k, "k")
    if size == 0:
        raise StatsError("k must be at least 1")
    if size > runs or not counts:
        return None
    return float(sum((of(successes, runs, size) for successes in counts), Fraction(0)) / len(counts))


def successes_per_task(successes: Sequence[int], repetitions: int) -> tuple[list[int], int]:
    """Check counts of successes: whole numbers from 0 to ``repetitions``."""
    runs = count(repetitions, "repetitions")
    counts = [count(c, "successes") for c in successes]
    if any(c > runs for c in counts):
        raise StatsError(f"successes exceed the {runs} repetitions")
    return counts, runs


def _same_length(control: Sequence[int], treatment: Sequence[int]) -> int:
    if len(control) != len(treatment):
        raise StatsError(f"{len(control)} control and {len(treatment)} treatment tasks: the arms must be paired")
    return len(control)
