"""Methods that the study compares with and that the package does not offer."""

from __future__ import annotations

import math
from statistics import NormalDist


def wald(wins: int, losses: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Wald interval, not clipped: zero width without a discordant task, which is why it is not offered."""
    z = NormalDist().inv_cdf(0.5 + level / 2)
    delta = (wins - losses) / n
    half = z * math.sqrt(wins + losses - (wins - losses) ** 2 / n) / n
    return delta - half, delta + half
