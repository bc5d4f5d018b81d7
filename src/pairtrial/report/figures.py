"""How figures enter a scorecard."""

from __future__ import annotations

from fractions import Fraction


def number(value: float | Fraction | None) -> float | None:
    """Nine significant digits: the last bits of a library's floating point must not change a committed byte."""
    return None if value is None else float(f"{float(value):.9g}")
