"""docs/statistics.md: the example runs, and every public name is explained."""

from __future__ import annotations

import doctest
import math
import re
from pathlib import Path

import pytest

from pairtrial import stats

PAGE = Path(__file__).parents[2] / "docs" / "statistics.md"


def test_the_example_runs() -> None:
    result = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert result.attempted >= 10
    assert result.failed == 0


def test_every_public_name_is_explained() -> None:
    words = set(re.findall(r"[A-Za-z_]+", PAGE.read_text(encoding="utf-8")))
    internal = {"Result", "StatsError", "Table", "IntraclassCorrelation"}
    assert set(stats.__all__) - words <= internal


def test_the_tango_end_worked_by_hand() -> None:
    d = 0.24526
    a, b, c = 44, -3 + (44 - 2 + 1) * d, -d * (1 - d)
    q = (math.sqrt(b * b - 4 * a * c) - b) / (2 * a)
    assert (round(b, 4), round(c, 5), round(q, 5)) == (7.5462, -0.18511, 0.02177)
    statistic = (2 - 1 - 22 * d) / math.sqrt(22 * (2 * q + d * (1 - d)))
    assert statistic == pytest.approx(-1.96, abs=5e-4)
