"""Reports: the claim first and last, nothing that breaks the layout, and a README block that cannot go stale unseen."""

from __future__ import annotations

import pytest
from factories import make_lock, make_plan, receipts_for

from pairtrial.core.errors import ReceiptError
from pairtrial.core.status import Status
from pairtrial.report import Scorecard, score
from pairtrial.report.claims import p_text, points, rate
from pairtrial.report.markdown import escape, render
from pairtrial.report.readme import insert
from pairtrial.report.score import JournalFacts
from pairtrial.report.terminal import summary

EMPTY = "intro\n<!-- pairtrial:begin plan=trial -->\n<!-- pairtrial:end plan=trial -->\noutro\n"


def a_card(**changes: object) -> Scorecard:
    lock = make_lock(make_plan(**changes), **{"agent.limits": "It says nothing about language models."})
    return score(lock, receipts_for(lock, {"t1.treat.r1": Status.RESOLVED}), JournalFacts({"treat": 4}, True))


def test_the_claim_stands_first_and_last() -> None:
    card = a_card()
    claim = escape(card.claims[0].sentence)
    lines = [line for line in render(card, "runs/trial/x").splitlines() if line]
    assert lines[1] == lines[-1] == f"**{claim}**"
    text = summary(card, "runs/trial/x")
    assert text.startswith("No difference was shown between treat and control")
    assert text.count("No difference was shown between treat and control") == 2


def test_a_report_says_what_it_cannot_say_and_where_it_comes_from() -> None:
    card = a_card()
    text = render(card, "runs/trial/x")
    assert "It says nothing about language models." in text
    assert f"Plan id `{card.plan_id}` · source `runs/trial/x` · lock committed before the run" in text
    assert "The sandbox did not isolate" in text
    assert "4 attempts, 1 interrupted" not in text
    assert "`treat`: 3 attempts, 1 interrupted" in text


def test_text_from_a_plan_cannot_break_the_layout() -> None:
    hostile = "Is it | so? <script>alert(1)</script> ![x](http://e.example/p.png) **bold** `code`\n# Heading"
    text = render(a_card(question=hostile), "runs/trial/x")
    assert "<script>" not in text
    assert "\n# Heading" not in text
    assert "![x]" not in text
    assert text.splitlines()[0].startswith("# trial: Is it \\| so? \\<script\\>")


def test_the_block_carries_the_plan_id_and_is_stable() -> None:
    card = a_card()
    once = insert(EMPTY, card, "runs/trial/x", "README.md")
    assert once.startswith(f"intro\n<!-- pairtrial:begin plan=trial id={card.plan_id[:12]} -->\n")
    assert once.endswith("<!-- pairtrial:end plan=trial -->\noutro\n")
    assert insert(once, card, "runs/trial/x", "README.md") == once
    assert insert(once, a_card(seed="other"), "runs/trial/x", "README.md") != once


@pytest.mark.parametrize(
    "text",
    ["no markers", EMPTY + EMPTY, EMPTY.replace("end", "ende"), EMPTY.replace("begin plan=trial", "begin plan=other")],
)
def test_missing_or_doubled_markers_are_refused(text: str) -> None:
    with pytest.raises(ReceiptError, match="exactly one pair of markers"):
        insert(text, a_card(), "runs/trial/x", "README.md")


def test_figures_are_written_with_their_denominators() -> None:
    assert rate(7, 20) == "7 of 20 (35 %)"
    assert rate(0, 0) == "0 of 0"
    assert [points(x) for x in (0.5, -0.136, 0.0, -0.0001, None)] == ["+50.0", "−13.6", "0.0", "0.0", "not defined"]
    assert [p_text(x) for x in (1.0, 0.03125, 0.0004, None)] == ["1.000", "0.031", "< 0.001", "not defined"]
