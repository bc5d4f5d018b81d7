"""The same numbers by another road: listing every resample, every sign and every labelling, or scipy where it is right."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from pairtrial import stats
from pairtrial.stats._convolve import SumDistribution
from pairtrial.stats.paired import sign_flip_p

settings.register_profile("stats", deadline=None, max_examples=40)
settings.load_profile("stats")

small = st.lists(st.integers(-3, 3), min_size=1, max_size=5)


@given(small)
def test_bootstrap_distribution_lists_every_resample(deltas: list[int]) -> None:
    n = len(deltas)
    sums = Counter(sum(draw) for draw in itertools.product(deltas, repeat=n))
    lattice = stats.bootstrap_distribution(deltas)
    for i, weight in enumerate(lattice.weights):
        total = lattice.at_index(i) * n
        assert weight == pytest.approx(sums[int(total)] / n**n, abs=1e-14)


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=8))
def test_sign_flip_lists_every_sign(deltas: list[int]) -> None:
    observed = sum(deltas)
    sums = [sum(s * d for s, d in zip(signs, deltas, strict=True)) for signs in
            itertools.product((-1, 1), repeat=len(deltas))]  # fmt: skip
    got = {a: stats.sign_flip(deltas, alternative=a).p_exact for a in ("two-sided", "greater", "less")}
    if any(deltas):
        assert got["two-sided"] == Fraction(sum(abs(s) >= abs(observed) for s in sums), len(sums))
        assert got["greater"] == Fraction(sum(s >= observed for s in sums), len(sums))
        assert got["less"] == Fraction(sum(s <= observed for s in sums), len(sums))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=4))
def test_within_task_permutation_lists_every_labelling(pairs: list[tuple[int, int]]) -> None:
    control, treatment = [c for c, _ in pairs], [t for _, t in pairs]
    per_task = []
    for c, t in pairs:
        runs = [1] * (c + t) + [0] * (4 - c - t)
        per_task.append([sum(runs[i] for i in chosen) for chosen in itertools.combinations(range(4), 2)])
    labellings = list(itertools.product(*per_task))
    greater = Fraction(sum(sum(ts) >= sum(treatment) for ts in labellings), len(labellings))
    assert stats.cmh(treatment, control, 2, alternative="greater").p_exact == greater
    totals = [c + t for c, t in pairs]
    q = [sum((2 * t - s) ** 2 for t, s in zip(ts, totals, strict=True)) for ts in labellings]
    observed = sum((t - c) ** 2 for c, t in pairs)
    got = stats.q_test(treatment, control, 2)
    assert got.p_exact == Fraction(sum(value >= observed for value in q), len(q))
    assert got.null_mean == pytest.approx(sum(q) / len(q))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=2))
def test_two_level_bootstrap_lists_every_resample(pairs: list[tuple[int, int]]) -> None:
    n, runs = len(pairs), 2
    sums: Counter[int] = Counter()
    for tasks in itertools.product(pairs, repeat=n):
        choices = []
        for c, t in tasks:
            arms = [[1] * k + [0] * (runs - k) for k in (c, t)]
            choices.append([sum(ts) - sum(cs) for cs in itertools.product(arms[0], repeat=runs)
                            for ts in itertools.product(arms[1], repeat=runs)])  # fmt: skip
        sums.update(sum(draw) for draw in itertools.product(*choices))
    total = sum(sums.values())
    observed = sum(t - c for c, t in pairs)
    got = stats.two_level([t for _, t in pairs], [c for c, _ in pairs], runs)
    if got.low is None:
        assert len(sums) == 1
    else:
        assert got.p_less == pytest.approx(sum(w for s, w in sums.items() if s < observed) / total, abs=1e-12)
        assert got.p_equal == pytest.approx(sums[observed] / total, abs=1e-12)


@given(st.lists(st.lists(st.integers(-1, 1), min_size=1, max_size=4), min_size=2, max_size=4))
def test_cluster_bootstrap_lists_every_resample(clusters: list[list[int]]) -> None:
    ratios = []
    for draw in itertools.product(clusters, repeat=len(clusters)):
        drawn = [d for cluster in draw for d in cluster]
        ratios.append(Fraction(sum(drawn), len(drawn)))
    tasks = [d for cluster in clusters for d in cluster]
    theta = Fraction(sum(tasks), len(tasks))
    got = stats.clustered(clusters)
    if got.low is not None:
        assert got.p_less == pytest.approx(sum(r < theta for r in ratios) / len(ratios), abs=1e-12)
        assert got.p_equal == pytest.approx(sum(r == theta for r in ratios) / len(ratios), abs=1e-12)
    else:
        assert len(set(ratios)) == 1 or (got.reason or "").startswith("BCa undefined")


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_scipys_binomial_test(wins: int, losses: int) -> None:
    if wins + losses:
        want = scipy.stats.binomtest(wins, wins + losses)
        assert stats.mcnemar(wins, losses).p == pytest.approx(want.pvalue, rel=1e-9)
        interval = want.proportion_ci(0.95, "exact")
        got = stats.clopper_pearson(wins, wins + losses)
        assert (got.low, got.high) == pytest.approx((interval.low, interval.high), abs=1e-9)


@pytest.mark.parametrize("method", ["exact", "midp"])
@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_the_float_tail_continues_the_integer_tail(method: str, alternative: str) -> None:
    from pairtrial.stats.paired import _binomial_float, binomial_p

    for wins, losses in ((5200, 4800), (4900, 5100), (5000, 5000), (6000, 4000)):
        exact = binomial_p(wins, losses, midp=method == "midp", alternative=alternative)
        got = _binomial_float(wins, losses, method, alternative)
        assert got == pytest.approx(float(exact), rel=1e-9)
    assert stats.mcnemar(5400, 5000, method, alternative=alternative).p_exact is None


@given(st.lists(st.floats(-5, 5).filter(lambda x: abs(x) > 1e-6), min_size=2, max_size=20, unique_by=abs))
def test_wilcoxon_is_scipys_without_ties(differences: list[float]) -> None:
    ordered = sorted(abs(d) for d in differences)
    if any(b - a < 1e-9 for a, b in itertools.pairwise(ordered)):
        return
    want = scipy.stats.wilcoxon(differences, method="exact")
    assert stats.wilcoxon(differences).p == pytest.approx(want.pvalue, rel=1e-9)


def test_scipys_exact_wilcoxon_is_wrong_with_ties() -> None:
    d = [2, 0, -1, 3, 3, 2, 0, 3, -1, 5]
    assert stats.wilcoxon(d).p_exact == Fraction(1, 32)
    with np.errstate(all="ignore"):
        assert scipy.stats.wilcoxon(d, method="exact").pvalue != pytest.approx(1 / 32)


def test_differences_that_float_arithmetic_splits_still_tie() -> None:
    assert 0.3 - 0.1 != 0.2
    one = stats.wilcoxon([0.3, 0.2, 0.5], [0.1, 0.4, 0.1])
    assert one.p_exact == stats.wilcoxon([2, -2, 4]).p_exact


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=30))
def test_paired_t_is_scipys(deltas: list[int]) -> None:
    got = stats.paired_t(deltas)
    if len(set(deltas)) == 1:
        assert (got.p, got.low, got.reason) == (None, None, "degenerate: all task deltas are equal")
        return
    want = scipy.stats.ttest_1samp(deltas, 0)
    assert got.p == pytest.approx(want.pvalue, rel=1e-9, abs=1e-300)
    interval = want.confidence_interval(0.95)
    assert (got.low, got.high) == pytest.approx((interval.low, interval.high), rel=1e-9, abs=1e-9)


def test_big_sums_switch_to_floats_and_agree() -> None:
    sizes = {1: 60, 2: 50, 3: 40}
    terms = {(1, *[0] * (size - 1), 1): times for size, times in sizes.items()}
    exact = SumDistribution(terms)
    assert exact.exact
    large = SumDistribution({(1, 1): 5000})
    assert not large.exact
    assert large.at_least(2500 + 70) == pytest.approx(scipy.stats.binom.sf(2569, 5000, 0.5), rel=1e-9)
    assert large.as_unlikely_as(2430) == pytest.approx(scipy.stats.binomtest(2430, 5000).pvalue, rel=1e-9)
    assert large.as_far_as(5000, 2430) == pytest.approx(scipy.stats.binomtest(2430, 5000).pvalue, rel=1e-9)
    assert large.at_most(2430) == pytest.approx(scipy.stats.binom.cdf(2430, 5000, 0.5), rel=1e-9)
    big = sign_flip_p({1: 5000}, 140, "two-sided")
    assert isinstance(big, float)
    assert big == pytest.approx(stats.mcnemar(2570, 2430).p or 0, rel=1e-9)


def test_floats_on_a_lattice_are_read_as_fractions() -> None:
    thirds = [3, 2, 2, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, -1, -1, -2, 0, 0, 1, 0, 0, 3]
    exact = stats.bca([Fraction(x, 3) for x in thirds])
    assert (exact.low_exact, exact.high_exact) == (Fraction(0), Fraction(22, 66))
    # 2/3 - 1/3 is not 1/3 in floats, and resampling such floats breaks ties at random
    noisy = [x / 3 if i % 2 else (x + 1) / 3 - 1 / 3 for i, x in enumerate(thirds)]
    assert stats.bca(noisy).to_dict() == exact.to_dict()
    assert stats.bca(np.array(noisy)).to_dict() == exact.to_dict()
    assert stats.bca(np.array(thirds)).low_exact == Fraction(0)
    with pytest.raises(stats.StatsError, match="pass integers or Fractions"):
        stats.bca([math.pi, 1.0])


def test_hodges_lehmann_interval_covers_the_asymptotic_one_in_large_samples() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(0.3, 1.0, 1200)
    got = stats.hodges_lehmann(x.tolist())
    assert got.low is not None
    assert got.high is not None
    assert got.achieved == pytest.approx(0.95, abs=1e-4)
    half = 1.96 * math.sqrt(math.pi / 3) / math.sqrt(1200)
    assert (got.high - got.low) / 2 == pytest.approx(half, rel=0.05)


def test_indices_come_from_the_raw_stream() -> None:
    rows = list(stats.resample_indices(22, 50, 7))
    assert rows == list(stats.resample_indices(22, 50, 7))
    assert rows != list(stats.resample_indices(22, 50, 8))
    assert all(len(row) == 22 and min(row) >= 0 and max(row) < 22 for row in rows)
    raw = np.random.PCG64(7).random_raw(22).tolist()
    assert rows[0] == [value % 22 for value in raw]
    shares = Counter(index for row in rows for index in row)
    assert scipy.stats.chisquare([shares[i] for i in range(22)]).pvalue > 1e-4
