"""missing.json: brute force over every imputation; exact."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pairtrial import stats

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "stats" / "oracles" / "missing.json").read_text()
)["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_bounds(case: dict[str, Any]) -> None:
    got = stats.bounds(case["rows_control_treatment"])
    assert (got.n, got.n_complete, got.imputations) == (case["n"], case["n_complete"], case["n_imputations"])
    for table, key in ((got.complete, "complete_pairs"), (got.intention_to_treat, "itt_missing_is_failure")):
        want = case[key]
        assert (table.losses, table.wins) == (want["control_only"], want["treatment_only"])
        assert table.delta_exact == Fraction(want["delta"])
        assert table.p == want["p"]
    assert [got.worst.delta_exact, got.best.delta_exact] == list(map(Fraction, case["delta_bounds"]))
    assert [got.p_low, got.p_high] == case["p_bounds"]
    assert (got.worst.p, got.best.p) == (case["p_at_worst_case"], case["p_at_best_case"])
    assert got.any_significant == case["any_imputation_significant"]
    assert got.all_significant == case["all_imputations_significant"]
    assert got.tipping_point == brute_force_tipping_point(case["rows_control_treatment"])


def brute_force_tipping_point(rows: list[list[int | None]]) -> int | None:
    """Fill every missing run with 0 and 1 and look for the fewest ones that change the verdict of all zeros."""

    def verdict(filled: list[list[int]]) -> int:
        wins, losses = sum(t > c for c, t in filled), sum(t < c for c, t in filled)
        return (wins > losses) - (wins < losses) if stats.mcnemar(wins, losses).rejects(0.05) else 0

    holes = sum(row.count(None) for row in rows)

    def fill(values: tuple[int, ...]) -> list[list[int]]:
        left = iter(values)
        return [[next(left) if run is None else run for run in row] for row in rows]

    base = verdict(fill((0,) * holes))
    tips = [sum(v) for v in itertools.product((0, 1), repeat=holes) if verdict(fill(v)) != base]
    return min(tips, default=None)


def test_tipping_point_by_hand() -> None:
    # six wins, two more treatment runs missing where the control solved: as failures they are two losses (8 to be
    # discordant, p 0.289); one success leaves 6-1 (0.125), two leave 6-0 (0.031)
    rows = [(0, 1)] * 6 + [(1, 1)] * 6 + [(0, 0)] * 8
    rows_missing: list[tuple[int, int | None]] = [*rows, (1, None), (1, None)]
    assert stats.bounds(rows_missing).tipping_point == 2
    assert stats.bounds(rows).tipping_point is None


def test_repeated_runs() -> None:
    control: list[list[int | None]] = [[0, 0, 0], [1, None, 1], [0, 1, 0]]
    treatment: list[list[int | None]] = [[1, 1, None], [1, 1, 1], [0, 0, None]]
    got = stats.repeated_bounds(treatment, control)
    assert (got.missing_control, got.missing_treatment) == (1, 2)
    # worst: +2, 0, -1 of nine runs; best: +3, +1, 0
    assert got.delta_low == pytest.approx(1 / 9)
    assert got.delta_high == pytest.approx(4 / 9)
    assert got.p_worst.p == 1.0
    assert got.p_best.p == 0.5
