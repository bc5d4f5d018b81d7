"""What must hold for any data: mirror images, order, agreement between methods, JSON without NaN."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairtrial import stats

settings.register_profile("stats", deadline=None, max_examples=60)
settings.load_profile("stats")

tables = st.tuples(st.integers(0, 25), st.integers(0, 25), st.integers(0, 40)).filter(lambda t: sum(t) > 0)
outcomes = st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=40)
successes = st.integers(1, 4).flatmap(
    lambda runs: st.lists(st.tuples(st.integers(0, runs), st.integers(0, runs)), min_size=1, max_size=25).map(
        lambda pairs: (runs, [c for c, _ in pairs], [t for _, t in pairs])
    )
)
pvalues = st.lists(st.floats(0, 1), min_size=1, max_size=8)


def mirrored(one: stats.Interval | stats.BootstrapInterval, other: stats.Interval | stats.BootstrapInterval) -> bool:
    assert one.low is not None
    assert one.high is not None
    return [other.low, other.high] == pytest.approx([-one.high, -one.low], abs=1e-12)


@given(tables)
def test_swapping_the_arms_mirrors_every_score_interval(table: tuple[int, int, int]) -> None:
    wins, losses, ties = table
    n = sum(table)
    both = ties // 3
    assert mirrored(stats.tango(wins, losses, n), stats.tango(losses, wins, n))
    assert mirrored(stats.bonett_price(wins, losses, n), stats.bonett_price(losses, wins, n))
    assert mirrored(stats.agresti_min(wins, losses, n), stats.agresti_min(losses, wins, n))
    assert mirrored(stats.newcombe(wins, losses, both, ties - both), stats.newcombe(losses, wins, both, ties - both))
    for method in ("exact", "midp", "asymptotic", "corrected"):
        assert stats.mcnemar(wins, losses, method).p == stats.mcnemar(losses, wins, method).p
    assert stats.mcnemar(wins, losses, alternative="less").p == stats.mcnemar(losses, wins, "one-sided").p


@given(outcomes)
def test_swapping_the_arms_mirrors_the_bootstrap_with_mid_ties(deltas: list[int]) -> None:
    turned = [-d for d in deltas]
    one, other = stats.bca(deltas), stats.bca(turned)
    if one.low is None:
        assert other.low is None
        assert one.reason == other.reason == "degenerate: all task deltas are equal"
        return
    assert one.z0 == pytest.approx(-(other.z0 or 0.0), abs=1e-12)
    assert mirrored(one, other)
    assert mirrored(stats.percentile(deltas), stats.percentile(turned))


def test_strict_ties_do_not_mirror() -> None:
    seed = [1, 1, -1] + [0] * 19
    one, other = stats.bca(seed, ties="strict"), stats.bca([-d for d in seed], ties="strict")
    assert (one.low_exact, one.high_exact) == (Fraction(-3, 22), Fraction(3, 22))
    assert (other.low_exact, other.high_exact) == (Fraction(-6, 22), Fraction(1, 22))


@given(outcomes, st.randoms(use_true_random=False))
def test_the_order_of_tasks_changes_no_byte(deltas: list[int], random: object) -> None:
    shuffled = list(deltas)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for function in (
        stats.bca,
        stats.percentile,
        stats.sign_flip,
        stats.paired_t,
        stats.wilcoxon,
        stats.hodges_lehmann,
    ):
        one, other = function(deltas), function(shuffled)
        assert json.dumps(one.to_dict()) == json.dumps(other.to_dict())


@given(successes, st.randoms(use_true_random=False))
def test_the_order_of_tasks_with_repetitions_changes_no_byte(
    data: tuple[int, list[int], list[int]], random: object
) -> None:
    runs, control, treatment = data
    order = list(range(len(control)))
    random.shuffle(order)  # type: ignore[attr-defined]
    c, t = [control[i] for i in order], [treatment[i] for i in order]
    assert stats.two_level(treatment, control, runs).to_dict() == stats.two_level(t, c, runs).to_dict()
    assert stats.cmh(treatment, control, runs).to_dict() == stats.cmh(t, c, runs).to_dict()
    assert stats.q_test(treatment, control, runs).to_dict() == stats.q_test(t, c, runs).to_dict()
    deltas = [y - x for x, y in zip(control, treatment, strict=True)]
    groups = [i % 3 for i in range(len(deltas))]
    moved, labels = [deltas[i] for i in order], [groups[i] for i in order]
    assert stats.clustered_t(deltas, groups).to_dict() == stats.clustered_t(moved, labels).to_dict()
    split = [[d for d, g in zip(deltas, groups, strict=True) if g == k] for k in range(3)]
    resplit = [[d for d, g in zip(moved, labels, strict=True) if g == k] for k in (2, 0, 1)]
    assert stats.clustered(split).to_dict() == stats.clustered(resplit).to_dict()
    assert stats.stratified(split).to_dict() == stats.stratified(resplit).to_dict()


@given(outcomes)
def test_one_repetition_makes_sign_flip_cmh_and_mcnemar_one_test(deltas: list[int]) -> None:
    wins, losses = deltas.count(1), deltas.count(-1)
    treatment, control = [int(d == 1) for d in deltas], [int(d == -1) for d in deltas]
    for alternative in ("two-sided", "greater", "less"):
        p = stats.mcnemar(wins, losses, alternative=alternative).p_exact
        if wins + losses == 0:
            p = Fraction(1)
        assert stats.sign_flip(deltas, alternative=alternative).p_exact == p
        assert stats.cmh(treatment, control, 1, alternative=alternative).p_exact == p
    assert stats.cmh(treatment, control, 1, tail="deviation").p == stats.mcnemar(wins, losses).p


@given(tables, st.floats(0.01, 0.6))
def test_tost_rejects_exactly_when_the_90_percent_interval_is_inside(
    table: tuple[int, int, int], margin: float
) -> None:
    got = stats.tost(table[0], table[1], sum(table), margin)
    assert got.low is not None
    assert got.high is not None
    if min(abs(got.low + margin), abs(got.high - margin)) > 1e-9:  # at the very edge rounding decides
        assert got.equivalent == (-margin < got.low and got.high < margin)
    swapped = stats.tost(table[1], table[0], sum(table), margin)
    assert swapped.p == pytest.approx(got.p, abs=1e-12)


@given(st.integers(0, 40), st.integers(0, 40))
def test_e_value_rejects_exactly_when_one_half_is_outside_the_sequence(wins: int, losses: int) -> None:
    sequence = stats.confidence_sequence(wins, losses)
    assert sequence.low is not None
    assert sequence.high is not None
    assert stats.e_value(wins, losses).rejects(0.05) == (not sequence.low <= 0.5 <= sequence.high)
    assert stats.e_value(wins, losses).e_exact == stats.e_value(losses, wins).e_exact


@given(pvalues)
def test_holm_is_monotone_and_between_raw_and_bonferroni(p: list[float]) -> None:
    adjusted = stats.holm(p)
    assert all(
        raw <= holm <= bonferroni for raw, holm, bonferroni in zip(p, adjusted, stats.bonferroni(p), strict=True)
    )
    by_size = [adjusted[i] for i in sorted(range(len(p)), key=p.__getitem__)]
    assert by_size == sorted(by_size)
    for weaker in (stats.hommel, stats.hochberg, stats.benjamini_hochberg):
        assert all(a <= b + 1e-15 for a, b in zip(weaker(p), adjusted, strict=True))


@given(successes)
def test_copying_all_runs_does_not_shrink_the_error(data: tuple[int, list[int], list[int]]) -> None:
    runs, control, treatment = data
    deltas = [Fraction(y - x, runs) for x, y in zip(control, treatment, strict=True)]
    copied = [Fraction(3 * y - 3 * x, 3 * runs) for x, y in zip(control, treatment, strict=True)]
    assert stats.paired_t(copied).se == stats.paired_t(deltas).se
    assert stats.bca(copied).to_dict() == stats.bca(deltas).to_dict()
    assert stats.sign_flip(copied).p_exact == stats.sign_flip(deltas).p_exact


@given(tables)
def test_wider_level_wider_interval_and_posterior_is_a_distribution(table: tuple[int, int, int]) -> None:
    wins, losses, _ = table
    n = sum(table)
    narrow, wide = stats.tango(wins, losses, n, 0.9), stats.tango(wins, losses, n, 0.99)
    assert narrow.low is not None
    assert wide.low is not None
    assert narrow.high is not None
    assert wide.high is not None
    assert -1 <= wide.low <= narrow.low <= narrow.high <= wide.high <= 1
    belief, turned = stats.posterior(wins, losses, n, margin=0.1), stats.posterior(losses, wins, n, margin=0.1)
    assert -1 < belief.low < belief.mean < belief.high < 1
    assert belief.p_within is not None
    assert 0 <= belief.p_within <= 1
    assert belief.p_positive + turned.p_positive == pytest.approx(1.0, abs=1e-12)
    assert belief.p_within == pytest.approx(turned.p_within, abs=1e-10)
    assert (turned.low, turned.high) == pytest.approx((-belief.high, -belief.low), abs=1e-9)


@given(outcomes)
def test_strings_of_json_hold_no_nan(deltas: list[int]) -> None:
    wins, losses, n = deltas.count(1), deltas.count(-1), len(deltas)
    control, treatment = [int(d == -1) for d in deltas], [int(d == 1) for d in deltas]
    results: list[stats.Result] = [
        *(stats.mcnemar(wins, losses, method) for method in ("exact", "midp", "asymptotic", "corrected")),
        stats.mcnemar(wins, losses, "unconditional", n=n),
        stats.tango(wins, losses, n),
        stats.bca(deltas),
        stats.bca(deltas, ties="strict"),
        stats.two_level(treatment, control, 1),
        stats.clustered([deltas[::2], deltas[1::2]]),
        stats.stratified([deltas[::2], deltas[1::2]]),
        stats.paired_t(deltas),
        stats.clustered_t(deltas, [i % 4 for i in range(n)]),
        stats.wilcoxon(deltas),
        stats.hodges_lehmann(deltas),
        stats.flip_rate(wins + losses, n),
        stats.icc(control, 1),
        stats.within_arm_flip_rate(control, 1),
        stats.agreement(0, losses, wins, n - wins - losses),
        stats.cmh(treatment, control, 1),
        stats.q_test(treatment, control, 1),
        stats.tost(wins, losses, n, 0.1),
        stats.posterior(wins, losses, n, margin=0.1),
        stats.e_value(wins, losses),
        stats.confidence_sequence(wins, losses),
        stats.log_ratio(treatment, control),
        stats.restricted_mean([abs(d) + 1 for d in deltas], [2] * n, 2),
        stats.compare_cost_per_solved([1] * n, treatment, [1] * n, control),
        stats.bounds([(c, t if t else None) for c, t in zip(control, treatment, strict=True)]),
        stats.significance_inflation(n, 0.3, 0.1),
        stats.mde(n, 0.3),
    ]
    for result in results:
        fields = json.loads(json.dumps(result.to_dict(), allow_nan=False))
        missing = [name for name in ("p", "low", "high", "estimate", "icc") if name in fields and fields[name] is None]
        assert not missing or fields["reason"], (type(result).__name__, missing)
