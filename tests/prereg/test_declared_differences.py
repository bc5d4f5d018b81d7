"""Declared differences of an arm: what may be registered, what the lock keeps, and in which words it is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from factories import PLAN, make_lock, make_plan
from pydantic import ValidationError

from pairtrial.prereg.lock import parse_lock
from pairtrial.prereg.plan import Plan
from pairtrial.prereg.registration import as_html, as_markdown
from pairtrial.prereg.review import describe_plan, estimand_lines

REASON = "Without it the agent reads no context file."
LINE = "second difference: arm treat also sets context_files=true (Without it the agent reads no context file)"
DIFFERENCES = {"context_files": {"value": True, "reason": REASON}}
CONTROL, TREAT, REPLICATE = PLAN["arms"]


def with_differences(value: dict[str, Any] = DIFFERENCES, **options: Any) -> Plan:
    return make_plan(
        arms=[CONTROL, {**TREAT, "differences": value}, REPLICATE], agent={**PLAN["agent"], "options": options}
    )


def test_the_agent_of_an_arm_is_the_plans_but_for_what_it_declares() -> None:
    plan = with_differences(tools="core", context_files=False)
    assert plan.agent_of("control") == plan.agent_of("aa") == plan.agent
    assert plan.agent_of("treat").options == {"tools": "core", "context_files": True}
    assert plan.agent_of("treat").model_copy(update={"options": plan.agent.options}) == plan.agent


@pytest.mark.parametrize("arm", [CONTROL, REPLICATE])
def test_neither_a_control_nor_an_aa_replicate_may_differ(arm: dict[str, Any]) -> None:
    arms = [{**item, "differences": DIFFERENCES} if item is arm else item for item in PLAN["arms"]]
    with pytest.raises(ValidationError, match=f"arm '{arm['name']}': differences: only a treatment may differ"):
        make_plan(arms=arms)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"context_files": True}, "valid dictionary"),
        ({"context_files": {"value": True}}, "reason"),
        ({"context_files": {"value": True, "reason": "because"}}, "at least 10 characters"),
        ({"context_files": {"value": [1], "reason": REASON}}, "value"),
        ({"--bare": {"value": True, "reason": REASON}}, "pattern"),
    ],
)
def test_a_difference_has_a_plain_value_and_a_reason(value: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        with_differences(value)


def test_a_lock_keeps_differences_and_without_any_has_the_bytes_it_always_had() -> None:
    lock = make_lock(with_differences())
    assert parse_lock(lock.to_bytes(), "x") == lock
    arms = json.loads(lock.to_bytes())["plan"]["arms"]
    assert arms[1]["differences"] == {"context_files": {"reason": REASON, "value": True}}
    assert "differences" not in arms[0]
    assert b"differences" not in make_lock().to_bytes()


def test_the_estimand_names_the_arm_with_the_second_difference() -> None:
    (line,) = [line for line in estimand_lines(with_differences()) if line.startswith("Treatments: ")]
    assert (
        line
        == "Treatments: treat against control; arms differ in one file, treat in declared settings of the agent too."
    )
    assert "Treatments: treat against control; arms differ in one file." in estimand_lines(make_plan())


def test_check_and_the_registration_say_the_same_words() -> None:
    plan = with_differences()
    assert LINE in describe_plan(plan)
    told = f"{LINE[0].upper()}{LINE[1:]}."
    assert told in as_markdown(make_lock(plan))
    assert told in as_html(make_lock(plan))
    assert not any("second difference" in line for line in describe_plan(make_plan()))
