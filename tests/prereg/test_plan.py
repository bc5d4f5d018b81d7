"""Plans: what cannot be registered, and why."""

from __future__ import annotations

from typing import Any

import pytest
from factories import WORDING, make_plan
from pydantic import ValidationError

from pairtrial.prereg.wording import ClaimKind

ARM = {"name": "control", "kind": "control"}
TREAT = {"name": "treat", "kind": "treatment", "provider": "provider"}


def test_the_factory_plan_is_valid() -> None:
    plan = make_plan()
    assert plan.control.name == "control"
    assert [arm.name for arm in plan.treatments] == ["treat"]
    assert [arm.name for arm in plan.replicates] == ["aa"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"extra": 1}, "Extra inputs are not permitted"),
        ({"arms": [ARM, ARM, TREAT]}, "arm 'control' stands twice"),
        ({"arms": [TREAT, {"name": "aa", "kind": "replicate"}]}, "exactly one control is needed, found 0"),
        ({"arms": [ARM, {"name": "treat", "kind": "treatment"}]}, "a treatment names its provider"),
        ({"arms": [ARM, {"name": "aa", "kind": "replicate", "provider": "x"}]}, "every other arm has none"),
        ({"tasks": {"pack": "p", "ids": ["t1", "t2", "t1"]}}, "task t1 stands twice"),
        ({"analysis": {"primary": "mcnemar-exact", "family": ["other"]}}, "must list every treatment exactly once"),
        ({"analysis": {"primary": "mcnemar-exact", "family": ["treat", "treat"]}}, "must list every treatment exactly once"),
        ({"repetitions": 3}, "with 3 repetition(s) the test is sign-flip-exact"),
        ({"retries": {"max_attempts": 2, "statuses": ["unresolved"]}}, "unresolved may not run again"),
        ({"retries": {"max_attempts": 2, "statuses": ["invalid_environment"]}}, "invalid_environment may not run again"),
        ({"budget": {"ceiling_usd": 1, "per_rollout_usd": 2}}, "larger than budget.ceiling_usd"),
        ({"sandbox": {"kind": "docker"}}, "required for docker"),
        ({"sandbox": {"kind": "local", "image": "x"}}, "refused for every other kind"),
        ({"seed": "two\nlines"}, "seed"),
        ({"wording": {**WORDING, "difference": "{winner} wins this"}}, "{winner} is no field"),
        ({"wording": {**WORDING, "inconclusive": "There was no effect at all."}}, "claim more than any test here"),
        ({"wording": {**WORDING, "difference": "Open { brace here"}}, "difference:"),
        ({"prompt": "/etc/passwd"}, "prompt"),
    ],
)  # fmt: skip
def test_what_cannot_be_registered(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        make_plan(**changes)
    assert words in str(caught.value)


def test_a_null_may_say_that_it_is_not_evidence_of_no_difference() -> None:
    sentence = "No difference was shown. That is not evidence of no difference."
    plan = make_plan(wording={**WORDING, "inconclusive": sentence})
    assert plan.wording.template(ClaimKind.INCONCLUSIVE) == sentence


def test_a_kind_without_a_sentence_is_worded_as_inconclusive() -> None:
    plan = make_plan()
    assert plan.wording.template(ClaimKind.EQUIVALENT) == plan.wording.inconclusive
