"""Known ways to publish a false number, each planted and caught."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from fractions import Fraction

import pytest

from pairtrial import stats

SEED = [1, 1, -1] + [0] * 19


def points(*ends: float | None) -> list[float]:
    """Percentage points to one decimal, as a report prints them."""
    return [round(100 * end, 1) for end in ends if end is not None]


def test_seed_headline() -> None:
    test = stats.mcnemar(2, 1)
    assert (test.p, test.p_exact) == (1.0, Fraction(1))
    assert stats.mcnemar(2, 1, "midp").p == 0.625
    strict, mid, score = stats.bca(SEED, ties="strict"), stats.bca(SEED), stats.tango(2, 1, 22)
    assert points(score.estimate) == [4.5]
    assert points(strict.low, strict.high) == [-13.6, 13.6]
    assert points(mid.low, mid.high) == [-9.1, 22.7]
    assert points(score.low, score.high) == [-14.9, 24.5]
    bonett, plain, newcombe = stats.bonett_price(2, 1, 22), stats.percentile(SEED), stats.newcombe(2, 1, 12, 7)
    assert points(bonett.low, bonett.high) == [-14.0, 22.4]
    assert points(plain.low, plain.high) == [-9.1, 18.2]
    assert points(newcombe.low, newcombe.high) == [-12.4, 21.0]
    belief = stats.posterior(2, 1, 22, margin=0.05)
    assert points(belief.low, belief.high) == [-13.3, 21.9]
    assert belief.p_positive == pytest.approx(0.6875)
    assert belief.p_within == pytest.approx(0.42, abs=0.005)
    assert stats.floor_discordant() == 6
    assert stats.max_losses(3) is None
    assert stats.s_value(test) == 0.0


def test_the_strict_end_is_a_knife_edge_and_is_hit() -> None:
    strict = stats.bca(SEED, ties="strict")
    cumulative = stats.bootstrap_distribution(SEED).cumulative()
    lattice = stats.bootstrap_distribution(SEED)
    index = int(Fraction(3, 22) / lattice.step) - lattice.first
    assert strict.alpha_high is not None
    assert 0 < cumulative[index] - strict.alpha_high < 3e-6


def test_chi_square_of_a_thousand_tasks_is_not_nan() -> None:
    assert stats.mcnemar(700, 500).p == pytest.approx(8.535366081e-9, rel=1e-9)
    assert stats.mcnemar(500, 700).p == stats.mcnemar(700, 500).p
    assert stats.mcnemar(1500, 500).p == pytest.approx(9.824426506853973e-116, rel=1e-3)


@pytest.mark.parametrize("method", ["exact", "midp", "asymptotic", "corrected", "one-sided", "unconditional"])
def test_no_discordant_task_is_one_with_a_reason(method: str) -> None:
    got = stats.mcnemar(0, 0, method, n=22)
    assert (got.p, got.reason) == (1.0, "no discordant task, no information")


def test_continuity_correction_is_clamped() -> None:
    # without the clamp one win and one loss give p = 0.48
    assert stats.mcnemar(1, 1, "corrected").p == 1.0


def test_below_six_nothing_is_significant() -> None:
    for m in range(6):
        assert not any(stats.mcnemar(k, m - k).rejects(0.05) for k in range(m + 1))
    assert stats.mcnemar(6, 0).rejects(0.05)


def test_intervals_exclude_zero_where_the_test_does_not_reject() -> None:
    # why an interval never gives the verdict: four wins of 22
    assert (stats.tango(4, 0, 22).low or 0) > 0
    assert not stats.mcnemar(4, 0).rejects(0.05)
    assert (stats.bca([1] * 3 + [0] * 19).low or 0) > 0
    assert stats.mcnemar(3, 0).p == 0.25


def test_repetitions_are_not_tasks() -> None:
    # six tasks won by one of three runs each: as 18 tasks nothing changes in the sums, as tasks p is 1/32
    sums = [1] * 6 + [0] * 16
    assert stats.sign_flip(sums).p == 0.03125
    # one task solved three times instead of never is one task, not three wins
    assert stats.sign_flip([3] + [0] * 21).p == 1.0


def test_all_equal_deltas_have_no_bootstrap_interval() -> None:
    for value in (0, 1, Fraction(1, 3), 1 / 3, 0.1):
        got = stats.bca([value] * 22)
        assert (got.low, got.high, got.reason) == (None, None, "degenerate: all task deltas are equal")
    # 1/3 and 2/3 - 1/3 are two floats and one number; scipy prints a zero-width interval
    assert stats.bca([1 / 3, 2 / 3 - 1 / 3] * 11).low is None
    assert stats.bca([1]).low is None
    assert stats.bca([]).reason == "no task"
    assert stats.paired_t([1 / 3, 2 / 3 - 1 / 3] * 11).p is None
    assert stats.tango(0, 0, 22).high == pytest.approx(0.149, abs=5e-4)


def test_changes_that_cancel_are_found_by_the_odd_one_out_test() -> None:
    rows = [(0, 0, 1)] * 5 + [(1, 1, 0)] * 5 + [(1, 1, 1)] * 12
    assert stats.mcnemar(5, 5).p == 1.0
    assert stats.odd_one_out_rows(rows).p == pytest.approx(3.0**-10)


def test_noise_floor_of_three_flips() -> None:
    assert points(stats.noise_floor(3 / 22, 22), stats.noise_floor(3 / 22, 22, 3)) == [15.4, 8.9]


def test_a_missing_comparison_cannot_be_dropped_from_the_family() -> None:
    assert stats.holm([0.03]) == (0.03,)
    assert stats.holm([0.03, None])[0] == 0.06


def test_equivalence_cannot_be_claimed_with_22_tasks() -> None:
    got = stats.tost(0, 0, 22, 0.05)
    assert not got.attainable
    assert not got.equivalent
    assert got.reason == "not attainable: at least 52 tasks are needed for this margin"


def test_peeking_and_what_replaces_it() -> None:
    assert stats.stopping_probability(22, rule="exact") == pytest.approx(0.1066, abs=1e-4)
    assert stats.stopping_probability(22) < 0.05


def test_timeouts_are_not_averaged() -> None:
    got = stats.restricted_mean([10, 600, 600, None], [20, 30, 600, 600], 600)
    assert (got.censored_treatment, got.censored_control, got.both_censored) == (3, 2, 2)
    assert (got.mean_treatment, got.mean_control, got.difference) == (452.5, 312.5, 140.0)
    assert (got.shorter, got.longer, got.sign_test.p) == (1, 1, 1.0)


def test_nothing_solved_is_undefined_not_infinite() -> None:
    got = stats.cost_per_solved([1.0, 2.0], [0, 0])
    assert (got.value, got.se, got.reason) == (None, None, "no task solved")
    both = stats.compare_cost_per_solved([1.0, 2.0], [0, 0], [1.0, 2.0], [1, 0])
    assert (both.treatment, both.control, both.ratio) == (None, 3.0, None)
    assert both.reason == "no task solved by the treatment arm"


def test_one_lucky_task_has_no_jackknife() -> None:
    got = stats.compare_cost_per_solved([1.0, 2.0, 3.0], [1, 0, 0], [1.0, 2.0, 3.0], [1, 1, 0])
    assert got.se_difference is not None
    assert got.se_difference_jackknife is None
    assert got.reason == "one task holds all of an arm's successes or cost: no jackknife"


def test_cached_cost_of_zero_has_no_log() -> None:
    got = stats.log_ratio([0.0, 1.0, 2.0], [1.0, 1.0, 1.0])
    assert (got.ratio, got.low, got.mean_treatment, got.ratio_of_means) == (None, None, 1.0, 1.0)
    assert got.reason is not None
    assert "hodges_lehmann" in got.reason


def test_repetitions_of_a_task_are_averaged_on_the_log_scale() -> None:
    got = stats.log_ratio([[1.0, 4.0], [2.0, 2.0]], [[2.0, 2.0], [4.0, 1.0]])
    assert got.ratio == pytest.approx(1.0)
    assert got.reason == "degenerate: all task deltas are equal"


@pytest.mark.parametrize("bad", [-1, 1.5, math.nan, math.inf, "3", None])
def test_counts_must_be_whole_numbers(bad: object) -> None:
    with pytest.raises(stats.StatsError):
        stats.mcnemar(bad, 1)  # type: ignore[arg-type]
    with pytest.raises(stats.StatsError):
        stats.tango(1, 1, bad)  # type: ignore[arg-type]


def test_impossible_requests_name_their_fault() -> None:
    for call, message in (
        (lambda: stats.tango(3, 3, 5), "exceeds n"),
        (lambda: stats.tango(0, 0, 0), "no task"),
        (lambda: stats.tango(1, 1, 5, level=1.0), "level"),
        (lambda: stats.power(22, 0.1, 0.2), "cannot exceed"),
        (lambda: stats.pass_at_k(3, 4, 1), "exceed the 3 repetitions"),
        (lambda: stats.paired_t([1.0, math.nan]), "not a finite number"),
        (lambda: stats.bca([math.inf]), "not a finite number"),
        (lambda: stats.holm([1.5]), r"\[0, 1\]"),
        (lambda: stats.mcnemar(1, 1, "fisher"), "method"),
        (lambda: stats.cmh([1], [1, 1], 2), "paired"),
        (lambda: stats.bounds([(0, 2)]), "0, 1 or None"),
        (lambda: stats.anytime_p([0]), "leave ties out"),
    ):
        with pytest.raises(stats.StatsError, match=message):
            call()


def test_results_refuse_nan() -> None:
    with pytest.raises(stats.StatsError, match="None with a reason"):
        stats.Interval(math.nan, 0.0, 1.0, 0.95, "x").to_dict()


def test_to_dict_is_json() -> None:
    assert json.loads(json.dumps(stats.mcnemar(6, 0).to_dict())) == {
        "p": 0.03125,
        "method": "mcnemar exact",
        "alternative": "two-sided",
        "statistic": None,
        "p_exact": "1/32",
        "reason": None,
    }


def test_alpha_is_the_decimal_that_was_written() -> None:
    assert stats.at_most(Fraction(1, 20), 0.05)
    assert not stats.at_most(Fraction(1, 20) + Fraction(1, 10**20), 0.05)
    assert not stats.at_most(None, 0.05)


def test_public_names_agree_and_importing_is_light() -> None:
    assert all(getattr(stats, name) is not None for name in stats.__all__)
    with pytest.raises(AttributeError):
        _ = stats.no_such_name
    code = (
        "import sys; from pairtrial import stats; stats.mcnemar(2, 1); stats.tango(2, 1, 22); stats.holm([0.1]);"
        "stats.hash_order(['a'], 1, 'p'); stats.williams(3); stats.floor_discordant(); stats.tost(2, 1, 22, 0.1);"
        "loaded = {'numpy', 'scipy', 'pairtrial.core'} & set(sys.modules); assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
