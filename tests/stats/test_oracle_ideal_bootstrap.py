"""ideal_bootstrap.json: exact rational convolution; end points equal, everything else 1e-9."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import pytest

from pairtrial import stats

DATA: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "stats" / "oracles" / "ideal_bootstrap.json").read_text()
)
Ties = Literal["mid", "strict"] | None


def interval_of(case: dict[str, Any], level: float, ties: Ties) -> stats.BootstrapInterval:
    kind = case["kind"]
    if kind == "two_level_mean":
        return stats.two_level(case["treatment_successes"], case["control_successes"], case["repeats"], level, ties)
    if kind == "stratified_mean":
        return stats.stratified(case["strata"], level, ties)
    if kind == "cluster_mean":
        return stats.clustered(case["clusters"], level, ties)
    deltas = [Fraction(value) * Fraction(str(case["step"])) for value in case["deltas_times_step"]]
    return stats.percentile(deltas, level) if ties is None else stats.bca(deltas, level, ties)


@pytest.mark.parametrize("level", [0.9, 0.95])
@pytest.mark.parametrize("case", DATA["cases"], ids=lambda case: case["id"])
def test_every_case(case: dict[str, Any], level: float) -> None:
    close: Callable[[float], Any] = lambda value: pytest.approx(value, abs=1e-9)  # noqa: E731 - one short alias
    for ties, key in (("mid", f"bca_midtie_{level}"), ("strict", f"bca_strict_{level}")):
        if key not in case:  # the cluster case has the mid-tie form only
            continue
        got, want = interval_of(case, level, ties), case[key]  # type: ignore[arg-type]
        assert (got.low_exact, got.high_exact) == (Fraction(want["low"]), Fraction(want["high"]))
        assert (got.low, got.high) == (float(Fraction(want["low"])), float(Fraction(want["high"])))
        assert got.alpha_low == close(want["alpha_low"])
        assert got.alpha_high == close(want["alpha_high"])
        assert got.z0 == close(case["z0_midtie" if ties == "mid" else "z0_strict"])
        assert got.acceleration == close(case["acceleration"])
        assert got.se == close(case["boot_se"])
        assert got.p_less == close(case["p_less"])
        assert got.p_equal == close(case["p_equal"])
        assert got.estimate == float(Fraction(case["point"]))
    plain, want = interval_of(case, level, None), case[f"percentile_{level}"]
    assert (plain.low_exact, plain.high_exact) == (Fraction(want["low"]), Fraction(want["high"]))


@pytest.mark.parametrize("case", [c for c in DATA["cases"] if c["kind"] == "one_level_mean"], ids=lambda c: c["id"])
def test_distribution(case: dict[str, Any]) -> None:
    lattice = stats.bootstrap_distribution(case["deltas_times_step"])
    assert lattice.mean() * float(case["step"]) == pytest.approx(case["boot_mean"], abs=1e-12)
    assert lattice.sd() * float(case["step"]) == pytest.approx(case["boot_se"], abs=1e-12)
    cumulative = lattice.cumulative()
    for level in (0.9, 0.95):
        for key in (f"bca_midtie_{level}", f"bca_strict_{level}"):
            for end in ("low", "high"):
                point = Fraction(case[key][end]) / lattice.step / Fraction(str(case["step"]))
                index = int(point) - lattice.first
                distance = cumulative[index] - case[key][f"alpha_{end}"]
                assert distance == pytest.approx(case[key][f"cdf_minus_alpha_{end}"], abs=1e-12)


def test_headline_methods() -> None:
    want = {name: tuple(map(Fraction, ends)) for name, ends in DATA["seed_headline_methods"].items() if name not in
            ("target", "monte_carlo")}  # fmt: skip
    deltas = [1, 1, -1] + [0] * 19
    plain = stats.percentile(deltas)
    assert plain.low_exact is not None
    assert plain.high_exact is not None
    estimate = Fraction(1, 22)
    got = {
        "bc_strict_no_acceleration": stats.bca(deltas, ties="strict", acceleration=0.0),
        "bca_strict": stats.bca(deltas, ties="strict"),
        "bca_midtie": stats.bca(deltas),
        "percentile": plain,
    }
    for name, interval in got.items():
        assert (interval.low_exact, interval.high_exact) == want[name], name
    assert (2 * estimate - plain.high_exact, 2 * estimate - plain.low_exact) == want["basic"]
    # sign-flip null: three discordant tasks, sum -3..3, so the central 95% is the whole range
    assert stats.sign_flip([1, 1, 1]).p == 0.25
    assert want["sign_flip_null_central_95"] == (Fraction(-3, 22), Fraction(3, 22))
    assert set(want) == {*got, "basic", "sign_flip_null_central_95"}
