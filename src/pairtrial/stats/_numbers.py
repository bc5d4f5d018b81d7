"""Checking of arguments, exact fractions, and the normal distribution.

Nothing here imports numpy or scipy, so that the exact tests cost no import time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from numbers import Integral, Rational, Real
from statistics import NormalDist

MAX_DENOMINATOR = 1000
"""Floats are read as fractions with at most this denominator: task means of up to a thousand repetitions."""
LATTICE_TOLERANCE = 1e-9
"""How far a float may lie from the fraction that it is read as."""
MAX_LATTICE_POINTS = 50_000_000
"""Above this many lattice points the exact distribution would not fit in memory."""

_STANDARD_NORMAL = NormalDist()


class StatsError(ValueError):
    """The arithmetic was asked for something that is not defined, such as a negative count."""


def count(value: object, name: str) -> int:
    """Return ``value`` as a non-negative int, or raise :class:`StatsError` that names it."""
    if isinstance(value, Integral):
        number = int(value)
    else:
        if not isinstance(value, Real) or not float(value).is_integer():  # False for NaN and infinity
            raise StatsError(f"{name} must be a whole number, not {value!r}")
        number = int(float(value))
    if number < 0:
        raise StatsError(f"{name} must not be negative, but is {number}")
    return number


def probability(value: float, name: str, *, closed: bool = False) -> float:
    """Return ``value`` as a float inside (0, 1), or inside [0, 1] when ``closed``."""
    number = float(value)
    inside = 0.0 <= number <= 1.0 if closed else 0.0 < number < 1.0
    if not inside:  # NaN ends here too
        raise StatsError(f"{name} must lie {'in [0, 1]' if closed else 'strictly between 0 and 1'}, not {value!r}")
    return number


def table(wins: object, losses: object, n: object) -> tuple[int, int, int]:
    """Check one paired table: wins and losses fit into n tasks, and there is at least one task."""
    c, b, total = count(wins, "wins"), count(losses, "losses"), count(n, "n")
    if total == 0:
        raise StatsError("n must be at least 1: there is no task")
    if b + c > total:
        raise StatsError(f"wins + losses = {b + c} exceeds n = {total}")
    return c, b, total


def decimal_fraction(value: float | Fraction) -> Fraction:
    """Read 0.05 as 1/20, the number that a plan means, and not as the nearest binary fraction."""
    return value if isinstance(value, Fraction) else Fraction(str(value))


def exact(value: object) -> Fraction:
    """Return an int, Fraction or lattice float as an exact fraction."""
    if isinstance(value, Rational):  # int, bool, Fraction, numpy integers
        return Fraction(int(value.numerator), int(value.denominator))
    if isinstance(value, Real) and math.isfinite(value):
        number = Fraction(float(value))
        near = number.limit_denominator(MAX_DENOMINATOR)
        if abs(near - number) <= LATTICE_TOLERANCE:
            return near
        raise StatsError(
            f"{value!r} is no fraction with a denominator up to {MAX_DENOMINATOR}; pass integers or Fractions"
        )
    if hasattr(value, "item"):  # numpy scalars that register with no abstract base class, such as numpy.bool
        return exact(value.item())
    raise StatsError(f"{value!r} is not a finite number")


def lattice_counts(values: Iterable[object]) -> tuple[dict[int, int], Fraction]:
    """Count values on their common lattice.

    Returns
    -------
    counts
        How often each integer occurs; the value itself is the integer times ``step``.
    step
        1 over the smallest common denominator.
    """
    if hasattr(values, "tolist"):  # a numpy array: Python numbers count ten times faster
        values = values.tolist()
    counted = Counter(values)
    if all(type(value) is int for value in counted):
        return counted, Fraction(1)  # type: ignore[return-value]
    fractions: Counter[Fraction] = Counter()
    for value, times in counted.items():
        fractions[exact(value)] += times
    denominator = math.lcm(*(f.denominator for f in fractions)) if fractions else 1
    return {int(f * denominator): times for f, times in fractions.items()}, Fraction(1, denominator)


def normal_cdf(x: float) -> float:
    """Lower tail of the standard normal, accurate in both tails."""
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def normal_quantile(p: float) -> float:
    """Inverse of :func:`normal_cdf` (Wichura's AS 241) for 0 < p < 1."""
    return _STANDARD_NORMAL.inv_cdf(p)


def two_sided_z(level: float) -> float:
    """Normal quantile of a two-sided interval at ``level``, 1.96 at 0.95."""
    probability(level, "level")
    return -normal_quantile((1.0 - level) / 2.0)


def root(function: Callable[[float], float], low: float, high: float, width: float = 1e-17) -> float:
    """Find the sign change of a monotone function between ``low`` and ``high`` by bisection.

    Ends at the last bit, or when the bracket is narrower than ``width``.
    """
    sign_low = function(low) > 0.0
    if sign_low == (function(high) > 0.0):
        raise StatsError(f"no sign change between {low} and {high}")
    while True:
        middle = 0.5 * (low + high)
        if middle in (low, high) or high - low < width:
            return middle
        if (function(middle) > 0.0) == sign_low:
            low = middle
        else:
            high = middle
