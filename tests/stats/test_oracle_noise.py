"""aa_noise.json (exact enumeration, equal to R, 1e-9) and repeats_r.json with repeats_22x3.csv (R, 1e-9).

GEE and the mixed logistic model of repeats_r.json are sensitivity analyses that the package does not offer.
"""

from __future__ import annotations

import csv
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pairtrial import stats

ORACLES = Path(__file__).parents[2] / "stats" / "oracles"
AA: dict[str, Any] = json.loads((ORACLES / "aa_noise.json").read_text())
R: dict[str, Any] = json.loads((ORACLES / "repeats_r.json").read_text())


def close(value: float) -> Any:
    return pytest.approx(value, abs=1e-9)


def test_pass_at_k_and_pass_hat_k() -> None:
    for case in AA["pass_k_single_task"]:
        assert stats.pass_at_k(case["n"], case["c"], case["k"]) == close(case["pass_at_k_float"])
        assert stats.pass_hat_k(case["n"], case["c"], case["k"]) == close(case["pass_hat_k_float"])
    for case in AA["pass_k_mean_over_tasks"]:
        assert stats.pass_at_k(case["n"], case["successes"], case["k"]) == close(case["pass_at_k"])
        assert stats.pass_hat_k(case["n"], case["successes"], case["k"]) == close(case["pass_hat_k"])
    assert stats.pass_at_k(3, [1, 2], 4) is None
    assert stats.pass_hat_k(3, 2, 4) is None


def test_flip_rate_within_an_arm() -> None:
    for case in AA["flip_rate_within_arm"]:
        got = stats.within_arm_flip_rate(case["successes"], case["repeats"])
        assert got.flip_rate_exact == Fraction(case["flip_rate"])
        assert got.per_task == tuple(map(Fraction, case["per_task"]))
        assert got.variance == close(case["mean_within_variance_unbiased"])


def test_aa_table() -> None:
    for case in AA["aa_table"]:
        cells = case["both"], case["control_only"], case["replicate_only"], case["neither"]
        got = stats.agreement(*cells)
        assert (got.flip_rate, got.net_delta) == close((case["flip_rate"], case["net_delta"]))  # type: ignore[arg-type]
        assert got.kappa == (None if case["kappa"] is None else close(case["kappa"]))
        assert stats.kappa(*cells) == got.kappa


def test_odd_one_out() -> None:
    for case in AA["odd_one_out_test"]:
        got = stats.odd_one_out(case["treatment_is_odd_one"], case["mixed_tasks"])
        assert got.p_exact == Fraction(case["p_one_sided_fraction"])
        assert got.p == close(case["p_one_sided"])
        midp = stats.odd_one_out(case["treatment_is_odd_one"], case["mixed_tasks"], "midp")
        assert midp.p == close(case["midp_one_sided"])
    worked = AA["odd_one_out_worked"]
    got = stats.odd_one_out_rows(worked["rows_control_replicate_treatment"])
    assert got.p_exact == Fraction(worked["p_one_sided"])
    assert got.statistic == worked["treatment_is_odd"]


def test_sign_flip() -> None:
    for case in AA["sign_flip_exact"]:
        assert stats.sign_flip(case["deltas_int"]).p == close(case["p_two_sided"])
        assert stats.sign_flip(case["deltas_int"], alternative="greater").p == close(case["p_one_sided_greater"])


@pytest.mark.parametrize("case", AA["within_task_permutation"], ids=lambda case: case["id"])
def test_within_task_permutation(case: dict[str, Any]) -> None:
    arms = case["treatment"], case["control"], case["repeats"]
    assert stats.cmh(*arms).p == close(case["exact_cmh_two_sided_prob_ordering"])
    assert stats.cmh(*arms, tail="deviation").p == close(case["exact_cmh_two_sided_abs_deviation"])
    assert stats.cmh(*arms, alternative="greater").p == close(case["exact_cmh_one_sided"])
    q = stats.q_test(*arms)
    assert (q.statistic, q.null_mean, q.p) == close((case["Q_observed"], case["Q_null_mean"], case["Q_p"]))  # type: ignore[arg-type]


def test_variance_components() -> None:
    case = AA["variance_components"]
    got = stats.variance_components(case["treatment"], case["control"], case["repeats"])
    want = {
        "mean": "mean",
        "variance": "var_of_task_differences",
        "sigma2_control": "sigma2_C",
        "sigma2_treatment": "sigma2_T",
        "noise": "replicate_noise_part",
        "omega2_unclipped": "omega2_unclipped",
        "omega2": "omega2",
        "se": "se_mean",
        "share": "share_of_variance_from_replicates",
    }
    for field, key in want.items():
        assert getattr(got, field) == close(case[key]), field
    assert not got.clipped


def test_clustered_standard_error() -> None:
    case = AA["clustered_se"]
    deltas = [Fraction(value, 3) for value in case["deltas_times_3"]]
    got = stats.clustered_t(deltas, case["repo"])
    assert got.se is not None
    assert got.se == close(case["se_clustered"])
    assert got.df == 5
    assert got.reason == "unreliable: 6 clusters, at least 10 are needed"
    assert got.se * (6 / 5) ** 0.5 == close(case["se_clustered_G_adjusted"])
    assert stats.paired_t(deltas).se == close(case["se_unclustered"])


def counts_from_csv() -> dict[str, list[int]]:
    out: dict[str, list[int]] = {}
    with (ORACLES / "repeats_22x3.csv").open() as file:
        for row in csv.DictReader(file):
            arm = out.setdefault(row["arm"], [0] * 22)
            arm[int(row["task"]) - 1] += int(row["solved"])
    return out


def test_r_on_22_tasks_three_repetitions() -> None:
    arms, repo = counts_from_csv(), R["counts"]["repo"]
    for name, want in R["anova"].items():
        assert arms[name] == R["counts"][name]
        got = stats.icc(arms[name], 3)
        assert got.icc == close(want["icc1"])
        for field in ("msb", "msw", "sigma2_within", "sigma2_between"):
            assert getattr(got, field) == close(want[field])
    c, a, t = arms["control"], arms["control_aa"], arms["treatment"]
    treated = [y - x for x, y in zip(c, t, strict=True)]
    replicated = [y - x for x, y in zip(c, a, strict=True)]
    mean, want = stats.paired_t([x / 3 for x in treated]), R["paired_task_mean"]
    assert (mean.estimate, mean.se, mean.t, mean.p) == close((want["mean"], want["se"], want["t"], want["t_p"]))  # type: ignore[arg-type]
    assert [mean.low, mean.high] == close(want["t_ci95"])
    other, want = stats.paired_t([x / 3 for x in replicated]), R["aa_task_mean"]
    assert (other.estimate, other.se) == close((want["mean"], want["se"]))  # type: ignore[arg-type]
    assert stats.sign_flip(treated).p == close(R["signflip_exact_treatment_vs_control"])
    assert stats.sign_flip(replicated).p == close(R["signflip_exact_aa_vs_control"])
    assert stats.cmh(t, c, 3).p == close(R["exact_cmh_treatment_vs_control"]["exact_p"])
    assert stats.cmh(a, c, 3).p == close(R["exact_cmh_aa_vs_control"]["exact_p"])
    clustered = stats.clustered_t([x / 3 for x in treated], repo)
    assert clustered.se == close(R["clustered_by_repo"]["se_no_small_sample_adjustment"])
