"""Verification of how rollouts were started: alike in every arm but for what the lock declares."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard
from factories import PLAN, make_lock, make_plan, make_receipt, receipts_for

from pairtrial.core.status import Status
from pairtrial.prereg.schedule import schedule
from pairtrial.runs.differences import StartCheck
from pairtrial.runs.store import RunStore
from pairtrial.runs.verify import verify_run

FLAGS = "with argument --read"
CONTROL, TREAT, REPLICATE = PLAN["arms"]
DECLARED = {**TREAT, "differences": {"context_files": {"value": True, "reason": "It reads nothing otherwise."}}}
PLAIN = {"control": ("1", ""), "treat": ("1", ""), "aa": ("1", "")}
SECOND = {**PLAIN, "treat": ("2", FLAGS)}


def problems(starts: dict[str, tuple[str, str]], *, declared: bool, **identities: str) -> list[str]:
    """Of one block whose arms were started with this digest and these flags."""
    plan = make_plan(tasks={"pack": "p", "ids": ["t1"]}, arms=[CONTROL, DECLARED if declared else TREAT, REPLICATE])
    flags = {"arm.treat.flags": FLAGS} if declared else {}
    check = StartCheck(make_lock(plan, **flags, **identities))
    found = []
    for cell in schedule(plan)[0].cells:
        digest, told = starts[cell.arm]
        observed = {"invocation": digest, "mcp-file": cell.arm, **({"flags": told} if told else {})}
        found += check.take(make_receipt(check.lock, cell, Status.RESOLVED, observed=observed))
    return found + check.problems()


def test_arms_that_start_alike_and_a_declared_difference_are_right() -> None:
    assert problems(PLAIN, declared=False) == []
    assert problems(SECOND, declared=True) == []


@pytest.mark.parametrize("arm", ["control", "treat", "aa"])
def test_a_start_that_differs_without_a_declaration_is_named(arm: str) -> None:
    found = problems({**PLAIN, arm: ("3", "")}, declared=False)
    assert found == ["t1, repetition 1: arms without a declared difference were started differently"]


def test_flags_that_nobody_registered_are_named() -> None:
    found = problems({**PLAIN, "treat": ("1", FLAGS)}, declared=False)
    assert found == ["t1.treat.r1/1: started with other flags (with argument --read) than registered (none)"]


def test_a_replicate_with_the_treatments_flags_is_named() -> None:
    found = problems({**SECOND, "aa": ("2", FLAGS)}, declared=True)
    assert found == [
        "t1.aa.r1/1: started with other flags (with argument --read) than registered (none)",
        "t1, repetition 1: arms without a declared difference were started differently",
    ]


@pytest.mark.parametrize("told", ["", "with argument --read; with argument --think"])
def test_fewer_or_more_flags_than_declared_are_named(told: str) -> None:
    (found,) = problems({**SECOND, "treat": ("2", told)}, declared=True)
    assert found.startswith(f"t1.treat.r1/1: started with other flags ({told or 'none'}) than registered (with")


def test_another_mcp_file_than_the_arms_is_named() -> None:
    identities = {"arm.control.mcp-file": "control", "arm.aa.mcp-file": "control"}
    found = problems(PLAIN, declared=False, **identities)
    assert found == ["t1.aa.r1/1: started with another MCP file than registered for aa"]


def test_a_cell_that_never_came_to_a_start_says_nothing() -> None:
    lock = make_lock()
    check = StartCheck(lock)
    cell = schedule(lock.plan)[0].cells[0]
    assert check.take(make_receipt(lock, cell, Status.SETUP_FAILURE)) == []
    assert check.problems() == []


def test_verify_names_an_arm_that_was_started_with_a_flag_of_its_own(tmp_path: Path) -> None:
    lock = make_lock()
    with RunStore(tmp_path, lock) as store:
        for receipt in receipts_for(lock, {}):
            digest = "2" if receipt.cell.id == "t2.treat.r1" else "1"
            report = zstandard.ZstdCompressor().compress(receipt.status.value.encode())
            store.record(receipt.model_copy(update={"observed": {"invocation": digest}}), {"report.zst": report})
        folder = store.folder
    found = verify_run(folder, lambda receipt, raw: Status(raw.decode()))
    assert found.problems == ["t2, repetition 1: arms without a declared difference were started differently"]
