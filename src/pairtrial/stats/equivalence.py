"""Evidence for "no difference that matters", and how much a p-value says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from pairtrial.stats._numbers import StatsError, count, normal_cdf, probability, root, table, two_sided_z
from pairtrial.stats.intervals import score_statistic, tango
from pairtrial.stats.results import HypothesisTest, Result

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Equivalence(Result):
    """Two one-sided tests against -margin and +margin.

    ``p`` is the larger of the two; ``low`` and ``high`` are the Tango interval at 1 - 2 alpha, which lies inside the
    margin exactly when p <= alpha. ``attainable`` says whether n tasks could show it at best.
    """

    p: float
    p_lower: float
    p_upper: float
    z_lower: float
    z_upper: float
    margin: float
    alpha: float
    low: float | None
    high: float | None
    equivalent: bool
    attainable: bool
    reason: str | None = None


def tost(wins: int, losses: int, n: int, margin: float, alpha: float = 0.05) -> Equivalence:
    """Test that the true difference lies inside (-margin, margin), by Tango's score statistic.

    ``z_L`` is the statistic at -margin, ``z_U`` at +margin; ``p = max(1 - Phi(z_L), Phi(z_U))``.

    Parameters
    ----------
    wins, losses, n
        Discordant tasks and all tasks.
    margin
        Registered margin as a proportion, 0 < margin < 1.

    Notes
    -----
    When n is too small for the margin even without a discordant task, ``attainable`` is False and the reason names
    the number of tasks needed. Schuirmann 1987; Tango 1998.
    """
    c, b, total = table(wins, losses, n)
    limit = probability(margin, "margin")
    probability(alpha, "alpha")
    z_lower, z_upper = score_statistic(c, b, total, -limit), score_statistic(c, b, total, limit)
    p_lower, p_upper = normal_cdf(-z_lower), normal_cdf(z_upper)
    p = max(p_lower, p_upper)
    interval = tango(c, b, total, 1.0 - 2.0 * alpha)
    attainable = equivalence_attainable(total, limit, alpha)
    reason = None
    if not attainable:
        reason = f"not attainable: at least {min_tasks_for_margin(limit, alpha)} tasks are needed for this margin"
    return Equivalence(
        p, p_lower, p_upper, z_lower, z_upper, limit, alpha, interval.low, interval.high, p <= alpha, attainable, reason
    )


def min_tasks_for_margin(margin: float, alpha: float = 0.05) -> int:
    """Smallest n at which zero discordant tasks show equivalence: ``n > z**2 (1 - M)/M``."""
    limit = probability(margin, "margin")
    z = two_sided_z(1.0 - 2.0 * probability(alpha, "alpha"))
    return math.floor(z * z * (1.0 - limit) / limit) + 1


def equivalence_attainable(n: int, margin: float, alpha: float = 0.05) -> bool:
    """Whether n tasks can show equivalence within the margin at all (with no discordant task)."""
    return count(n, "n") >= min_tasks_for_margin(margin, alpha)


def s_value(p: float | Fraction | HypothesisTest | None) -> float | None:
    """Surprise in bits, ``-log2 p``: 0.03125 is five heads in a row, 1 is nothing. None when p is missing or 0."""
    if isinstance(p, HypothesisTest):
        p = p.p_exact if p.p_exact is not None else p.p
    if p is None or p == 0:
        return None
    if not 0 < p <= 1:
        raise StatsError(f"a p-value must lie in [0, 1], not {p!r}")
    if isinstance(p, Fraction):
        return math.log2(p.denominator) - math.log2(p.numerator)
    return abs(math.log2(p))


@dataclass(frozen=True, slots=True)
class Posterior(Result):
    """Bayesian summary of delta: mean, equal-tailed interval, P(delta > 0) and P(|delta| < margin)."""

    mean: float
    low: float
    high: float
    p_positive: float
    p_within: float | None
    margin: float | None
    level: float
    prior: tuple[float, float, float]


def posterior(
    wins: int,
    losses: int,
    n: int,
    *,
    prior: Sequence[float] = (1.0, 1.0, 1.0),
    margin: float | None = None,
    level: float = 0.95,
) -> Posterior:
    """Posterior of delta = P(win) - P(loss) under a Dirichlet prior on (win, loss, tie).

    Independent Beta posteriors of the discordance theta and the share of wins psi; delta = theta (2 psi - 1). Its
    distribution function is one integral over theta, done by double-exponential quadrature: no sampling, no seed.

    Parameters
    ----------
    prior
        Weights for win, loss, tie, each positive; (1, 1, 1) is uniform.
    margin
        If given, P(|delta| < margin) is returned too.
    """
    c, b, total = table(wins, losses, n)
    a_win, a_loss, a_tie = (float(weight) for weight in prior)
    if not all(weight > 0 and math.isfinite(weight) for weight in (a_win, a_loss, a_tie)):
        raise StatsError("prior weights must be positive")
    probability(level, "level")
    model = _Difference(c + a_win, b + a_loss, total - b - c + a_tie)
    tail = (1.0 - level) / 2.0
    within = None
    if margin is not None:
        limit = probability(margin, "margin")
        within = model.cdf(limit) - model.cdf(-limit)
    return Posterior(
        (c + a_win - b - a_loss) / (total + a_win + a_loss + a_tie),
        root(lambda x: model.cdf(x) - tail, -1.0, 1.0, 1e-12),
        root(lambda x: model.cdf(x) - 1.0 + tail, -1.0, 1.0, 1e-12),
        1.0 - model.cdf(0.0),
        within,
        margin,
        level,
        (a_win, a_loss, a_tie),
    )


@lru_cache(maxsize=1)
def _nodes() -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Double-exponential rule on (0, 1): points, one minus the points, weights (Takahasi and Mori 1974)."""
    import numpy as np

    t = np.linspace(-5.5, 5.5, 513)
    s = np.pi * np.sinh(t)
    u, rest = 1.0 / (1.0 + np.exp(-s)), 1.0 / (1.0 + np.exp(s))
    return u, rest, np.pi * np.cosh(t) * u * rest * (t[1] - t[0])


