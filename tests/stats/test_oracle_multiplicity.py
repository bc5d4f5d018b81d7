"""padjust.json (R p.adjust, 1e-12) and gatekeeping.json (brute-force closure, 1e-12)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pairtrial import stats

ORACLES = Path(__file__).parents[2] / "stats" / "oracles"
ADJUST: list[dict[str, Any]] = json.loads((ORACLES / "padjust.json").read_text())["cases"]
GATES: list[dict[str, Any]] = json.loads((ORACLES / "gatekeeping.json").read_text())["cases"]

PROCEDURES = {
    "holm": stats.holm,
    "hochberg": stats.hochberg,
    "hommel": stats.hommel,
    "bonferroni": stats.bonferroni,
    "BH": stats.benjamini_hochberg,
    "BY": stats.benjamini_yekutieli,
}


@pytest.mark.parametrize("procedure", PROCEDURES)
@pytest.mark.parametrize("case", ADJUST, ids=lambda case: case["id"])
def test_p_adjust(case: dict[str, Any], procedure: str) -> None:
    assert PROCEDURES[procedure](case["p"]) == pytest.approx(case[procedure], abs=1e-12)


@pytest.mark.parametrize("case", GATES, ids=lambda case: case["id"])
def test_gatekeeping(case: dict[str, Any]) -> None:
    if case["kind"] == "serial_gatekeeper_holm":
        got = stats.serial_gatekeeping(case["families"])
        for mine, theirs in zip(got, case["adjusted"], strict=True):
            assert mine == pytest.approx(theirs, abs=1e-12)
        rejected = [[stats.at_most(p, 0.05) for p in family] for family in got]
    else:
        procedure = stats.holm if case["kind"] == "holm" else stats.fixed_sequence
        adjusted = procedure(case["p"])
        assert adjusted == pytest.approx(case["adjusted"], abs=1e-12)
        rejected = [stats.at_most(p, 0.05) for p in adjusted]  # type: ignore[misc]
    if "rejected_at_0_05" in case:
        assert rejected == case["rejected_at_0_05"]


def test_a_missing_comparison_stays_in_the_family() -> None:
    # R: p.adjust(c(.01, .04), "holm", n = 3) is .03 .08; dropping the missing one would give .02 .04
    assert stats.holm([0.01, None, 0.04]) == pytest.approx([0.03, 1.0, 0.08])
    assert stats.holm([0.01, 0.04], family=3) == pytest.approx([0.03, 0.08])
    assert stats.holm([0.01, float("nan"), 0.04]) == stats.holm([0.01, 1.0, 0.04])


def test_alpha_is_compared_as_a_fraction() -> None:
    from fractions import Fraction

    sixtieth = Fraction(1, 60)
    assert stats.holm_exact([sixtieth] * 3) == (Fraction(1, 20),) * 3
    assert stats.holm_rejects([sixtieth] * 3, 0.05) == (True, True, True)
    assert 3 * 0.0166666666666667 > 0.05
    assert stats.holm_rejects([0.0166666666666667] * 3, 0.05) == (False, False, False)


def test_holm_takes_tests() -> None:
    family = [stats.mcnemar(6, 0), stats.mcnemar(7, 1), stats.mcnemar(0, 0), stats.mcnemar(7, 1, "midp")]
    assert stats.holm(family) == (0.125, 0.140625, 1.0, 0.125)
