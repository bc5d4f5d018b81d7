"""sequential.json: exact fractions, 1e-6 for what mpmath computed.

The group-sequential boundaries of that file are not offered: normal theory is poor with 22 tasks.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pairtrial import stats

DATA: dict[str, Any] = json.loads((Path(__file__).parents[2] / "stats" / "oracles" / "sequential.json").read_text())


@pytest.mark.parametrize("case", DATA["e_values"], ids=lambda c: f"{c['wins']}-{c['losses']}")
def test_e_values(case: dict[str, Any]) -> None:
    wins, losses = case["wins"], case["losses"]
    two, one = stats.e_value(wins, losses), stats.e_value(wins, losses, "one-sided")
    if case["e_two_sided_uniform_fraction"]:
        assert two.e_exact == Fraction(case["e_two_sided_uniform_fraction"])
    assert two.e == pytest.approx(case["e_two_sided_uniform"], rel=1e-12)
    assert two.p == pytest.approx(case["anytime_p_two_sided_uniform"], rel=1e-12)
    assert one.e == pytest.approx(case["e_one_sided_uniform"], rel=1e-12)
    assert stats.e_value(wins, losses, "jeffreys").e == pytest.approx(case["e_two_sided_jeffreys"], rel=1e-9)
    assert two.rejects(0.05) == case["reject_0_05"]
    assert one.rejects(0.05) == case["reject_0_05_one_sided"]


def test_discordant_needed_all_one_way() -> None:
    kinds = {"two_sided_uniform": "two-sided", "one_sided_uniform": "one-sided", "two_sided_jeffreys": "jeffreys"}
    for key, kind in kinds.items():
        need = DATA["discordant_needed_all_one_way"][key]
        assert stats.e_value(need, 0, kind).rejects()
        assert not stats.e_value(need - 1, 0, kind).rejects()


@pytest.mark.parametrize(("key", "psi"), [("ville_exact_under_H0", 0.5), ("power_exact_psi_0_8", 0.8)])
def test_probability_of_ever_rejecting(key: str, psi: float) -> None:
    for kind, name in (("two-sided", "two_sided_uniform"), ("one-sided", "one_sided_uniform")):
        for looks, want in DATA[key][name].items():
            assert stats.stopping_probability(int(looks), psi, kind=kind) == pytest.approx(want, abs=1e-12)


def test_naive_peeking() -> None:
    for looks, want in DATA["naive_peeking_type_I_error"]["by_max_discordant"].items():
        assert stats.stopping_probability(int(looks), rule="exact") == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("case", DATA["confidence_sequence"], ids=lambda c: f"{c['wins']}-{c['losses']}")
def test_confidence_sequence(case: dict[str, Any]) -> None:
    got = stats.confidence_sequence(case["wins"], case["losses"])
    assert [got.low, got.high] == pytest.approx(case["cs95_psi"], abs=1e-6)


def test_anytime_p_keeps_the_best_look() -> None:
    outcomes = [True] * 8 + [False] * 8
    assert stats.anytime_p(outcomes) == 0.03515625  # 9/256, reached after the eighth win
    assert stats.e_value(8, 8).p == 1.0
    assert stats.anytime_p([]) == 1.0
