"""How much two runs of the same arm differ, and whether the treatment differs from the control by more."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

from pairtrial.stats._numbers import StatsError, count
from pairtrial.stats.intervals import clopper_pearson
from pairtrial.stats.results import HypothesisTest, Interval


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
