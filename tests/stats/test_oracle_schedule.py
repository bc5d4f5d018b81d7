"""schedule_sha256.json (sha256sum and sort) and williams.json (brute force); equal to the byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pairtrial import stats

ORACLES = Path(__file__).parents[2] / "stats" / "oracles"
ORDERS: list[dict[str, Any]] = json.loads((ORACLES / "schedule_sha256.json").read_text())["cases"]
WILLIAMS: dict[str, Any] = json.loads((ORACLES / "williams.json").read_text())


@pytest.mark.parametrize("case", ORDERS, ids=lambda case: case["id"])
def test_sha256_order(case: dict[str, Any]) -> None:
    order = stats.hash_order(case["items"], case["seed"], case["purpose"])
    assert list(order) == case["order"]
    assert [stats.hash_key(item, case["seed"], case["purpose"]) for item in order] == case["digests"]


@pytest.mark.parametrize("case", WILLIAMS["designs"], ids=lambda case: f"{case['arms']} arms")
def test_williams(case: dict[str, Any]) -> None:
    rows = stats.williams(case["arms"])
    assert [list(row) for row in rows] == case["sequences"]
    got = stats.balance(rows)
    assert {count for row in got.positions for count in row} == {case["each_arm_in_each_position"]}
    off = {got.successions[i][j] for i in range(case["arms"]) for j in range(case["arms"]) if i != j}
    assert off == {case["each_ordered_pair_adjacent"]}
    assert (got.position_imbalance, got.succession_imbalance) == (0, 0)


def test_a_plain_latin_square_of_three_is_not_balanced() -> None:
    counterexample = WILLIAMS["counterexample_plain_latin_3"]
    got = stats.balance(counterexample["rows"])
    assert [list(row) for row in got.successions] == counterexample["adjacency"]
    assert (got.position_imbalance, got.succession_imbalance) == (0, 2)


def test_line_feeds_and_look_alikes_are_refused() -> None:
    with pytest.raises(stats.StatsError, match="line feed"):
        stats.hash_order(["a\nb"], 1, "p")
    with pytest.raises(stats.StatsError, match="equal"):
        stats.hash_order(["caf\u00e9", "cafe\u0301"], 1, "p")


def test_another_item_does_not_reshuffle() -> None:
    few = stats.hash_order(["a", "b", "c"], 7, "p")
    more = stats.hash_order(["a", "b", "c", "d"], 7, "p")
    assert tuple(item for item in more if item != "d") == few
