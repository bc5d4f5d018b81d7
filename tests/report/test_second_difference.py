"""A second difference stands in the claim, the report, the README block and on the terminal, in the plan's own words."""

from __future__ import annotations

from factories import PLAN, make_lock, make_plan, receipts_for

from pairtrial.core.status import Status
from pairtrial.report import Scorecard, score
from pairtrial.report.markdown import escape, render
from pairtrial.report.readme import block
from pairtrial.report.score import JournalFacts
from pairtrial.report.terminal import summary

LINE = "second difference: arm treat also sets context_files=true (It reads no file without it)"
CONTROL, TREAT, REPLICATE = PLAN["arms"]
DECLARED = {**TREAT, "differences": {"context_files": {"value": True, "reason": "It reads no file without it."}}}
OTHER = {"name": "other", "kind": "treatment", "provider": "other"}


def card_of(treat: dict[str, object], stage: str = "confirmatory") -> Scorecard:
    plan = make_plan(
        arms=[CONTROL, treat, OTHER, REPLICATE], analysis={"primary": "mcnemar-exact", "family": ["treat", "other"]},
        stage=stage,
    )  # fmt: skip
    lock = make_lock(plan)
    return score(lock, receipts_for(lock, {"t1.treat.r1": Status.RESOLVED}), JournalFacts({}, True))


def test_the_claim_about_the_arm_carries_it_and_no_other_claim_does() -> None:
    told = f" {LINE[0].upper()}{LINE[1:]}."
    first, second = card_of(DECLARED).claims
    plain, _ = card_of(TREAT).claims
    assert (first.treatment, second.treatment) == ("treat", "other")
    assert first.sentence == plain.sentence + told
    assert "econd difference" not in second.sentence
    held_back = card_of(DECLARED, "feasibility").claims[0]
    assert held_back.sentence.endswith(told)
    assert held_back.test_sentence is not None
    assert held_back.test_sentence.endswith(told)


def test_every_report_prints_it() -> None:
    card = card_of(DECLARED)
    assert card.differences == (LINE,)
    for text in (render(card, "runs/trial/x"), block(card, "runs/trial/x")):
        assert f"- {escape(LINE)}" in text.splitlines()
    assert LINE in summary(card, "runs/trial/x").replace("\n", " ")


def test_without_one_a_scorecard_has_the_bytes_it_always_had() -> None:
    card = card_of(TREAT)
    assert b'"differences"' not in card.to_bytes()
    assert "second difference" not in render(card, "runs/trial/x")
