"""paired_diff_ci.json: mpmath from the definitions, equal to R; 1e-9, Tango 1e-6."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pairtrial import stats

ROOT = Path(__file__).parents[2]
DATA: dict[str, Any] = json.loads((ROOT / "stats" / "oracles" / "paired_diff_ci.json").read_text())


@pytest.mark.parametrize("case", DATA["cases"], ids=lambda case: case["id"])
def test_every_interval(case: dict[str, Any]) -> None:
    c, b, n = case["treatment_only"], case["control_only"], case["n"]
    intervals = {
        "tango": stats.tango(c, b, n),
        "newcombe10": stats.newcombe(c, b, case["both"], case["neither"]),
        "bonett_price": stats.bonett_price(c, b, n),
        "agresti_min": stats.agresti_min(c, b, n),
    }
    for name, interval in intervals.items():
        tolerance = case["tolerance"][name]
        assert [interval.low, interval.high] == pytest.approx(case[name], abs=tolerance, rel=0), name
        assert interval.estimate == pytest.approx(case["delta"], abs=1e-12)


def test_tango_is_far_closer_than_its_tolerance() -> None:
    worst = 0.0
    for case in DATA["cases"]:
        interval = stats.tango(case["treatment_only"], case["control_only"], case["n"])
        assert interval.low is not None
        assert interval.high is not None
        worst = max(worst, abs(interval.low - case["tango"][0]), abs(interval.high - case["tango"][1]))
    assert worst < 1e-12


def test_wald_of_the_validation_study(rivals: ModuleType) -> None:
    for case in DATA["cases"]:
        assert list(rivals.wald(case["treatment_only"], case["control_only"], case["n"])) == pytest.approx(
            case["wald"], abs=1e-9
        )
