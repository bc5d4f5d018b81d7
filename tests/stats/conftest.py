"""Shared by the statistics tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import pytest

Close = Callable[[float | None, float | None], bool]


@pytest.fixture
def close() -> Callable[[float], Close]:
    """Comparison within an absolute and relative tolerance, in which None equals only None."""

    def at(tolerance: float) -> Close:
        def compare(got: float | None, want: float | None) -> bool:
            if got is None or want is None:
                return got is want
            return math.isclose(got, want, rel_tol=tolerance, abs_tol=tolerance)

        return compare

    return at


@pytest.fixture
def all_close() -> Callable[[Iterable[float | None], Iterable[float | None], float], bool]:
    """Element by element comparison within an absolute tolerance."""

    def compare(got: Iterable[float | None], want: Iterable[float | None], tolerance: float) -> bool:
        pairs = list(zip(got, want, strict=True))
        return all(g is w if g is None or w is None else abs(g - w) <= tolerance for g, w in pairs)

    return compare
