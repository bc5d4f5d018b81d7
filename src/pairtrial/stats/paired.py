"""Tests of paired outcomes: McNemar for one run per task and arm, sign-flip for several.

The unit is the task. ``wins`` are tasks that only the treatment solves, ``losses`` tasks that only the control
solves; the others say nothing about the difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from pairtrial.stats._numbers import StatsError, count, lattice_counts, table
from pairtrial.stats.results import HypothesisTest

METHODS = ("exact", "midp", "asymptotic", "corrected", "one-sided", "unconditional")
ALTERNATIVES = ("two-sided", "greater", "less")
NO_DISCORDANT = "no discordant task, no information"

_INTEGER_LIMIT = 10_000
"""Above this many discordant tasks the binomial tail is taken from scipy instead of integers."""


def mcnemar(
    wins: int, losses: int, method: str = "exact", *, alternative: str = "two-sided", n: int | None = None
) -> HypothesisTest:
    """McNemar's test that wins and losses are equally likely.

    Parameters
    ----------
    wins, losses
        Discordant tasks: treatment only, control only.
    method
        ``"exact"`` (default): conditional binomial, ``min(1, 2 * sum_{i<=k} C(m,i) / 2**m)`` with k = min(wins,
        losses), m = wins + losses. ``"midp"``: that minus ``C(m,k)/2**m`` (two-sided; half of it when wins =
        losses or one-sided). ``"asymptotic"``: ``(b-c)**2/m`` on chi-square with 1 degree. ``"corrected"``:
        ``max(|b-c|-1, 0)**2/m``, clamped so that equal counts give 1. ``"one-sided"``: exact, treatment better.
        ``"unconditional"``: the largest tail probability of the asymptotic statistic over the discordance rate
        (Suissa and Shuster 1985); needs ``n``.
    alternative
        ``"two-sided"``, ``"greater"`` (treatment better) or ``"less"``; one-sided for exact and mid-p only.
    n
        All tasks, concordant ones too; only the unconditional test needs it.

    Returns
    -------
    HypothesisTest
        ``p_exact`` is an exact dyadic fraction for exact and mid-p up to 10,000 discordant tasks. With no
        discordant task p is 1 and ``reason`` says so, whatever the method.

    References
    ----------
    McNemar 1947; Fagerland, Lydersen and Laake 2013 (doi:10.1186/1471-2288-13-91) for mid-p and unconditional.
    """
    c, b = count(wins, "wins"), count(losses, "losses")
    if method not in METHODS:
        raise StatsError(f"method must be one of {', '.join(METHODS)}, not {method!r}")
    if method == "one-sided":
        method, alternative = "exact", "greater"
    if alternative not in ALTERNATIVES:
        raise StatsError(f"alternative must be one of {', '.join(ALTERNATIVES)}, not {alternative!r}")
    if alternative != "two-sided" and method not in ("exact", "midp"):
        raise StatsError(f"the {method} test is two-sided")
    name = f"mcnemar {method}"
    if b + c == 0:
        return HypothesisTest(1.0, name, alternative, p_exact=Fraction(1), reason=NO_DISCORDANT)
    if method in ("asymptotic", "corrected"):
        gap = abs(b - c) if method == "asymptotic" else max(abs(b - c) - 1, 0)
        statistic = gap * gap / (b + c)
        return HypothesisTest(math.erfc(math.sqrt(statistic / 2.0)), name, alternative, statistic)
    if method == "unconditional":
        if n is None:
            raise StatsError("the unconditional test needs n, the number of all tasks")
        c, b, total = table(c, b, n)
        return HypothesisTest(_unconditional(c, b, total), name, alternative, (c - b) / math.sqrt(b + c))
    if b + c > _INTEGER_LIMIT:
        return HypothesisTest(_binomial_float(c, b, method, alternative), name, alternative)
    p = binomial_p(c, b, midp=method == "midp", alternative=alternative)
    return HypothesisTest(float(p), name, alternative, p_exact=p)


def binomial_p(wins: int, losses: int, *, midp: bool, alternative: str) -> Fraction:
    """Exact sign test as a dyadic fraction; 1 when there is nothing to test."""
    m = wins + losses
    if alternative == "two-sided":
        k = min(wins, losses)
        tail = 2 * lower_tail(m, k)
        if midp:
            tail -= math.comb(m, k)
            if wins == losses:  # the two tails share the middle term: 1 - pmf/2
                return 1 - Fraction(math.comb(m, k), 2 ** (m + 1))
        return min(Fraction(1), Fraction(tail, 2**m))
    k = losses if alternative == "greater" else wins
    numerator = 2 * lower_tail(m, k) - (math.comb(m, k) if midp else 0)
    return Fraction(numerator, 2 ** (m + 1))


def lower_tail(m: int, k: int) -> int:
    """Sum of C(m, i) for i = 0..k."""
    total = term = 1
    for i in range(k):
        term = term * (m - i) // (i + 1)
        total += term
    return total


def _binomial_float(wins: int, losses: int, method: str, alternative: str) -> float:
    from scipy.stats import binom

    m = wins + losses
    k = {"two-sided": min(wins, losses), "greater": losses, "less": wins}[alternative]
    tail, at = float(binom.cdf(k, m, 0.5)), float(binom.pmf(k, m, 0.5))
    if alternative == "two-sided":
        if method == "midp":
            return 1.0 - at / 2.0 if wins == losses else 2.0 * tail - at
        return min(1.0, 2.0 * tail)
    return tail - at / 2.0 if method == "midp" else tail


def _unconditional(wins: int, losses: int, n: int) -> float:
    """Maximise P(|T| >= |t|) over the rate of discordance, T = (c - b)/sqrt(c + b)."""
    import numpy as np
    from scipy.stats import binom

    gap, m0 = abs(wins - losses), wins + losses
    if gap == 0:
        return 1.0
    tails = np.zeros(n + 1)
    for m in range(1, n + 1):
        # |2k - m|/sqrt(m) >= gap/sqrt(m0), compared in integers: (2k - m)^2 m0 >= gap^2 m
        need = math.isqrt(-(-gap * gap * m // m0) - 1) + 1 if gap else 0
        if need <= m:
            tails[m] = min(1.0, 2.0 * float(binom.cdf((m - need) // 2, m, 0.5)))
    discordant = np.arange(n + 1)

    def sizes(rates: np.ndarray[tuple[int], np.dtype[np.float64]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        out: np.ndarray[tuple[int], np.dtype[np.float64]] = binom.pmf(discordant[None, :], n, rates[:, None]) @ tails
        return out

    low, high = 0.0, 1.0
    best = 0.0
    for _ in range(4):  # a grid, then a finer grid around its best point
        grid = np.linspace(low, high, 1001)
        values = sizes(grid)
        at = int(np.argmax(values))
        best = max(best, float(values[at]))
        low, high = float(grid[max(at - 1, 0)]), float(grid[min(at + 1, 1000)])
    return min(1.0, best)


def sign_flip(deltas: Iterable[object], *, alternative: str = "two-sided") -> HypothesisTest:
    """Exact sign-flip test on task sums: under no effect each task's difference is as likely as its negative.

    Parameters
    ----------
    deltas
        One number per task, treatment minus control: integers (sums over repetitions), Fractions, or floats on a
        common lattice such as task means.
    alternative
        ``"two-sided"`` (|sum| at least as large), ``"greater"`` or ``"less"``.

    Returns
    -------
    HypothesisTest
        ``statistic`` is the sum of the deltas. With one repetition this is exact McNemar. When every delta is 0,
        p is 1 with a reason. ``p_exact`` is left out only when the distribution is too large for integers.

    References
    ----------
    Fisher 1935, The Design of Experiments, section 21; equals R ``exactRankTests::perm.test`` for paired data.
    """
    if alternative not in ALTERNATIVES:
        raise StatsError(f"alternative must be one of {', '.join(ALTERNATIVES)}, not {alternative!r}")
    counts, step = lattice_counts(deltas)
    total = sum(value * times for value, times in counts.items())
    sizes: dict[int, int] = {}
    for value, times in counts.items():
        if value:
            sizes[abs(value)] = sizes.get(abs(value), 0) + times
    if not sizes:
        reason = "no task" if not counts else "every task difference is zero, no information"
        return HypothesisTest(1.0, "sign-flip", alternative, 0.0, Fraction(1), reason)
    p = sign_flip_p(sizes, total, alternative)
    statistic = float(total * step)
    if isinstance(p, Fraction):
        return HypothesisTest(float(p), "sign-flip", alternative, statistic, p)
    return HypothesisTest(p, "sign-flip", alternative, statistic)


def sign_flip_p(sizes: dict[int, int], total: int, alternative: str) -> Fraction | float:
    """P-value of a sum of signed sizes; ``sizes`` maps |delta| to how many tasks have it.

    The sum is 2j - S for j a sum over a random subset of the sizes and S the sum of all of them.
    """
    from pairtrial.stats._convolve import SumDistribution

    divisor = math.gcd(*sizes)
    terms = {(1, *[0] * (size // divisor - 1), 1): times for size, times in sizes.items()}
    whole = sum(size * times for size, times in sizes.items()) // divisor
    reach = {"two-sided": abs(total), "greater": total, "less": -total}[alternative] // divisor
    if reach == 0 and alternative == "two-sided":
        return Fraction(1)
    upper = SumDistribution(terms).at_least((whole + reach + 1) // 2)  # 2j - S >= reach; the distribution is symmetric
    if alternative != "two-sided":
        return upper
    return 2 * upper if isinstance(upper, Fraction) else min(1.0, 2 * upper)
