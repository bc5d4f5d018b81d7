"""What cannot work is refused at registration; what will limit the claim is said with numbers."""

from __future__ import annotations

from typing import Any

import pytest
from factories import PLAN, WORDING, make_plan

from pairtrial.prereg.plan import Plan
from pairtrial.prereg.review import estimand_lines, floor, impossible, warnings


def plan_of(tasks: int, **changes: Any) -> Plan:
    return make_plan(tasks={"pack": "pack", "ids": [f"t{i}" for i in range(tasks)]}, **changes)


def analysis(**changes: Any) -> dict[str, Any]:
    return {**PLAN["analysis"], **changes}


def test_a_confirmatory_plan_needs_as_many_tasks_as_the_floor() -> None:
    assert impossible(plan_of(6)) == []
    (problem,) = impossible(plan_of(5))
    assert problem.startswith("tasks.ids: 5 tasks can never give the 6 discordant ones")
    assert impossible(plan_of(5, stage="feasibility")) == []


def test_the_floor_grows_with_the_family_as_holm_needs() -> None:
    """2**(1 - m) <= 0.05 / K: six for one comparison, seven for two or three, eight for four to six."""
    for count, wanted in ((1, 6), (2, 7), (3, 7), (4, 8), (6, 8)):
        names = [f"p{i}" for i in range(count)]
        arms = [{"name": "control", "kind": "control"}]
        arms += [{"name": name, "kind": "treatment", "provider": name} for name in names]
        assert floor(make_plan(arms=arms, analysis=analysis(family=names))) == wanted


@pytest.mark.parametrize(
    ("tasks", "margin", "possible"), [(24, 0.10, False), (25, 0.10, True), (132, 0.02, False), (133, 0.02, True)]
)
def test_an_equivalence_margin_that_zero_discordance_cannot_reach_is_refused(
    tasks: int, margin: float, possible: bool
) -> None:
    wording = {**WORDING, "equivalent": "Equivalent within {margin_pp} pp."}
    found = impossible(plan_of(tasks, analysis=analysis(equivalence_margin=margin), wording=wording))
    assert (found == []) is possible
    if not possible:
        assert f"it needs {tasks + 1} tasks" in found[0]


def test_a_margin_needs_its_sentence() -> None:
    (problem,) = impossible(plan_of(60, analysis=analysis(equivalence_margin=0.1)))
    assert problem.startswith("wording.equivalent:")


def test_warnings_carry_the_numbers_of_the_oracles() -> None:
    """n = 22: six discordant tasks are reached in 26.7 % of runs at 20 % discordance."""
    notes = warnings(plan_of(22, analysis=analysis(plausible_discordance=[0.2])), embedded=False)
    (note,) = [note for note in notes if note.startswith("with 20 %")]
    assert "the floor of 6 is reached in 27 % of runs" in note
    assert "a significant result would overstate it" in note


def test_the_estimand_names_every_intercurrent_event() -> None:
    text = "\n".join(estimand_lines(plan_of(6)))
    for event in (
        "timeout",
        "turn limit",
        "spend limit",
        "crash",
        "invalid start",
        "infrastructure loss",
        "budget stop",
    ):
        assert f"{event}: " in text
    assert "treat against control" in text
