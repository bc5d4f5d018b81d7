"""Sensitivity and secondary metrics, worked by hand."""

from __future__ import annotations

from typing import Any

import pytest
from factories import PLAN, make_lock, make_plan, make_receipt, receipts_for

from pairtrial.core.status import Status, StopReason
from pairtrial.prereg.lock import Lock
from pairtrial.prereg.schedule import schedule
from pairtrial.report import Scorecard, score
from pairtrial.report.markdown import render
from pairtrial.report.score import JournalFacts
from pairtrial.runs.receipt import Receipt, Times, WireRecord

R, U = Status.RESOLVED, Status.UNRESOLVED


def lock_of(tasks: int, repetitions: int = 1, targets: int | None = None, **analysis: Any) -> Lock:
    primary = "mcnemar-exact" if repetitions == 1 else "sign-flip-exact"
    plan = make_plan(
        tasks={"pack": "p", "ids": [f"t{i:02d}" for i in range(tasks)]},
        repetitions=repetitions,
        analysis={**PLAN["analysis"], "primary": primary, **analysis},
    )
    named = {f"task.t{i:02d}.target": f"package{i % targets}" for i in range(tasks)} if targets else {}
    return make_lock(plan, **named)


def card_of(lock: Lock, receipts: list[Receipt]) -> Scorecard:
    return score(lock, receipts, JournalFacts({}, None))


def test_missing_runs_are_filled_in_every_way() -> None:
    """10 tasks, 6 wins; one treatment run lost: between 6/10 and 7/10, and p between 2**-6 and 2**-5."""
    lock = lock_of(10)
    outcomes = {f"t{i:02d}.treat.r1": R for i in range(6)} | {"t09.treat.r1": Status.SANDBOX_LOST}
    missing = card_of(lock, receipts_for(lock, outcomes)).sensitivity[0].missing
    assert (missing.missing, missing.low, missing.high) == (1, 0.6, 0.7)
    assert (missing.p_low, missing.p_high) == (2.0**-6, 2.0**-5)
    assert missing.tipping_point is None


def test_the_tipping_point_is_the_fewest_lost_runs_that_change_the_verdict() -> None:
    """5 wins of 10 are not significant; one lost treatment run that had succeeded would make six."""
    lock = lock_of(10)
    outcomes = {f"t{i:02d}.treat.r1": R for i in range(5)} | {"t09.treat.r1": Status.GRADING_ERROR}
    assert card_of(lock, receipts_for(lock, outcomes)).sensitivity[0].missing.tipping_point == 1


def test_blocks_are_split_by_which_arm_ran_first() -> None:
    """The treatment wins exactly where it ran before the control."""
    lock = lock_of(12)
    outcomes = {}
    first = 0
    for block in schedule(lock.plan):
        place = {cell.arm: cell.position for cell in block.cells}
        if place["treat"] < place["control"]:
            first += 1
            outcomes[f"{block.task}.treat.r1"] = R
    item = card_of(lock, receipts_for(lock, outcomes)).sensitivity[0]
    assert (item.delta_treatment_first, item.blocks_treatment_first) == (1.0, first)
    assert (item.delta_control_first, item.blocks_control_first) == (0.0, 12 - first)


def test_tasks_of_one_package_move_together() -> None:
    """Two packages of five tasks, one all wins, one all ties: the clustered interval is far wider than the plain one."""
    lock = lock_of(10, targets=2)
    card = card_of(lock, receipts_for(lock, {f"t{i:02d}.treat.r1": R for i in range(0, 10, 2)}))
    item = card.sensitivity[0]
    assert (item.clusters, item.clustered_reliable) == (2, False)
    assert item.clustered_low is not None and item.clustered_high is not None
    assert item.clustered_high - item.clustered_low > 2
    assert card_of(lock_of(10), receipts_for(lock_of(10), {})).sensitivity[0].clusters is None


