"""Group D: how runs are lost, doubled, recycled or chosen; one planted fault for each, caught by the named gate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import zstandard
from factories import make_lock, make_plan, make_receipt, receipts_for
from pydantic import ValidationError
from rollout_cases import HEAD, REPAIR, make_laboratory

from pairtrial.core.errors import EnvironmentFault, ReceiptError
from pairtrial.core.status import Status
from pairtrial.harness.batch import Batch, cell_states
from pairtrial.prereg.lock import Lock, drift
from pairtrial.prereg.schedule import schedule
from pairtrial.report import score
from pairtrial.report.score import JournalFacts
from pairtrial.runs.store import RunReader, RunStore, find_run, run_folder
from pairtrial.runs.verify import verify_run

R, U = Status.RESOLVED, Status.UNRESOLVED
ANALYSIS = {"primary": "sign-flip-exact", "family": ["treat"]}


def lab_plan(**changes: Any) -> Any:
    return make_plan(tasks={"pack": "p", "ids": ["calc-add"]}, **changes)


def filled(root: Path, lock: Lock, outcomes: dict[str, Status] | None = None) -> Path:
    with RunStore(root, lock) as store:
        for receipt in receipts_for(lock, outcomes or {}):
            store.record(receipt, {"work.patch": b"x"})
        return store.folder


def test_D1_a_run_is_pinned_by_its_plan_id_and_never_the_newest(tmp_path: Path) -> None:
    old, new = make_lock(), make_lock(make_plan(seed="new"))
    for lock in (old, new):
        filled(tmp_path, lock)
    with pytest.raises(ReceiptError, match="several runs"):
        find_run(tmp_path, "trial")
    assert RunReader(run_folder(tmp_path, old)).plan_id == old.plan_id


@pytest.mark.anyio
async def test_D2_resume_takes_receipts_for_done_and_nothing_else(tmp_path: Path) -> None:
    """A folder without a receipt, as a crash leaves it, is not a done cell."""
    lab = make_laboratory(tmp_path, REPAIR, plan=lab_plan())
    folder = run_folder(tmp_path / "runs", lab.experiment.lock)
    (folder / "calc-add.treat.r1" / ".building-1").mkdir(parents=True)
    (folder / "calc-add.treat.r1" / ".building-1" / "events.jsonl.zst").write_bytes(b"half")
    with RunStore(tmp_path / "runs", lab.experiment.lock) as store:
        await Batch(lab.experiment, schedule(lab.experiment.plan), store, workers=1).run()
        found = sorted(receipt.cell.id for _, receipt in store.attempts())
    assert found == ["calc-add.aa.r1", "calc-add.control.r1", "calc-add.treat.r1"]


def test_D3_a_second_attempt_is_added_and_the_first_stays_and_is_paid_for(tmp_path: Path) -> None:
    lock = make_lock()
    cell = schedule(lock.plan)[0].cells[0]
    lost = make_receipt(lock, cell, Status.SANDBOX_LOST)
    with RunStore(tmp_path, lock) as store:
        store.record(lost, {})
        with pytest.raises(EnvironmentFault, match="write-once"):
            store.record(make_receipt(lock, cell, R), {})
        store.record(make_receipt(lock, cell, R, attempt=2), {})
        states = cell_states((receipt for _, receipt in store.attempts()), lock.plan)
    assert (states[cell.id].attempts, states[cell.id].status) == (2, R)


@pytest.mark.parametrize(
    "status", ["unresolved", "resolved", "invalid_environment", "tampered", "contaminated", "grading_error"]
)
def test_D4_a_second_draw_for_an_outcome_cannot_be_registered(status: str) -> None:
    with pytest.raises(ValidationError, match="a second draw for an outcome is a false result"):
        make_plan(retries={"max_attempts": 3, "statuses": [status]})


@pytest.mark.anyio
async def test_D5_two_arms_with_equal_transcripts_are_both_run(tmp_path: Path) -> None:
    """No result cache exists: every rollout leaves a file of its own in a place that only this test knows."""
    script = HEAD + f"start(); open({str(tmp_path)!r} + '/ran-' + str(os.getpid()), 'w'); fix(); done()"
    lab = make_laboratory(tmp_path, script, plan=lab_plan(repetitions=2, analysis=ANALYSIS))
    with RunStore(tmp_path / "runs", lab.experiment.lock) as store:
        await Batch(lab.experiment, schedule(lab.experiment.plan), store, workers=1).run()
    assert len(list(tmp_path.glob("ran-*"))) == 6


@pytest.mark.anyio
async def test_D6_the_budget_never_leaves_half_a_block(tmp_path: Path) -> None:
    spend = HEAD + "start(); say(type='usage', model='m', cost_usd='0.40'); done()"
    money = {"ceiling_usd": 2, "per_rollout_usd": 0.4}
    lab = make_laboratory(tmp_path, spend, plan=lab_plan(repetitions=5, analysis=ANALYSIS, budget=money))
    with RunStore(tmp_path / "runs", lab.experiment.lock) as store:
        progress = await Batch(lab.experiment, schedule(lab.experiment.plan), store, workers=3).run()
        done = {receipt.cell.repetition for _, receipt in store.attempts()}
    assert progress.done == 3
    assert done == {schedule(lab.experiment.plan)[0].repetition}  # the first block of the schedule, whole


@pytest.mark.parametrize("fault", ["edit", "delete", "add", "truncate"])
def test_D7_what_was_edited_deleted_added_or_cut_is_named(tmp_path: Path, fault: str) -> None:
    lock = make_lock()
    folder = filled(tmp_path, lock)
    place = folder / "t2.control.r1" / "1"
    if fault == "edit":
        path = place / "receipt.json"
        path.write_bytes(path.read_bytes().replace(b'"unresolved"', b'"resolved"'))
        words = "t2.control.r1/1/receipt.json: was changed after it was written"
    elif fault == "delete":
        (place / "receipt.json").unlink()
        words = "t2.control.r1/1: no receipt.json"
    elif fault == "add":
        receipt = make_receipt(lock, schedule(lock.plan)[0].cells[0], R, attempt=2)
        extra = folder / receipt.cell.id / "2"
        extra.mkdir()
        (extra / "receipt.json").write_bytes(receipt.to_bytes())
        words = "the journal does not know this receipt"
    else:
        journal = folder / "journal.jsonl"
        journal.write_bytes(b"\n".join(journal.read_bytes().split(b"\n")[1:]))
        words = "the chain breaks at line 1"
    problems = verify_run(folder, lambda receipt, raw: receipt.status).problems
    assert any(words in problem for problem in problems), problems


def test_D8_drift_names_the_field_and_both_values() -> None:
    before = make_lock(None, **{"task.t1.definition": "a" * 64, "arm.treat.provider": "b" * 64, "prices": "c" * 64})
    after = make_lock(None, **{"task.t1.definition": "a" * 64, "arm.treat.provider": "d" * 64})
    lines = drift(before.identities, after.identities)
    assert lines == [
        "arm.treat.provider: frozen as bbbbbbbbbbbbbbbb…, today dddddddddddddddd…",
        "prices: frozen as cccccccccccccccc…, today absent",
    ]


def test_D9_an_invalid_rollout_takes_its_block_from_every_arm() -> None:
    lock = make_lock()
    card = score(
        lock,
        receipts_for(lock, {"t1.control.r1": R, "t1.treat.r1": Status.INVALID_ENVIRONMENT}),
        JournalFacts({}, None),
    )
    assert (card.comparisons[0].tasks, card.comparisons[0].losses) == (2, 0)
    assert card.excluded[0].statuses == {"aa": "unresolved", "control": "resolved", "treat": "invalid_environment"}


@pytest.mark.parametrize("status", [status for status in Status if not status.is_graded])
def test_D10_D14_one_denominator_and_the_sums_add_up(status: Status) -> None:
    """8 cells of the treatment: 2 pass, 4 fail, 2 void: 2 of 6 graded, never 2 of 8 and never a silent 6."""
    lock = make_lock(make_plan(tasks={"pack": "p", "ids": [f"t{i}" for i in range(8)]}))
    outcomes = {"t0.treat.r1": R, "t1.treat.r1": R, "t2.treat.r1": status, "t3.treat.r1": status}
    card = score(lock, receipts_for(lock, outcomes), JournalFacts({}, None))
    arm = card.arm("treat")
    assert (arm.resolved, arm.graded, sum(arm.invalid.values()), arm.planned) == (2, 6, 2, 8)
    for counts in card.arms:
        assert counts.planned == counts.graded + sum(counts.invalid.values()) + counts.not_run


@pytest.mark.anyio
async def test_D11_D13_repetitions_at_once_share_no_workspace_home_or_temp(tmp_path: Path) -> None:
    script = HEAD + (
        "start()\n"
        "for folder in ('.', os.environ['HOME'], os.environ['TMPDIR']): open(folder + '/mark', 'x').close()\n"
        "import time; time.sleep(0.2); say(type='message', role='assistant', text=sys.argv[2]); done()"
    )
    lab = make_laboratory(tmp_path, script, plan=lab_plan(repetitions=3, analysis=ANALYSIS))
    with RunStore(tmp_path / "runs", lab.experiment.lock) as store:
        progress = await Batch(lab.experiment, schedule(lab.experiment.plan), store, workers=3).run()
        seeds = set()
        for path, _ in store.attempts():
            raw = (path / "events.jsonl.zst").read_bytes()
            lines = zstandard.ZstdDecompressor().decompress(raw, max_output_size=1 << 20).splitlines()
            seeds.add(json.loads(lines[1])["text"])
    assert dict(progress.by_status) == {"unresolved": 9}  # `open(…, 'x')` fails where another rollout was before
    assert len(seeds) == 9


def test_D12_what_runs_is_the_plan_of_the_lock(tmp_path: Path) -> None:
    """The plan on disk is never read for a value: its file's digest must be the lock's, and the lock's plan runs."""
    lab = make_laboratory(tmp_path, REPAIR, plan=lab_plan())
    assert lab.experiment.plan is lab.experiment.lock.plan
