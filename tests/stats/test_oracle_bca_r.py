"""bca_r.json and the exported resample indices: R boot replayed; z0, a and alphas 1e-9, end points as order statistics.

R's ``abc``, ``basic``, ``normal`` and interpolated end points belong to methods that we do not offer.
"""

from __future__ import annotations

import csv
import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from pairtrial import stats
from pairtrial.stats.bootstrap import bca_alphas

ORACLES = Path(__file__).parents[2] / "stats" / "oracles"
DATA: dict[str, Any] = json.loads((ORACLES / "bca_r.json").read_text())
SETS = [name for name, value in DATA.items() if isinstance(value, dict) and "r_set_seed" in value and "t0" in value]


# the fifteen law schools of Efron 1982; the oracle file lists eight of them, its indices and results use all
LSAT = (576, 635, 558, 578, 666, 580, 555, 661, 651, 605, 653, 575, 545, 572, 594)
GPA = (3.39, 3.30, 2.81, 3.03, 3.44, 3.07, 3.00, 3.43, 3.36, 3.13, 3.12, 2.74, 2.76, 2.88, 2.96)


def rows_of(name: str) -> list[tuple[float, ...]]:
    data = DATA[name]["data"]
    if isinstance(data, dict):
        (values,) = data.values()
        scale = 3 if "delta_times_3" in data else 1
        return [(value / scale,) for value in values]
    rows = list(zip(map(float, LSAT), GPA, strict=True))
    assert all((float(row["LSAT"]), float(row["GPA"])) in rows for row in data)
    return [*rows]


def statistic(name: str, rows: list[tuple[float, ...]]) -> float:
    if name == "law_school_correlation":
        return statistics.correlation([row[0] for row in rows], [row[1] for row in rows])
    values = [row[0] for row in rows]
    if name == "spatial_A_plugin_variance":
        return statistics.pvariance(values)
    return sum(values) / len(values)


@pytest.mark.parametrize("name", SETS)
def test_corrections(name: str) -> None:
    want, rows = DATA[name], rows_of(name)
    assert statistic(name, rows) == pytest.approx(want["t0"], abs=1e-9)
    jackknife = [statistic(name, rows[:i] + rows[i + 1 :]) for i in range(len(rows))]
    acceleration = stats.jackknife_acceleration(jackknife, want["t0"])
    assert acceleration == pytest.approx(want["jackknife_acceleration"], abs=1e-9)
    for level, at in want["levels"].items():
        for ties, half in (("strict", 0.0), ("midtie", 0.5)):
            below = (want["count_less"] + half * want["count_equal"]) / want["R"]
            z0, alphas = bca_alphas(below, acceleration, float(level))
            assert z0 == pytest.approx(want[f"z0_{ties}"], abs=1e-9)
            assert alphas == pytest.approx(at[f"alphas_{ties}"], abs=1e-9)


@pytest.mark.parametrize("name", ["law_school_correlation", "delta_seed_22_2w_1l"])
def test_replay(name: str) -> None:
    want, rows = DATA[name], rows_of(name)
    with (ORACLES / f"bca_indices_{name}.csv").open() as file:
        draws = [[int(index) for index in line] for line in csv.reader(file)]
    replicates = [statistic(name, [rows[i] for i in draw]) for draw in draws]
    assert replicates[:10] == pytest.approx(want["first_ten_t"], abs=1e-9)
    estimate = want["t0"] if name == "law_school_correlation" else statistic(name, rows)
    jackknife = [statistic(name, rows[:i] + rows[i + 1 :]) for i in range(len(rows))]
    for level, at in want["levels"].items():
        for ties, key in (("strict", "strict"), ("mid", "midtie")):
            got = stats.bca_replicates(replicates, estimate, jackknife, float(level), ties, centre="estimate")  # type: ignore[arg-type]
            assert got.z0 == pytest.approx(want[f"z0_{key}"], abs=1e-9)
            assert got.acceleration == pytest.approx(want["jackknife_acceleration"], abs=1e-9)
            assert (got.alpha_low, got.alpha_high) == pytest.approx(at[f"alphas_{key}"], abs=1e-9)
            assert [got.low, got.high] == pytest.approx(at[f"bca_{key}_type1_quantile"], abs=1e-9)
            assert got.se == pytest.approx(want["boot_se"], abs=1e-9)


def test_r_gives_up_where_we_give_a_reason() -> None:
    assert "error" in DATA["degenerate_all_equal"]["all_zero"]
    for value in (0, 1):
        got = stats.bca([value] * 22)
        assert (got.low, got.high, got.reason) == (None, None, "degenerate: all task deltas are equal")
