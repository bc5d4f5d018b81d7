"""Amendments, differences between locks, and registrations for people."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest
from factories import make_lock, make_plan, receipts_for

from pairtrial.core.errors import PlanError
from pairtrial.prereg.amend import amendment, differences
from pairtrial.prereg.lock import Lock, parse_lock
from pairtrial.prereg.registration import as_html, as_markdown, sections
from pairtrial.report import score
from pairtrial.report.markdown import render
from pairtrial.report.score import JournalFacts


def record(lock: Lock) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(lock.to_bytes())
    return value


def amended() -> Lock:
    old = make_lock()
    new = make_lock(make_plan(analysis={"primary": "mcnemar-exact", "family": ["treat"], "alpha": 0.01}))
    changes = differences(record(old), record(new))
    note = amendment(
        old.plan_id, changes, reason="A stricter level was asked for.", bias="favours-control", today=date(2026, 2, 3)
    )
    return new.model_copy(update={"amendments": (note,)}).whole()


def test_differences_name_every_field_with_both_values() -> None:
    old, new = make_lock(prompt="a"), make_lock(make_plan(repetitions=1, question="Another question?"), new="x")
    assert differences(record(old), record(new)) == [
        "identities.new: absent → \"x\"",
        "identities.prompt: \"a\" → absent",
        "plan.question: \"Does the treatment change anything?\" → \"Another question?\"",
    ]  # fmt: skip
    assert differences(record(old), record(old)) == []


def test_an_amendment_makes_another_plan_id_and_names_its_parent() -> None:
    lock = amended()
    assert lock.plan_id != make_lock().plan_id
    assert lock.amendments[0].parent == make_lock().plan_id
    assert lock.amendments[0].changes == ("plan.analysis.alpha: 0.05 → 0.01",)
    assert parse_lock(lock.to_bytes(), "x") == lock


def test_an_amendment_that_changes_nothing_is_refused() -> None:
    with pytest.raises(PlanError, match="nothing to amend"):
        amendment("0" * 64, [], reason="No reason at all.", bias="unknown", today=date(2026, 2, 3))


def test_every_report_lists_every_amendment() -> None:
    lock = amended()
    text = render(score(lock, receipts_for(lock, {}), JournalFacts({}, None)), "runs/trial/x")
    assert "## Amendments" in text
    assert "2026-02-03, from plan " in text
    assert "A stricter level was asked for. Likely bias: favours-control." in text


def test_a_registration_has_the_fields_of_the_form_and_the_sentences() -> None:
    lock = amended()
    headings = [heading for heading, _ in sections(lock)]
    for wanted in (
        "Title", "Hypotheses", "Study type", "Blinding", "Study design", "Randomization", "Existing data", "Sample size",
        "Stopping rule", "Manipulated variables", "Measured variables", "Statistical models", "Inference criteria",
        "Data exclusion", "Missing data", "Exploratory analysis", "Other",
    ):  # fmt: skip
        assert wanted in headings
    text = as_markdown(lock)
    assert f"Plan id: {lock.plan_id}" in text
    assert "Sentence for inconclusive: No difference was shown between {treatment} and {control}" in text
    assert "Amendment of 2026-02-03" in text


def test_the_html_page_escapes_and_needs_nothing_from_outside() -> None:
    page = as_html(make_lock(make_plan(question="<img src=x onerror=alert(1)> & more?")))
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt; &amp; more?" in page
    assert "http" not in page.replace("https://", "http")
    assert "<script" not in page
