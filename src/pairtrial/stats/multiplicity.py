"""Several comparisons: Holm decides, the others are printed for comparison.

Every procedure takes the whole registered family. A comparison that could not be run stays in it: pass ``None`` and
it counts as p = 1. The arithmetic is exact on the given numbers: an exact p of 1/60 among three is 1/20, not more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from pairtrial.stats._numbers import StatsError, decimal_fraction
from pairtrial.stats.results import HypothesisTest

PValue = float | Fraction | HypothesisTest | None


def holm(pvalues: Sequence[PValue], *, family: int | None = None) -> tuple[float, ...]:
    """Holm's step-down adjusted p-values, in the order given.

    ``(K - j + 1) p_(j)``, running maximum, capped at 1. Controls the family-wise error under any dependence.

    Parameters
    ----------
    pvalues
        Floats, Fractions, tests, or None for a registered comparison without a result (p = 1).
    family
        Size of the registered family when it is larger than what is passed.

    References
    ----------
    Holm 1979, Scandinavian Journal of Statistics 6:65-70; equals R ``p.adjust``.
    """
    return tuple(float(p) for p in holm_exact(pvalues, family=family))


def holm_exact(pvalues: Sequence[PValue], *, family: int | None = None) -> tuple[Fraction, ...]:
    """:func:`holm` as fractions, for comparing with alpha."""
    values, size = _family(pvalues, family)
    adjusted = [Fraction(1)] * len(values)
    running = Fraction(0)
    for rank, index in enumerate(_ascending(values)):
        running = max(running, min(Fraction(1), (size - rank) * values[index]))
        adjusted[index] = running
    return tuple(adjusted)


def holm_rejects(
    pvalues: Sequence[PValue], alpha: float | Fraction = 0.05, *, family: int | None = None
) -> tuple[bool, ...]:
    """Which hypotheses Holm rejects at alpha, compared as exact fractions (alpha 0.05 means 1/20)."""
    return tuple(p <= decimal_fraction(alpha) for p in holm_exact(pvalues, family=family))


def bonferroni(pvalues: Sequence[PValue], *, family: int | None = None) -> tuple[float, ...]:
    """``min(1, K p)``; never better than Holm."""
    values, size = _family(pvalues, family)
    return tuple(float(min(Fraction(1), size * p)) for p in values)


def hochberg(pvalues: Sequence[PValue]) -> tuple[float, ...]:
    """Hochberg's step-up; needs positive dependence (Hochberg 1988). For display."""
    values, size = _family(pvalues, None)
    return _step_up(values, [Fraction(size - rank) for rank in range(size)])


def benjamini_hochberg(pvalues: Sequence[PValue]) -> tuple[float, ...]:
    """Benjamini and Hochberg's false discovery rate (1995). It supports no single claim. For display."""
    values, size = _family(pvalues, None)
    return _step_up(values, [Fraction(size, rank + 1) for rank in range(size)])


def benjamini_yekutieli(pvalues: Sequence[PValue]) -> tuple[float, ...]:
    """False discovery rate under any dependence (Benjamini and Yekutieli 2001). For display."""
    values, size = _family(pvalues, None)
    harmonic = sum((Fraction(1, i) for i in range(1, size + 1)), Fraction(0))
    return _step_up(values, [harmonic * Fraction(size, rank + 1) for rank in range(size)])


def hommel(pvalues: Sequence[PValue]) -> tuple[float, ...]:
    """Hommel's procedure (1988; algorithm of Wright 1992); needs positive dependence. For display."""
    values, size = _family(pvalues, None)
    order = _ascending(values)
    p = [values[i] for i in order]
    best = [min((Fraction(size, i + 1) * p[i] for i in range(size)), default=Fraction(1))] * size
    adjusted = list(best)
    for m in range(size - 1, 1, -1):
        head = size - m + 1
        tail = min(Fraction(m, j - head + 2) * p[j] for j in range(head, size))
        step = [min(m * p[j], tail) for j in range(head)]
        step += [step[head - 1]] * (size - head)
        adjusted = [max(a, s) for a, s in zip(adjusted, step, strict=True)]
    out = [Fraction(1)] * size
    for rank, index in enumerate(order):
        out[index] = min(Fraction(1), max(adjusted[rank], p[rank]))
    return tuple(float(value) for value in out)


def fixed_sequence(pvalues: Sequence[PValue]) -> tuple[float, ...]:
    """Hypotheses tested in the registered order, each only if all before it were rejected: running maximum."""
    values, _ = _family(pvalues, None)
    return tuple(float(max(values[: i + 1])) for i in range(len(values)))


def serial_gatekeeping(families: Sequence[Sequence[PValue]]) -> tuple[tuple[float, ...], ...]:
    """Adjusted p-values of ordered families, Holm inside each; a family opens only if all before it are rejected.

    Adjusted p = max(Holm inside the family, largest adjusted p of the earlier families), the closed form of the
    closure principle for this order (Westfall and Krishen 2001).
    """
    gate = Fraction(0)
    out = []
    for pvalues in families:
        adjusted = [max(gate, p) for p in holm_exact(pvalues)]
        gate = max(adjusted, default=gate)
        out.append(tuple(float(p) for p in adjusted))
    return tuple(out)


def _family(pvalues: Sequence[PValue], family: int | None) -> tuple[list[Fraction], int]:
    values = [_exact_p(p) for p in pvalues]
    size = len(values) if family is None else family
    if size < len(values):
        raise StatsError(f"the family of {size} is smaller than the {len(values)} p-values given")
    return values, size


def _exact_p(p: PValue) -> Fraction:
    if isinstance(p, HypothesisTest):
        p = p.p_exact if p.p_exact is not None else p.p
    if p is None or (isinstance(p, float) and math.isnan(p)):
        return Fraction(1)
    value = p if isinstance(p, Fraction) else Fraction(float(p))
    if not 0 <= value <= 1:
        raise StatsError(f"a p-value must lie in [0, 1], not {p!r}")
    return value


def _ascending(values: Sequence[Fraction]) -> list[int]:
    return sorted(range(len(values)), key=lambda i: values[i])


def _step_up(values: Sequence[Fraction], factors: Sequence[Fraction]) -> tuple[float, ...]:
    out = [Fraction(1)] * len(values)
    running = Fraction(1)
    for rank, index in reversed(list(enumerate(_ascending(values)))):
        running = min(running, factors[rank] * values[index])
        out[index] = running
    return tuple(float(p) for p in out)
