"""Group E: how statistics and words make a false result, one planted fault for each, and what must come out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from factories import PLAN, WORDING, make_lock, make_plan, receipts_for
from pydantic import ValidationError

from pairtrial import stats
from pairtrial.core.errors import ReceiptError
from pairtrial.core.status import Status
from pairtrial.prereg.lock import Lock
from pairtrial.prereg.review import impossible
from pairtrial.prereg.wording import ClaimKind
from pairtrial.report import Scorecard, score
from pairtrial.report.markdown import render
from pairtrial.report.readme import insert
from pairtrial.report.score import JournalFacts
from pairtrial.report.terminal import summary

R, U = Status.RESOLVED, Status.UNRESOLVED
FACTS = JournalFacts({}, True)


def lock_of(tasks: int, *, repetitions: int = 1, identities: dict[str, str] | None = None, **changes: Any) -> Lock:
    primary = "mcnemar-exact" if repetitions == 1 else "sign-flip-exact"
    analysis = {**PLAN["analysis"], "primary": primary, **changes.pop("analysis", {})}
    ids = [f"t{i:02d}" for i in range(tasks)]
    plan = make_plan(tasks={"pack": "p", "ids": ids}, repetitions=repetitions, analysis=analysis, **changes)
    return make_lock(plan, **(identities or {}))


def card_of(lock: Lock, outcomes: dict[str, Status]) -> Scorecard:
    return score(lock, receipts_for(lock, outcomes), FACTS)


def test_E1_paired_data_get_a_paired_test() -> None:
    """20 of 40 against 12 of 40, eight wins and no loss: the unpaired test says nothing (Fisher 0.11), the paired one 2**-7."""
    outcomes = {f"t{i:02d}.treat.r1": R for i in range(20)} | {f"t{i:02d}.control.r1": R for i in range(12)}
    item = card_of(lock_of(40), outcomes).comparisons[0]
    assert (item.wins, item.losses, item.p) == (8, 0, 2.0**-7)
    assert item.test == "exact McNemar, two-sided"


def test_E2_repetitions_are_no_tasks() -> None:
    """Three tasks won in all ten repetitions: thirty wins would be p = 2e-9, three tasks are p = 0.25."""
    lock = lock_of(6, repetitions=10)
    outcomes = {f"t{i:02d}.treat.r{r}": R for i in range(3) for r in range(1, 11)}
    card = card_of(lock, outcomes)
    assert card.comparisons[0].p == 0.25
    assert card.claims[0].kind is ClaimKind.INCONCLUSIVE


def test_E3_several_providers_are_corrected_and_a_missing_one_counts_as_one() -> None:
    arms = [{"name": "control", "kind": "control"}, {"name": "aa", "kind": "replicate"}]
    arms += [{"name": name, "kind": "treatment", "provider": name} for name in ("p1", "p2", "p3")]
    lock = lock_of(8, arms=arms, analysis={"family": ["p1", "p2", "p3"]})
    outcomes = {f"t{i:02d}.p1.r1": R for i in range(6)}
    first = card_of(lock, outcomes).comparisons[0]
    assert (first.p, first.p_holm, first.floor) == (2.0**-5, 3 * 2.0**-5, 7)
    assert first.effect is ClaimKind.INCONCLUSIVE
    with pytest.raises(ValidationError, match="leaving one out would hide a comparison"):
        lock_of(8, arms=arms, analysis={"family": ["p1"]})


def test_E4_a_control_that_disagrees_with_itself_closes_the_gate() -> None:
    outcomes = {f"t{i:02d}.treat.r1": R for i in range(8)} | {f"t{i:02d}.aa.r1": R for i in range(8)}
    card = card_of(lock_of(20), outcomes)
    assert card.comparisons[0].effect is ClaimKind.DIFFERENCE
    assert card.claims[0].kind is ClaimKind.DESCRIPTIVE
    odd = card.replicates[0].odd_one_out["treat"]
    assert (odd["odd"], odd["mixed"], odd["p"]) == (0, 8, 1.0)


def test_E5_a_null_is_never_worded_as_equality() -> None:
    sentence = card_of(lock_of(22), {}).claims[0].sentence
    assert sentence.startswith("No difference was shown between treat and control")
    for words in ("there was no effect", "as good as before", "there is no difference"):
        with pytest.raises(ValidationError, match="claim more than any test here can show"):
            make_plan(wording={**WORDING, "inconclusive": f"In this trial {words}."})
    wording = {**WORDING, "equivalent": "Equivalent within {margin_pp} pp."}
    assert impossible(lock_of(22, analysis={"equivalence_margin": 0.05}, wording=wording).plan)[0].startswith(
        "analysis.equivalence_margin: 0.05 cannot be shown with 22 tasks"
    )
    equal = lock_of(60, analysis={"equivalence_margin": 0.1}, wording=wording)
    claim = card_of(equal, {}).claims[0]
    assert (claim.kind, claim.sentence) == (ClaimKind.EQUIVALENT, "Equivalent within 10.0 pp.")


def test_E6_below_the_floor_the_verdict_is_inconclusive_whatever_the_difference() -> None:
    lock = lock_of(5, stage="feasibility", wording={**WORDING, "descriptive": WORDING["inconclusive"]})
    card = card_of(lock, {f"t{i:02d}.treat.r1": R for i in range(5)})
    assert (card.comparisons[0].delta, card.comparisons[0].effect) == (1.0, ClaimKind.INCONCLUSIVE)
    assert "5 discordant, 6 needed" in card.claims[0].sentence
    assert "5 discordant task(s), 6 are needed" in render(card, "runs/x")


def test_E7_only_what_the_lock_names_is_registered() -> None:
    lock = lock_of(8, analysis={"secondary": ["steps"]})
    card = card_of(lock, {})
    assert [metric.name for metric in card.secondary] == ["steps"]
    assert [(item.treatment, item.registered) for item in card.comparisons] == [("treat", True), ("aa", False)]
    text = render(card, "runs/x")
    assert text.count("(exploratory)") >= 2
    with pytest.raises(ValidationError, match="the test is sign-flip-exact"):
        make_plan(repetitions=3)


def test_E8_looking_before_the_end_gives_no_claim_and_the_e_value_is_valid_at_every_look() -> None:
    """Naive peeking errs in 10.7 % by 22 discordant tasks; the e-value in 1.7 %, and it needs eight wins to none."""
    lock = lock_of(20)
    receipts = receipts_for(lock, {f"t{i:02d}.treat.r1": R for i in range(20)})
    halfway = score(lock, receipts[:30], FACTS)
    assert halfway.claims[0].kind is ClaimKind.DESCRIPTIVE
    assert halfway.claims[0].gates == ("30 cells have not been run",)
    assert stats.stopping_probability(22, rule="exact") == pytest.approx(0.107, abs=5e-4)
    assert stats.stopping_probability(22) == pytest.approx(0.017, abs=5e-4)
    assert stats.e_value(7, 0).e == pytest.approx(16)
    assert stats.e_value(8, 0).e == pytest.approx(256 / 9)


def test_E9_efficiency_is_over_all_tasks_with_medians_beside_means() -> None:
    lock = lock_of(4, analysis={"secondary": ["steps"]})
    card = card_of(lock, {"t00.treat.r1": R})
    assert {arm: values["n"] for arm, values in card.secondary[0].arms.items()} == {"control": 4, "treat": 4, "aa": 4}
    assert "median ratio" in render(card, "runs/x")


def test_E10_a_degenerate_interval_is_null_with_a_reason() -> None:
    card = card_of(lock_of(22), {})
    tango, bca = card.comparisons[0].intervals
    assert (bca.low, bca.high) == (None, None)
    assert bca.reason is not None and "equal" in bca.reason
    assert [round(100 * (value or 0), 1) for value in (tango.low, tango.high)] == [-14.9, 14.9]
    data = card.to_bytes()
    assert b"NaN" not in data and b"[0, 0]" not in render(card, "x").encode()
    assert json.loads(data)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"stage": "feasibility"}, "feasibility stage"),
        ({"identities": {"agent.embedded": "true"}}, "no language model took part"),
        ({"arms": PLAN["arms"][:2]}, "no replicate arm was registered"),
    ],
)
def test_E11_what_may_only_be_described(changes: dict[str, Any], reason: str) -> None:
    lock = lock_of(10, **changes)
    card = card_of(lock, {f"t{i:02d}.treat.r1": R for i in range(10)})
    assert card.comparisons[0].effect is ClaimKind.DIFFERENCE
    assert (card.claims[0].kind, card.claims[0].gates) == (ClaimKind.DESCRIPTIVE, (reason,))
    assert summary(card, "runs/x").startswith(f"Descriptive only ({reason})")


def test_E11_an_incomplete_run_is_described() -> None:
    outcomes = {f"t{i:02d}.treat.r1": R for i in range(7)} | {
        f"t{i:02d}.aa.r1": Status.SANDBOX_LOST for i in range(7, 10)
    }
    card = card_of(lock_of(10), outcomes)
    assert card.claims[0].gates == ("only 7 of 10 blocks are complete",)


def test_E12_a_block_from_another_run_is_stale_and_its_heading_says_which() -> None:
    empty = "<!-- pairtrial:begin plan=trial -->\n<!-- pairtrial:end plan=trial -->"
    one, two = card_of(lock_of(8), {"t00.treat.r1": R}), card_of(lock_of(8, seed="other"), {})
    published = insert(empty, one, "runs/trial/a", "README.md")
    assert f"id={one.plan_id[:12]}" in published
    assert f"id `{one.plan_id[:12]}`, source [`runs/trial/a`]" in published
    assert insert(published, two, "runs/trial/b", "README.md") != published
    with pytest.raises(ReceiptError):
        insert("no block", one, "runs/trial/a", "README.md")


def test_E13_two_scorings_are_the_same_bytes_in_any_order_and_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = lock_of(9, analysis={"secondary": ["steps", "wall_s"]})
    receipts = receipts_for(lock, {"t01.treat.r1": R, "t02.control.r1": R})
    before = score(lock, receipts, FACTS).to_bytes()
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    assert score(lock, list(reversed(receipts)), FACTS).to_bytes() == before
