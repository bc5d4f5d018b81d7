"""published.json: values read in print or in package test suites, to the digits printed. Rows minus columns there."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pairtrial import stats

VALUES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "stats" / "oracles" / "published.json").read_text()
)["values"]

# both, control only, treatment only, neither
CAVO = (59, 6, 16, 80)
BENTUR = (1, 1, 7, 12)


def turned(interval: stats.Interval) -> list[float]:
    """The printed sign: control minus treatment."""
    assert interval.low is not None
    assert interval.high is not None
    return [-interval.high, -interval.low]


def ours(rivals: ModuleType) -> dict[str, Any]:
    _, b, c, _ = CAVO
    n = sum(CAVO)
    e, f, g, h = BENTUR
    m = sum(BENTUR)
    return {
        "cavo_2012 McNemar asymptotic p": stats.mcnemar(c, b, "asymptotic").p,
        "cavo_2012 McNemar with continuity correction p": stats.mcnemar(c, b, "corrected").p,
        "cavo_2012 exact conditional p": stats.mcnemar(c, b).p,
        "cavo_2012 mid-p": stats.mcnemar(c, b, "midp").p,
        "cavo_2012 Wald CI (row minus column)": list(rivals.wald(b, c, n)),
        "cavo_2012 Tango CI": turned(stats.tango(c, b, n)),
        "cavo_2012 Bonett-Price CI": turned(stats.bonett_price(c, b, n)),
        "Newcombe CI for both=1, neither=1, no discordant": turned(stats.newcombe(0, 0, 1, 1)),
        "Tango CI for n=3, all three discordant one way (row minus column)": turned(stats.tango(0, 3, 3)),
        "AHR (1/1/7/12) mid-p": stats.mcnemar(g, f, "midp").p,
        "AHR CIs (row minus column): Wald, Agresti-Min, Bonett-Price, Newcombe, Tango": [
            list(rivals.wald(f, g, m)),
            turned(stats.agresti_min(g, f, m)),
            turned(stats.bonett_price(g, f, m)),
            turned(stats.newcombe(g, f, e, h)),
            turned(stats.tango(g, f, m)),
        ],
        "Agresti approval table: chi2 with / without correction": [
            stats.mcnemar(86, 150, "corrected").statistic,
            stats.mcnemar(86, 150, "asymptotic").statistic,
        ],
    }


@pytest.mark.parametrize("value", VALUES, ids=lambda value: value["what"])
def test_as_printed(value: dict[str, Any], rivals: ModuleType) -> None:
    got, want = ours(rivals)[value["what"]], value["value"]
    if isinstance(want, list) and isinstance(want[0], list):
        for mine, theirs in zip(got, want, strict=True):
            assert mine == pytest.approx(theirs, abs=value["tol"])
    else:
        assert got == pytest.approx(want, abs=value["tol"])
