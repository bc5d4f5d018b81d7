"""secondary.json: R wilcox.test, exactRankTests, coin, t.test; 1e-8."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from pairtrial import stats

DATA: dict[str, Any] = json.loads((Path(__file__).parents[2] / "stats" / "oracles" / "secondary.json").read_text())


def close(value: float) -> Any:
    return pytest.approx(value, abs=1e-8)


@pytest.mark.parametrize("case", DATA["wilcoxon"], ids=lambda case: case["id"])
def test_wilcoxon(case: dict[str, Any]) -> None:
    x, y = case["x"], case["y"]
    exact = stats.wilcoxon(x, y)
    assert exact.statistic == case["V"]
    assert exact.p == close(case["p_exact_conditional_zero_dropped"])
    assert stats.wilcoxon(x, y, alternative="greater").p == close(case["p_exact_greater_zero_dropped"])
    assert stats.wilcoxon(x, y, zeros="pratt").p == close(case["p_exact_pratt"])
    assert stats.wilcoxon(x, y, method="normal").p == close(case["p_normal_corrected"])
    assert stats.wilcoxon(x, y, method="normal", correction=False).p == close(case["p_normal_uncorrected"])
    default = exact if case["default_is_exact"] else stats.wilcoxon(x, y, method="normal")
    assert default.p == close(case["p_r_wilcox_test_default"])


@pytest.mark.parametrize("case", DATA["wilcoxon"], ids=lambda case: case["id"])
def test_hodges_lehmann(case: dict[str, Any]) -> None:
    got = stats.hodges_lehmann(case["x"], case["y"])
    assert got.estimate == close(case["hodges_lehmann_walsh_median"])
    if case["hodges_lehmann_r"] is not None:
        assert got.estimate == close(case["hodges_lehmann_r"])
        assert [got.low, got.high] == close(case["conf_int_r"])


def test_five_tasks_cannot_reach_95_percent() -> None:
    case = next(case for case in DATA["wilcoxon"] if case["id"] == "all_positive_5")
    got = stats.hodges_lehmann(case["x"], case["y"])
    assert got.achieved == 1 - 2 / 32
    assert got.reason == "5 tasks reach at most 0.9375 confidence"


def test_log_ratio() -> None:
    want = DATA["log_ratio"]
    got = stats.log_ratio(want["treatment"], want["control"])
    assert got.ratio == close(want["geometric_mean_ratio"])
    assert [got.low, got.high] == close(want["t_ci95_ratio"])
    assert got.p == close(want["t_p"])
    for field in ("median_ratio", "ratio_of_means", "ratio_of_medians"):
        assert getattr(got, field) == close(want[field]), field
    for field in ("median_treatment", "median_control", "mean_treatment", "mean_control", "mean_difference"):
        assert getattr(got, field) == pytest.approx(want[field], rel=1e-12), field
    assert got.median_difference == want["median_difference"]
    treatment, control = ([math.log(x) for x in want[arm]] for arm in ("treatment", "control"))
    shift = stats.hodges_lehmann(treatment, control)
    assert shift.estimate is not None
    assert shift.low is not None
    assert shift.high is not None
    assert math.exp(shift.estimate) == close(want["hodges_lehmann_log_ratio_exp"])
    assert [math.exp(shift.low), math.exp(shift.high)] == close(want["hodges_lehmann_ci95_ratio"])


def test_cost_per_solved() -> None:
    want = DATA["cost_per_solved"]
    control = want["cost_control"], want["solved_control"]
    treatment = want["cost_treatment"], want["solved_treatment"]
    assert stats.cost_per_solved(*control).value == close(want["cost_per_solved_control"])
    assert stats.cost_per_solved(*treatment).value == close(want["cost_per_solved_treatment"])
    got = stats.compare_cost_per_solved(*treatment, *control)
    assert got.difference == close(want["difference"])
    assert got.se_difference == close(want["se_difference_linearised"])
    assert got.se_difference_jackknife == close(want["se_difference_jackknife"])
    assert got.log_ratio == close(want["log_ratio"])
    assert got.se_log_ratio == close(want["se_log_ratio_linearised"])
    assert got.se_log_ratio_jackknife == close(want["se_log_ratio_jackknife"])
    # the trap: among solved tasks only, the treatment looks dearer
    for arm, key in ((control, "control"), (treatment, "treatment")):
        solved = [cost for cost, done in zip(*arm, strict=True) if done]
        assert sum(solved) / len(solved) == close(want[f"mean_cost_on_solved_only_{key}"])
    assert want["mean_cost_on_solved_only_treatment"] > want["mean_cost_on_solved_only_control"]
    assert got.ratio is not None
    assert got.ratio < 1
