"""What tests and intervals return: small frozen values that print as JSON.

A missing number is ``None`` and comes with a ``reason``; NaN and infinity never leave this package.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from fractions import Fraction

from pairtrial.stats._numbers import StatsError, decimal_fraction

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]


def _json(value: object) -> JsonValue:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise StatsError(f"a result held {value!r}; a missing number must be None with a reason")
        return value
    if isinstance(value, tuple | list):
        return [_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, Result):
        return value.to_dict()
    raise StatsError(f"{type(value).__name__} has no JSON form")


@dataclass(frozen=True, slots=True)
class Result:
    """Base of every result."""

    def to_dict(self) -> dict[str, JsonValue]:
        """Return the fields as JSON values: fractions as ``"a/b"``, tuples as lists, no NaN."""
        return {field.name: _json(getattr(self, field.name)) for field in dataclasses.fields(self)}


@dataclass(frozen=True, slots=True)
class HypothesisTest(Result):
    """One test of one hypothesis.

    ``p_exact`` is the p-value as a fraction where the distribution is enumerated; compare that with alpha
    (:meth:`rejects` does), because rounding a float can move a p-value across a threshold.
    """

    p: float | None
    method: str
    alternative: str = "two-sided"
    statistic: float | None = None
    p_exact: Fraction | None = None
    reason: str | None = None

    def rejects(self, alpha: float | Fraction = 0.05) -> bool:
        """Whether p <= alpha, compared exactly; alpha 0.05 means 1/20. A missing p never rejects."""
        return at_most(self.p_exact if self.p_exact is not None else self.p, alpha)


@dataclass(frozen=True, slots=True)
class Interval(Result):
    """An estimate and its interval, on the scale of the estimate (a proportion, not percentage points)."""

    estimate: float | None
    low: float | None
    high: float | None
    level: float
    method: str
    reason: str | None = None


def at_most(p: float | Fraction | None, alpha: float | Fraction) -> bool:
    """Whether p <= alpha as exact fractions, alpha read as the decimal that was written. ``None`` never is."""
    return p is not None and Fraction(p) <= decimal_fraction(alpha)
