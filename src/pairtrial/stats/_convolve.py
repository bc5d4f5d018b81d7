"""Distribution of a sum of independent integers, exact while it is small and in floats beyond.

Counts of outcomes are convolved by Kronecker substitution: the whole distribution is one Python integer whose bit
fields are the counts, so a product of polynomials is a product of integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

Terms = Mapping[tuple[int, ...], int]
"""How many independent terms have which weights: ``(w0, w1, …)`` are the counts of the values 0, 1, …"""

_EXACT_BITS = 2_000_000
"""Above this size Python's integer product is slower than it is worth, and floats take over."""


class SumDistribution:
    """Distribution of a sum of independent terms on 0, 1, 2, …; exact when small enough.

    Every term takes value j with probability ``weights[j] / sum(weights)``.
    """

    def __init__(self, terms: Terms) -> None:
        self._length = 1 + sum((len(weights) - 1) * times for weights, times in terms.items())
        outcomes = 1
        for weights, times in terms.items():
            outcomes *= sum(weights) ** times
        self._outcomes = outcomes
        width = outcomes.bit_length() // 8 + 1  # whole bytes
        self.exact = width * 8 * self._length <= _EXACT_BITS
        self._weights: Sequence[int] | Sequence[float] = (
            _packed(terms, width, self._length) if self.exact else _floats(terms)
        )

    def at_least(self, value: int) -> Fraction | float:
        """P(sum >= value)."""
        return self._share(self._weights[max(value, 0) :])

    def at_most(self, value: int) -> Fraction | float:
        """P(sum <= value)."""
        return self._share(self._weights[: max(value + 1, 0)])

    def as_unlikely_as(self, value: int) -> Fraction | float:
        """Probability of all values that are no likelier than ``value``."""
        limit = self._weights[value]
        if not self.exact:
            limit *= 1 + 1e-7  # the tolerance of R's exact tests for equal probabilities
        return self._share([weight for weight in self._weights if weight <= limit])

    def as_far_as(self, twice_centre: int, value: int) -> Fraction | float:
        """Probability of all values at least as far from ``twice_centre / 2`` as ``value``."""
        far = abs(2 * value - twice_centre)
        return self._share([w for j, w in enumerate(self._weights) if abs(2 * j - twice_centre) >= far])

    def _share(self, weights: Sequence[int] | Sequence[float]) -> Fraction | float:
        if self.exact:
            return Fraction(int(sum(weights)), self._outcomes)
        return min(1.0, float(sum(sorted(weights))))


def _packed(terms: Terms, width: int, length: int) -> list[int]:
    product = 1
    for weights, times in terms.items():
        base = sum(weight << (8 * width * j) for j, weight in enumerate(weights))
        product *= base**times
    data = product.to_bytes(width * length, "little")
    return [int.from_bytes(data[at : at + width], "little") for at in range(0, width * length, width)]


def _floats(terms: Terms) -> list[float]:
    product = np.ones(1)
    for weights, times in sorted(terms.items()):  # sorted: rounding must not depend on the order of tasks
        base = np.array([float(Fraction(weight, sum(weights))) for weight in weights])
        while times:
            if times & 1:
                product = np.convolve(product, base)
            times >>= 1
            if times:
                base = np.convolve(base, base)
    out: list[float] = product.tolist()
    return out