class _Difference:
    """Distribution of theta (2 psi - 1), theta ~ Beta(win + loss, tie), psi ~ Beta(win, loss)."""

    def __init__(self, win: float, loss: float, tie: float) -> None:
        from scipy.special import betaincinv, betaln

        self._win, self._loss, self._tie = win, loss, tie
        self._log_beta = float(betaln(win + loss, tie))
        # outside these quantiles theta has no weight that a double could hold
        self._low = float(betaincinv(win + loss, tie, 1e-18))
        self._high = 1.0 - float(betaincinv(tie, win + loss, 1e-18))

    def cdf(self, x: float) -> float:
        """P(delta <= x)."""
        from scipy.special import betainc

        if x == 0.0:
            return float(betainc(self._win, self._loss, 0.5))
        if abs(x) >= 1.0:
            return float(x > 0)
        start = max(abs(x), self._low)
        reached = self._integral(start, x) if start < self._high else 0.0
        # theta below |x|: delta is certainly below a positive x, and certainly above a negative one
        certain = float(betainc(self._win + self._loss, self._tie, x)) if x > 0 else 0.0
        return min(1.0, certain + reached)

    def _integral(self, start: float, x: float) -> float:
        """Integral over theta from ``start`` on of the density times P(psi <= (x/theta + 1)/2).

        The double-exponential rule takes the power singularities at both ends (small prior weights, the kink at
        theta = |x|); distances from the ends are formed without cancellation.
        """
        import numpy as np
        from scipy.special import betainc

        u, rest, weights = _nodes()
        span = self._high - start
        theta = start + span * u
        from_one = (1.0 - self._high) + span * rest
        log_density = (
            (self._win + self._loss - 1.0) * np.log(theta) + (self._tie - 1.0) * np.log(from_one) - self._log_beta
        )
        y = ((start - abs(x)) + span * u) / (2.0 * theta)  # (1 - |x|/theta)/2
        share = betainc(self._win, self._loss, y) if x < 0 else 1.0 - betainc(self._loss, self._win, y)
        return float(weights @ (np.exp(log_density) * share)) * span