def test_the_pooled_control_is_the_mean_of_control_and_replicate() -> None:
    """Treatment 4/8, control 0/8, replicate 2/8: 4/8 - (0 + 2)/16 = 3/8."""
    lock = lock_of(8)
    outcomes = {f"t{i:02d}.treat.r1": R for i in range(4)} | {f"t{i:02d}.aa.r1": R for i in range(2)}
    assert card_of(lock, receipts_for(lock, outcomes)).sensitivity[0].delta_pooled_control == 0.375


def test_the_within_task_test_needs_repetitions() -> None:
    assert card_of(lock_of(6), receipts_for(lock_of(6), {})).sensitivity[0].within_task_p is None
    lock = lock_of(6, repetitions=2)
    outcomes = {f"t{i:02d}.treat.r{r}": R for i in range(6) for r in (1, 2)}
    card = card_of(lock, receipts_for(lock, outcomes))
    # In each task 2 of 4 labels are the treatment's: both successes fall to one arm with chance 2/6; six tasks.
    assert card.sensitivity[0].within_task_p == pytest.approx((1 / 3) ** 6)
    assert card.variance["treat"]["noise"] == 0.0


def test_ratios_are_paired_over_all_tasks_with_medians_beside_means() -> None:
    """Steps 2:1 on three tasks and 200:100 on one: every ratio is 2; a lone long task owns only the means."""
    lock = lock_of(4, secondary=["steps", "wall_s"])
    receipts = []
    for block in schedule(lock.plan):
        for cell in block.cells:
            base = 100 if cell.task == "t03" else 1
            used = 2 * base if cell.arm == "treat" else base
            plain = make_receipt(lock, cell, U)
            usage = (plain.usage[0].model_copy(update={"steps": used}),)
            receipts.append(plain.model_copy(update={"usage": usage}))
    steps, wall = card_of(lock, receipts).secondary
    assert (steps.ratios["treat"].geometric, steps.ratios["treat"].median, steps.ratios["treat"].of_means) == (
        2.0,
        2.0,
        2.0,
    )
    assert steps.arms["treat"] == {"median": 2.0, "mean": 51.5, "n": 4.0}
    assert wall.ratios["aa"].geometric == 1.0


def test_what_a_limit_cut_off_is_counted() -> None:
    lock = lock_of(3, secondary=["wall_s"])
    late = Times(setup_s=0.1, index_s=None, agent_s=60.0, grading_s=1.0)
    receipts = [
        r.model_copy(update={"stop_reason": StopReason.TIMEOUT, "times": late}) if r.cell.id == "t01.treat.r1" else r
        for r in receipts_for(lock, {})
    ]
    card = card_of(lock, receipts)
    assert card.secondary[0].ratios["treat"].censored == 1
    assert "1 rollouts cut off by a limit" in render(card, "runs/x")


def test_cost_is_shown_with_a_clean_cache_too() -> None:
    """The treatment costs 0.30 with every token fresh, the control 0.20, whatever the cache made of it."""
    lock = lock_of(3)
    receipts = []
    for receipt in receipts_for(lock, {}):
        wire = WireRecord(
            requests=1, main_requests=1, refused=0, errors=0, unfinished=0, unpriced=0, relayed=0, served=("m",),
            first_request_bytes=10, first_request_tools=("Edit",), capped=False, truncated=False,
            cost_neutral_usd="0.30" if receipt.cell.arm == "treat" else "0.20",
        )  # fmt: skip
        receipts.append(receipt.model_copy(update={"wire": wire}))
    card = card_of(lock, receipts)
    assert card.sensitivity[0].clean_cache == {"control": pytest.approx(0.2), "treat": pytest.approx(0.3)}
    assert "Mean cost of a rollout with a clean cache" in render(card, "runs/x")
    assert card_of(lock, receipts_for(lock, {})).sensitivity[0].clean_cache == {"control": None, "treat": None}
