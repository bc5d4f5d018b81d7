"""The score: hand-worked counts, the symmetric exclusion of blocks, and the same bytes twice."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from factories import make_lock, make_plan, make_receipt, receipts_for

from pairtrial.core.errors import PlanError
from pairtrial.core.status import Status, StopReason
from pairtrial.prereg.lock import Lock
from pairtrial.prereg.schedule import schedule
from pairtrial.prereg.wording import ClaimKind
from pairtrial.report import Scorecard, score
from pairtrial.report.score import JournalFacts

NOTHING = JournalFacts({}, None)
R, U = Status.RESOLVED, Status.UNRESOLVED


def plan_of(tasks: int, **changes: object) -> Lock:
    return make_lock(make_plan(tasks={"pack": "pack", "ids": [f"t{i:02d}" for i in range(tasks)]}, **changes))


def card_of(lock: Lock, outcomes: Mapping[str, Status]) -> Scorecard:
    return score(lock, receipts_for(lock, outcomes), NOTHING)


def seed_headline(**analysis: object) -> Scorecard:
    """22 tasks, two wins, one loss, nineteen ties."""
    lock = plan_of(22, analysis={"primary": "mcnemar-exact", "family": ["treat"], **analysis})
    outcomes = {"t00.treat.r1": R, "t01.treat.r1": R, "t02.control.r1": R}
    return card_of(lock, outcomes)


def test_the_seed_headline() -> None:
    card = seed_headline(bca_ties="strict")
    item = card.comparisons[0]
    assert (item.wins, item.losses, item.ties, item.discordant, item.floor) == (2, 1, 19, 3, 6)
    assert item.p == item.p_holm == 1.0
    assert item.delta == pytest.approx(1 / 22, abs=1e-9)
    tango, bca = item.intervals
    assert [round(100 * x, 1) for x in (tango.low or 0, tango.high or 0)] == [-14.9, 24.5]
    assert [round(100 * x, 1) for x in (bca.low or 0, bca.high or 0)] == [-13.6, 13.6]
    claim = card.claims[0]
    assert claim.kind is ClaimKind.INCONCLUSIVE
    assert claim.sentence == (
        "No difference was shown between treat and control: 22 tasks, 3 discordant, 6 needed, p = 1.000, "
        "[−14.9, +24.5] pp."
    )


def test_mid_ties_are_the_default() -> None:
    bca = seed_headline().comparisons[0].intervals[1]
    assert [round(22 * x) for x in (bca.low or 0, bca.high or 0)] == [-2, 5]


def test_six_wins_are_a_difference_and_five_cannot_be() -> None:
    for wins, kind in ((6, ClaimKind.DIFFERENCE), (5, ClaimKind.INCONCLUSIVE)):
        card = card_of(plan_of(20), {f"t{i:02d}.treat.r1": R for i in range(wins)})
        assert card.claims[0].kind is kind
        assert card.comparisons[0].p == pytest.approx(2.0 ** (1 - wins))
    assert card.comparisons[0].disagreement is not None  # five wins: the intervals leave 0 out, the test does not


def test_an_invalid_cell_takes_its_block_out_of_every_arm_and_is_never_zero() -> None:
    lock = plan_of(3)
    card = card_of(lock, {"t00.control.r1": R, "t00.aa.r1": R, "t00.treat.r1": Status.INVALID_ENVIRONMENT})
    assert card.blocks_complete == 2
    assert [row.task for row in card.tasks] == ["t01", "t02"]
    assert card.comparisons[0].tasks == 2
    assert card.comparisons[0].losses == 0
    (excluded,) = card.excluded
    assert excluded.statuses == {"aa": "resolved", "control": "resolved", "treat": "invalid_environment"}
    control, treat, _ = card.arms
    assert (control.graded, control.excluded, control.resolved) == (3, 1, 1)
    assert (treat.graded, treat.invalid) == (2, {"invalid_environment": 1})


@pytest.mark.parametrize("status", [status for status in Status if not status.is_graded])
def test_every_invalid_status_is_counted_and_the_sums_add_up(status: Status) -> None:
    card = card_of(plan_of(3), {"t01.treat.r1": status})
    for arm in card.arms:
        assert arm.planned == arm.graded + sum(arm.invalid.values()) + arm.not_run == 3


def test_cells_that_were_not_run_make_the_claim_descriptive() -> None:
    lock = plan_of(8)
    receipts = receipts_for(lock, {f"t{i:02d}.treat.r1": R for i in range(8)})
    card = score(lock, receipts[:-3], NOTHING)
    assert not card.complete
    assert sum(arm.not_run for arm in card.arms) == 3
    assert card.claims[0].kind is ClaimKind.DESCRIPTIVE
    assert card.claims[0].gates == ("3 cells have not been run",)


def test_no_complete_block_is_invalid_and_p_counts_as_one() -> None:
    lock = plan_of(3)
    card = score(lock, [], NOTHING)
    assert card.claims[0].kind is ClaimKind.INVALID
    assert (card.comparisons[0].p, card.comparisons[0].p_holm) == (None, 1.0)


def test_an_embedded_agent_never_gives_a_claim() -> None:
    plan = make_plan(tasks={"pack": "pack", "ids": [f"t{i}" for i in range(10)]})
    lock = make_lock(plan, **{"agent.embedded": "true"})
    card = card_of(lock, {f"t{i}.treat.r1": R for i in range(10)})
    assert card.comparisons[0].effect is ClaimKind.DIFFERENCE
    assert card.claims[0].kind is ClaimKind.DESCRIPTIVE


def test_a_replicate_that_disagrees_too_often_closes_the_gate() -> None:
    outcomes = {f"t{i:02d}.treat.r1": R for i in range(10)} | {f"t{i:02d}.aa.r1": R for i in range(4)}
    card = card_of(plan_of(10), outcomes)
    assert card.replicates[0].rate == 0.4
    assert card.claims[0].kind is ClaimKind.DESCRIPTIVE
    assert "40% of blocks, registered limit 35%" in card.claims[0].gates[0]


def test_the_odd_one_out_is_counted_among_mixed_tasks() -> None:
    # t00: treatment alone differs; t01: the replicate alone; t02: the control alone; the others agree.
    card = card_of(plan_of(6), {"t00.treat.r1": R, "t01.aa.r1": R, "t02.aa.r1": R, "t02.treat.r1": R})
    odd = card.replicates[0].odd_one_out["treat"]
    assert (odd["odd"], odd["mixed"]) == (1, 3)
    assert odd["p"] == pytest.approx(1 - (2 / 3) ** 3, abs=1e-9)


def test_unequal_invalidation_is_tested() -> None:
    outcomes = {f"t{i:02d}.treat.r1": Status.SANDBOX_LOST for i in range(6)}
    card = card_of(plan_of(60), outcomes)
    assert card.invalidation_p == {"treat": 0.03125, "aa": 1.0}
    assert card.claims[0].gates == ("treat and control lost rollouts unequally (p = 0.0312)",)


def test_repetitions_are_summed_within_tasks() -> None:
    analysis = {"primary": "sign-flip-exact", "family": ["treat"]}
    lock = plan_of(7, repetitions=3, analysis=analysis)
    outcomes = {f"t{i:02d}.treat.r{r}": R for i in range(7) for r in (1, 2, 3)} | {
        f"t{i:02d}.control.r1": R for i in range(7)
    }
    item = card_of(lock, outcomes).comparisons[0]
    assert (item.tasks, item.wins) == (7, 7)  # never 21 independent runs
    assert item.p == pytest.approx(2.0**-6)
    assert item.delta == pytest.approx(2 / 3, abs=1e-9)


def test_of_several_attempts_the_last_counts_and_all_are_listed() -> None:
    lock = plan_of(3)
    receipts = receipts_for(lock, {})
    cell = schedule(lock.plan)[0].cells[0]
    index = next(i for i, r in enumerate(receipts) if r.cell.id == cell.id)
    lost = make_receipt(lock, cell, Status.SANDBOX_LOST)
    again = make_receipt(lock, cell, R, attempt=2)
    card = score(lock, [*receipts[:index], lost, again, *receipts[index + 1 :]], NOTHING)
    assert card.arm(cell.arm).attempts == 4
    assert card.arm(cell.arm).resolved == 1
    assert card.blocks_complete == 3


def test_finished_is_not_resolved() -> None:
    lock = plan_of(3)
    receipts = [
        r.model_copy(update={"stop_reason": StopReason.GAVE_UP}) if r.cell.arm == "control" else r
        for r in receipts_for(lock, {})
    ]
    card = score(lock, receipts, NOTHING)
    assert [(arm.finished, arm.resolved) for arm in card.arms] == [(0, 0), (3, 0), (3, 0)]


def test_two_scorings_give_the_same_bytes_in_any_order_of_receipts() -> None:
    lock = plan_of(5)
    receipts = receipts_for(lock, {"t00.treat.r1": R})
    first = score(lock, receipts, NOTHING).to_bytes()
    assert first == score(lock, receipts[::-1], NOTHING).to_bytes()
    assert b"NaN" not in first and b"Infinity" not in first


def test_a_lock_whose_schedule_is_another_is_refused() -> None:
    lock = make_lock(schedule="0" * 64)
    with pytest.raises(PlanError, match="schedule"):
        score(lock, [], NOTHING)
