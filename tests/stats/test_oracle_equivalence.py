"""equivalence.json: z and p 1e-6, posterior probabilities 1e-6 and limits 1e-5 (R contingencytables, R integrate)."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pairtrial import stats

DATA: dict[str, Any] = json.loads((Path(__file__).parents[2] / "stats" / "oracles" / "equivalence.json").read_text())


@pytest.mark.parametrize("case", DATA["cases"], ids=lambda case: case["id"])
def test_tost(case: dict[str, Any]) -> None:
    for want in case["tost"]:
        got = stats.tost(case["treatment_only"], case["control_only"], case["n"], want["margin"])
        assert (got.z_lower, got.z_upper) == pytest.approx((want["z_lower"], want["z_upper"]), abs=1e-6)
        assert (got.p_lower, got.p_upper) == pytest.approx((want["p_lower"], want["p_upper"]), abs=1e-6)
        assert got.p == pytest.approx(want["p_tost"], abs=1e-6)
        if "equivalent" in want:
            assert got.equivalent == want["equivalent"]


@pytest.mark.parametrize("case", DATA["cases"], ids=lambda case: case["id"])
def test_posterior(case: dict[str, Any]) -> None:
    for want in case["bayes"]:
        prior = want["prior_win_loss_tie"]
        counts = case["treatment_only"], case["control_only"], case["n"]
        near = stats.posterior(*counts, prior=prior, margin=0.05)
        assert near.mean == pytest.approx(want["mean_delta"], abs=1e-9)
        assert near.p_positive == pytest.approx(want["p_delta_gt_0"], abs=1e-6)
        assert near.p_within == pytest.approx(want["p_abs_delta_lt_0.05"], abs=1e-6)
        assert [near.low, near.high] == pytest.approx(want["cri95"], abs=1e-5)
        wide = stats.posterior(*counts, prior=prior, margin=0.1)
        assert wide.p_within == pytest.approx(want["p_abs_delta_lt_0.10"], abs=1e-6)
        if want.get("p_delta_gt_0_fraction"):
            assert near.p_positive == pytest.approx(float(Fraction(want["p_delta_gt_0_fraction"])), rel=1e-9)


def test_attainability() -> None:
    for row in DATA["equivalence_attainable"]["table"]:
        margin, need = row["margin"], row["min_tasks"]
        assert stats.min_tasks_for_margin(margin) == need
        assert stats.tost(0, 0, need, margin).equivalent
        short = stats.tost(0, 0, need - 1, margin)
        assert not short.equivalent
        assert not short.attainable
        assert short.reason == f"not attainable: at least {need} tasks are needed for this margin"


def test_zero_discordant_half_widths() -> None:
    for row in DATA["zero_discordant_half_width"]:
        n = row["n"]
        assert stats.tango(0, 0, n, 0.9).high == pytest.approx(row["tango90_half_width_zero_discordant"], abs=1e-9)
        assert stats.tango(0, 0, n, 0.95).high == pytest.approx(row["tango95_half_width_zero_discordant"], abs=1e-9)
        # one-sided exact upper limit of the discordance rate, at 95%
        upper = stats.clopper_pearson(0, n, 0.9).high
        assert upper == pytest.approx(row["exact95_upper_discordance_rate"], abs=1e-9)


def test_s_values() -> None:
    for row in DATA["s_values"]:
        assert stats.s_value(Fraction(row["p"])) == pytest.approx(row["s_bits"], abs=1e-12)
        assert stats.s_value(float(Fraction(row["p"]))) == pytest.approx(row["s_bits"], abs=1e-12)
    assert stats.s_value(stats.mcnemar(6, 0)) == 5.0
    assert stats.s_value(None) is None
