"""The validation study, in short: it agrees with an independent enumeration, with itself in print, and draws."""

from __future__ import annotations

import csv
import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pairtrial import stats

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "stats" / "validation"

# worst and mean coverage over 25 settings, to three decimals, computed apart from this code
PRINTED = {
    "wald": (0.694, 0.875),
    "bca_strict": (0.600, 0.852),
    "bca_mid": (0.564, 0.868),
    "percentile": (0.600, 0.874),
    "paired_t": (0.715, 0.922),
    "agresti_min": (0.913, 0.961),
    "bonett_price": (0.931, 0.978),
    "tango": (0.949, 0.976),
}


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(STUDY))
    return importlib.import_module("study")


@pytest.fixture
def enumeration(study: ModuleType) -> ModuleType:
    return importlib.import_module("enumeration")


def committed(name: str) -> list[dict[str, str]]:
    with (STUDY / "results" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_short_study(study: ModuleType) -> None:
    tables: dict[str, list[dict[str, Any]]] = study.run(study.SHORT)
    (summary,) = tables["coverage_summary"]
    for method, (worst, mean) in PRINTED.items():
        assert (round(summary[f"{method}_worst"], 3), round(summary[f"{method}_mean"], 3)) == (worst, mean), method
    for row in tables["tests"]:
        # the power function and the enumeration of the test itself are two roads to one number
        for name in ("exact", "midp"):
            assert row[f"size_{name}"] == pytest.approx(
                stats.power(row["n"], row["discordance"], 0.0, method=name), abs=1e-10
            )
        assert row["size_exact"] <= 0.05
    assert all(row["error_at_margin"] < 0.06 for row in tables["equivalence"])
    assert all(row["odd_one_out_size"] <= 0.05 <= 0.95 <= row["flip_rate_coverage"] for row in tables["noise"])
    assert all(row["e_value"] <= 0.05 for row in tables["sequential"])
    # 150 runs have a standard error of about 2 points
    quiet = [row for row in tables["repetitions"] if row["effect"] == "none"]
    assert all(row["reject_sign_flip"] < 0.12 for row in quiet)
    assert all(row["paired_t"] > 0.85 for row in tables["repetitions"])
    assert all(row["holm"] < 0.1 for row in tables["holm"])


def test_coverage_equals_the_independent_enumeration(enumeration: ModuleType) -> None:
    names = {"perc": "percentile"}
    want: list[dict[str, float]] = json.loads((ROOT / "stats" / "oracles" / "coverage.json").read_text())["12"]
    got = {
        (row["discordance"], row["delta"], row["method"]): row
        for row in enumeration.coverage(12, [m for m in enumeration.METHODS if m != "posterior"])
    }
    for case in want:
        for key in case:
            if key in ("n", "disc", "delta") or key.startswith("w_"):
                continue
            row = got[case["disc"], case["delta"], names.get(key, key)]
            assert row["coverage"] == pytest.approx(case[key], abs=1e-9), (key, case["disc"], case["delta"])
            slack = 5e-3 if key == "bonett_price" else 1e-9  # the other enumeration does not clip at 1
            assert row["width"] == pytest.approx(case[f"w_{key}"], abs=slack), (key, case["disc"], case["delta"])


def test_committed_tables_are_of_this_code(study: ModuleType) -> None:
    for row in committed("coverage_summary"):
        independent = json.loads((ROOT / "stats" / "oracles" / "coverage.json").read_text()).get(row["n"])
        if independent:
            for key, name in (("tango", "tango"), ("bca_mid", "bca_mid"), ("perc", "percentile"), ("wald", "wald")):
                values = [case[key] for case in independent]
                assert float(row[f"{name}_worst"]) == pytest.approx(min(values), rel=1e-5)
                assert float(row[f"{name}_mean"]) == pytest.approx(sum(values) / len(values), rel=1e-5)
    for row in committed("tests"):
        size = stats.power(int(row["n"]), float(row["discordance"]), 0.0)
        assert float(row["size_exact"]) == pytest.approx(size, rel=1e-5)
    for row, fresh in zip(committed("sequential"), study.sequential_rows(60), strict=True):
        assert float(row["peeking_exact"]) == pytest.approx(fresh["peeking_exact"], rel=1e-5)
        assert float(row["e_value"]) == pytest.approx(fresh["e_value"], rel=1e-5)


def test_figures_are_drawn_from_the_committed_tables(study: ModuleType, tmp_path: Path) -> None:
    importlib.import_module("plots").draw(STUDY / "results", tmp_path)
    drawn = {path.name for path in tmp_path.glob("*.png")}
    assert drawn == {path.name for path in (STUDY / "figures").glob("*.png")}
