"""power.json: full enumeration with fractions, equal to R loops and MESS; 1e-8."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from pairtrial import stats

DATA: dict[str, Any] = json.loads((Path(__file__).parents[2] / "stats" / "oracles" / "power.json").read_text())


@pytest.mark.parametrize("case", DATA["power"], ids=lambda c: f"n{c['n']}_pd{c['p_discordant']}_d{c['delta']}")
def test_power(case: dict[str, Any]) -> None:
    where = case["n"], case["p_discordant"], case["delta"]
    assert stats.power(*where) == pytest.approx(case["exact_test_power"], abs=1e-8)
    assert stats.power(*where, method="midp") == pytest.approx(case["midp_test_power"], abs=1e-8)
    assert stats.power(*where, method="connor") == pytest.approx(case["connor_normal_power"], abs=1e-8)


@pytest.mark.parametrize("case", DATA["mde"], ids=lambda c: f"n{c['n']}_pd{c['p_discordant']}")
def test_mde(case: dict[str, Any]) -> None:
    for method in ("exact", "midp"):
        got = stats.mde(case["n"], case["p_discordant"], case["power"], case["alpha"], method)
        assert got.delta == pytest.approx(case[f"mde_{method}"], abs=1e-9)
        assert (got.reason is None) == (case[f"mde_{method}"] is not None)
        if f"max_power_{method}" in case:
            assert got.max_power == pytest.approx(case[f"max_power_{method}"], abs=1e-8)
    if "mde_connor" in case:
        got = stats.mde(case["n"], case["p_discordant"], case["power"], case["alpha"], "connor")
        assert got.delta == pytest.approx(case["mde_connor"], abs=1e-9)


@pytest.mark.parametrize("case", DATA["decision_boundary"], ids=lambda c: f"m{c['discordant']}")
def test_decision_boundary(case: dict[str, Any]) -> None:
    m = case["discordant"]
    for method in ("exact", "midp"):
        for alpha in (0.05, 0.025, 0.01):
            assert stats.max_losses(m, alpha, method) == case[f"max_minority_{method}_{alpha}"]
        assert stats.mcnemar(m, 0, method).p == case[f"best_p_{method}"]


@pytest.mark.parametrize("method", ["exact", "midp"])
def test_floor(method: str) -> None:
    for alpha, floor in DATA["floor"][method].items():
        assert stats.floor_discordant(float(alpha), method=method) == floor
    assert [stats.floor_discordant(comparisons=k) for k in range(1, 7)] == [6, 7, 7, 8, 8, 8]


@pytest.mark.parametrize("case", DATA["probability_of_reaching_floor"], ids=lambda c: f"n{c['n']}_{c['p_discordant']}")
def test_reaching_the_floor(case: dict[str, Any]) -> None:
    got = stats.chance_to_reach_floor(case["n"], case["p_discordant"])
    assert got == pytest.approx(case["p_at_least_6_discordant"], abs=1e-12)


@pytest.mark.parametrize("case", DATA["sample_size_connor"], ids=lambda c: f"pd{c['p_discordant']}_d{c['delta']}")
def test_connor_sample_size(case: dict[str, Any]) -> None:
    where = case["p_discordant"], case["delta"], case["power"]
    assert stats.connor_sample_size(*where) == pytest.approx(case["n_connor_real"], abs=1e-8)
    assert stats.sample_size(*where) == case["n_connor"]


def test_miller() -> None:
    infinite, once, five = DATA["miller_formula"]
    got = stats.tasks_for_repetitions(infinite["delta"], infinite["omega2"], 0.0, 0.0, power=infinite["power"])
    assert got == pytest.approx(infinite["n"], abs=1e-8)
    for case in (once, five):
        got = stats.mde_repetitions(case["n"], case["omega2"], case["sA2"], case["sB2"], case["K"])
        assert got == pytest.approx(case["mde"], abs=1e-9)


def test_significance_filter() -> None:
    # n = 22, 30% discordant, true +10 points: a significant result shows 33 points, 3.3 times too large
    got = stats.significance_inflation(22, 0.3, 0.1)
    assert got.power == pytest.approx(0.0555283983, abs=1e-9)
    assert got.mean_significant == pytest.approx(0.33, abs=0.005)
    assert got.factor == pytest.approx(3.3, abs=0.05)
    assert got.wrong_sign is not None
    assert 0 < got.wrong_sign < 0.5


def test_significance_filter_by_hand() -> None:
    # six tasks, all discordant: only 6-0 and 0-6 are significant, and both show 100 points
    got = stats.significance_inflation(6, 1.0, 0.5)
    assert got.power == pytest.approx(0.75**6 + 0.25**6)
    assert got.mean_significant == pytest.approx(1.0)
    assert got.factor == pytest.approx(2.0)
    assert got.wrong_sign == pytest.approx(0.25**6 / (0.75**6 + 0.25**6))
    assert stats.significance_inflation(5, 1.0, 0.5).reason == "no result of this design can be significant"


@pytest.mark.parametrize("method", ["exact", "midp"])
def test_boundary_recursion_equals_direct_search(method: str) -> None:
    for m in range(1, 60):
        fits = [k for k in range((m + 1) // 2) if stats.mcnemar(m - k, k, method).rejects(0.05)]
        assert stats.max_losses(m, 0.05, method) == max(fits, default=None)


def test_power_of_thousands_of_tasks_is_finite() -> None:
    assert math.isclose(stats.power(5000, 0.2, 0.03), 0.997, abs_tol=0.002)
