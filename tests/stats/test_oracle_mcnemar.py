"""mcnemar.json: exact fractions and R, 1e-9; the unconditional test 1e-4 (R maximises over a coarse grid)."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pairtrial import stats

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "stats" / "oracles" / "mcnemar.json").read_text()
)["cases"]


def relative(value: float) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_every_number(case: dict[str, Any]) -> None:
    c, b, n = case["treatment_only"], case["control_only"], case["n"]
    exact = stats.mcnemar(c, b)
    assert exact.p == relative(case["exact_two_sided"])
    assert stats.mcnemar(c, b, "midp").p == relative(case["midp_two_sided"])
    assert stats.mcnemar(c, b, "one-sided").p == relative(case["exact_one_sided_treatment_better"])
    for key, method in (("exact_two_sided_fraction", "exact"), ("midp_fraction", "midp")):
        if case[key]:
            assert stats.mcnemar(c, b, method).p_exact == Fraction(case[key])
    for method in ("asymptotic", "corrected"):
        result = stats.mcnemar(c, b, method)
        if case[f"{method}_p"] is None:
            assert (result.p, result.statistic, result.reason) == (1.0, None, "no discordant task, no information")
        else:
            assert result.p == relative(case[f"{method}_p"])
            assert result.statistic == relative(case[f"{method}_statistic"])
    if case["exact_unconditional_two_sided"] is not None:
        p = stats.mcnemar(c, b, "unconditional", n=n).p
        assert p == pytest.approx(case["exact_unconditional_two_sided"], abs=1e-4)
    share = case["clopper_pearson_95_for_P_win_given_discordant"]
    interval = stats.clopper_pearson(c, b + c)
    if share is None:
        assert (interval.low, interval.high, interval.reason) == (None, None, "no observation")
    else:
        assert [interval.low, interval.high] == pytest.approx(share, abs=1e-9)
