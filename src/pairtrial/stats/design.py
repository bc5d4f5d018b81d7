"""What a design can show before it is run: floor, boundary, power, detectable effect."""

from __future__ import annotations

from fractions import Fraction

from pairtrial.stats._numbers import StatsError, count, decimal_fraction, probability
from pairtrial.stats.paired import binomial_p


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
    if method not in ("exact", "midp"):
        raise StatsError(f"method must be 'exact' or 'midp', not {method!r}")
    limit = decimal_fraction(alpha) / k
    m = 1
    while binomial_p(m, 0, midp=method == "midp", alternative="two-sided") > limit:
        m += 1
    return m
