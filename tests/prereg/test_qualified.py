"""What the lock holds of a qualification, and what the author of a plan is told."""

from __future__ import annotations

import pytest
from factories import make_plan, plan_data

from pairtrial.core.canonical import digest_json
from pairtrial.prereg.plan import Plan
from pairtrial.prereg.qualified import qualification_identities


def test_an_exception_names_a_task_of_the_plan() -> None:
    with pytest.raises(ValueError, match="exceptions: t9 is no task of this plan"):
        Plan.model_validate(
            plan_data(tasks={"pack": "p", "ids": ["t1"], "exceptions": {"t9": "a reason that is long enough"}}),
            strict=False,
        )


def test_an_exception_gives_a_reason() -> None:
    with pytest.raises(ValueError, match="at least 10 characters"):
        Plan.model_validate(plan_data(tasks={"pack": "p", "ids": ["t1"], "exceptions": {"t1": "flaky"}}), strict=False)


def test_a_plan_without_exceptions_keeps_its_bytes() -> None:
    assert "exceptions" not in make_plan().model_dump(mode="json")["tasks"]


def test_the_lock_tells_an_exception_from_a_qualification() -> None:
    reason = "kept to show what happens"
    plain = make_plan(tasks={"pack": "p", "ids": ["t1"]})
    excepted = make_plan(tasks={"pack": "p", "ids": ["t1"], "exceptions": {"t1": reason}})
    tasks = {"t1": None}
    assert qualification_identities(plain, tasks, {}) == {"task.t1.qualification": "none"}  # type: ignore[arg-type]
    assert qualification_identities(excepted, tasks, {}) == {  # type: ignore[arg-type]
        "task.t1.qualification": digest_json({"exception": reason, "found": "none"})
    }
