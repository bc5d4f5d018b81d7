"""What a plan can show: minimal detectable effects, the chance to reach the floor, and what more runs would buy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

from pairtrial import stats
from pairtrial.prereg.plan import Plan
from pairtrial.prereg.review import floor

DISCORDANCE = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
MORE_TASKS = (1.0, 1.5, 2.0, 4.0)
MORE_REPETITIONS = (1, 2, 3, 5, 10)


@dataclass(frozen=True, slots=True)
class DiscordanceRow:
    """One share of discordant tasks, one repetition."""

    discordance: float
    floor_chance: float
    """Probability that the floor of discordant tasks is reached."""
    mde: float | None
    """Smallest difference found with the target power; None: not reachable."""
    max_power: float
    """Power when every discordant task is a win."""


@dataclass(frozen=True, slots=True)
class DesignRow:
    """A design with other numbers of tasks or repetitions."""

    tasks: int
    repetitions: int
    mde: float | None
    rollouts: int
    cost_usd: str | None
    """Upper bound: rollouts times the registered cap; None where nothing is paid."""


@dataclass(frozen=True, slots=True)
class PowerTable:
    """What `pairtrial power` prints."""

    tasks: int
    repetitions: int
    alpha: float
    """After the first step of Holm: the registered alpha over the number of comparisons."""
    target: float
    floor: int
    discordance: tuple[DiscordanceRow, ...]
    designs: tuple[DesignRow, ...]
    components: dict[str, float] | None
    """Variance components that the designs with repetitions rest on, from an earlier run."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Components:
    """Variance components of an earlier run, per task and single run."""

    omega2: float
    sigma2_control: float
    sigma2_treatment: float


def power_table(plan: Plan, components: Components | None = None) -> PowerTable:
    """The table of a plan.

    Without ``components`` only designs with one repetition have a figure: what repetitions buy depends on how noisy a
    task is, which nothing but an earlier run can say.
    """
    tasks, target = len(plan.tasks.ids), plan.analysis.power_target
    alpha = plan.analysis.alpha / len(plan.analysis.family)
    needed = floor(plan)
    shares = sorted({*DISCORDANCE, *plan.analysis.plausible_discordance})
    rows = []
    for share in shares:
        found = stats.mde(tasks, share, target, alpha)
        reach = stats.chance_to_reach_floor(tasks, share, floor=needed)
        rows.append(DiscordanceRow(share, reach, found.delta, found.max_power))
    return PowerTable(
        tasks=tasks,
        repetitions=plan.repetitions,
        alpha=alpha,
        target=target,
        floor=needed,
        discordance=tuple(rows),
        designs=tuple(_designs(plan, tasks, target, alpha, components)),
        components=asdict(components) if components else None,
    )


def _designs(plan: Plan, tasks: int, target: float, alpha: float, components: Components | None) -> list[DesignRow]:
    share = max(plan.analysis.plausible_discordance)
    rows = []
    for factor in MORE_TASKS:
        n = round(tasks * factor)
        for repetitions in MORE_REPETITIONS if components else (1,):
            if components is None:
                mde = stats.mde(n, share, target, alpha).delta
            else:
                mde = stats.mde_repetitions(
                    n,
                    components.omega2,
                    components.sigma2_control,
                    components.sigma2_treatment,
                    repetitions,
                    target,
                    alpha,
                )
            rollouts = n * repetitions * len(plan.arms)
            cap = plan.budget.per_rollout_usd
            cost = str(Decimal(rollouts) * cap) if cap else None
            rows.append(DesignRow(n, repetitions, mde, rollouts, cost))
    return rows
