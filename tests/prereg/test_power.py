"""`power`: the figures of the oracles, by name."""

from __future__ import annotations

import pytest
from factories import make_plan

from pairtrial.prereg.power import Components, power_table


def test_the_table_for_22_tasks_is_the_published_one() -> None:
    """n = 22: 0.4 needs 36.7 pp, 0.5 needs 41.5 pp; below that no effect is found with 80 %."""
    table = power_table(make_plan(tasks={"pack": "p", "ids": [f"t{i}" for i in range(22)]}))
    rows = {row.discordance: row for row in table.discordance}
    assert rows[0.4].mde == pytest.approx(0.367)
    assert rows[0.5].mde == pytest.approx(0.415)
    assert [rows[share].mde for share in (0.1, 0.2, 0.3)] == [None, None, None]
    assert [round(rows[share].max_power, 3) for share in (0.1, 0.2, 0.3)] == [0.018, 0.267, 0.687]
    assert round(rows[0.2].floor_chance, 3) == 0.267


def test_repetitions_buy_only_the_replicate_noise() -> None:
    """omega2 = 0.04 alone: no number of repetitions helps; noise alone: four repetitions halve the effect."""
    plan = make_plan(tasks={"pack": "p", "ids": [f"t{i}" for i in range(20)]})
    steady = [d.mde for d in power_table(plan, Components(0.04, 0.0, 0.0)).designs if d.tasks == 20]
    assert steady == pytest.approx([steady[0]] * len(steady))
    noisy = {d.repetitions: d.mde for d in power_table(plan, Components(0.0, 0.1, 0.1)).designs if d.tasks == 20}
    assert noisy[1] is not None and noisy[10] is not None
    assert noisy[10] == pytest.approx(noisy[1] / 10**0.5)


def test_the_cost_is_rollouts_times_the_cap() -> None:
    money = {"ceiling_usd": 100, "per_rollout_usd": 0.5}
    plan = make_plan(tasks={"pack": "p", "ids": [f"t{i}" for i in range(20)]}, budget=money)
    first = power_table(plan).designs[0]
    assert (first.tasks, first.rollouts, first.cost_usd) == (20, 60, "30.0")
