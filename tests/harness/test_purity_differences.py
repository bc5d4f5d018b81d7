"""Purity of an arm with declared flags: what they bring by themselves is told apart from what its provider brings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from factories import PLAN, make_plan
from rollout_cases import TASK, Laboratory, make_laboratory, write_provider

from pairtrial.harness.gateway.wire import classify
from pairtrial.harness.purity import PurityRecord, Shot, purity_record

CONTROL, TREAT, REPLICATE = PLAN["arms"]
DECLARED = {**TREAT, "differences": {"context_files": {"value": True, "reason": "It reads no file without it."}}}
NOTE = "The shelf says what add must give."
BASE: dict[str, Any] = {
    "model": "m",
    "system": "You repair.",
    "tools": [{"name": "edit"}],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "Repair it."}]}],
}
SKILLS = {**BASE, "tools": [{"name": "edit"}, {"name": "Skill"}]}


def noted(body: Mapping[str, Any]) -> dict[str, Any]:
    """The request with the context file in it."""
    first = {"type": "text", "text": NOTE}
    return {**body, "messages": [{"role": "user", "content": [first, *BASE["messages"][0]["content"]]}]}


def shot(arm: str, body: Mapping[str, Any]) -> Shot:
    request = classify("POST", "/v1/messages", json.dumps(body).encode())
    assert request is not None
    return Shot(arm, request, request.body)


@pytest.fixture
def lab(tmp_path: Path) -> Laboratory:
    provider = write_provider(tmp_path / "notes", {"context_files": {"CLAUDE.md": "n.md"}}, {"n.md": NOTE + "\n"})
    plan = make_plan(tasks={"pack": "pack", "ids": [TASK]}, arms=[CONTROL, DECLARED, REPLICATE])
    return make_laboratory(tmp_path, "", provider=provider, plan=plan)


def record(lab: Laboratory, treat: Mapping[str, Any], bare: Mapping[str, Any] | None) -> PurityRecord:
    others = {"treat": [shot("treat", treat)], "aa": [shot("aa", BASE)]}
    flags = {} if bare is None else {"treat": shot("treat", bare)}
    return purity_record("0" * 64, TASK, [shot("control", BASE)], others, lab.experiment, flags)


def test_what_the_flag_brings_is_measured_apart_from_what_the_provider_brings(lab: Laboratory) -> None:
    found = record(lab, noted(SKILLS), SKILLS)
    treat = found.arms[1]
    note = len('{"type":"text","text":"' + NOTE + '"},')
    assert (treat.flags_bytes, treat.tax_bytes) == (len(',{"name":"Skill"}'), len(',{"name":"Skill"}') + note)
    assert [(item.where, item.flag) for item in treat.differences] == [
        ("tools[Skill]", True),
        ("messages[0].content[0]", False),
    ]
    assert found.passed
    assert found.aa_bytes == 0
    control, _, aa = found.arms
    assert (control.flags_bytes, aa.flags_bytes, aa.declared) == (None, None, ())


def test_what_neither_the_flag_nor_the_provider_brings_is_a_problem(lab: Laboratory) -> None:
    found = record(lab, {**noted(SKILLS), "system": "You repair, step by step."}, SKILLS)
    assert not found.passed
    assert [problem.split(": -")[0] for problem in found.problems] == ["treat: system"]


def test_a_flag_excuses_nothing_that_it_was_not_measured_to_bring(lab: Laboratory) -> None:
    found = record(lab, noted(SKILLS), BASE)
    assert [problem.split(": offers")[0] for problem in found.problems] == ["treat: tools[Skill]"]


def test_an_arm_that_differs_by_its_flag_alone_is_not_delivered(lab: Laboratory) -> None:
    found = record(lab, SKILLS, SKILLS)
    assert found.problems == (
        "treat: does not differ from the control on the wire: the treatment does not arrive",
    )  # fmt: skip


def test_a_flag_that_reaches_a_replicate_is_an_aa_difference(lab: Laboratory) -> None:
    others = {"treat": [shot("treat", noted(SKILLS))], "aa": [shot("aa", SKILLS)]}
    flags = {"treat": shot("treat", SKILLS)}
    found = purity_record("0" * 64, TASK, [shot("control", BASE)], others, lab.experiment, flags)
    assert found.problems == ("the control differs from itself: aa: tools[Skill]",)
    assert found.aa_bytes == len('{"name": "Skill"}')
