"""The run folder: write-once receipts, one writer, whole after any crash."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from factories import make_lock, make_plan, make_receipt, receipts_for

from pairtrial.core.errors import EnvironmentFault, ReceiptError
from pairtrial.core.status import Status
from pairtrial.prereg.schedule import schedule
from pairtrial.runs.journal import parse_journal
from pairtrial.runs.store import RunReader, RunStore, find_run, run_folder


def test_receipts_come_back_as_they_were_written(tmp_path: Path) -> None:
    lock = make_lock()
    with RunStore(tmp_path, lock) as store:
        written = [store.record(receipt, {"work.patch": b"diff"}) for receipt in receipts_for(lock, {})]
    read = [receipt for _, receipt in RunReader(run_folder(tmp_path, lock)).attempts()]
    assert sorted(r.cell.id for r in read) == sorted(r.cell.id for r in written)
    assert {r.cell.id: r for r in read} == {r.cell.id: r for r in written}
    assert all(set(r.files) == {"work.patch"} for r in read)


def test_a_receipt_is_never_replaced(tmp_path: Path) -> None:
    lock = make_lock()
    receipt = receipts_for(lock, {})[0]
    with RunStore(tmp_path, lock) as store:
        store.record(receipt, {})
        with pytest.raises(EnvironmentFault, match="write-once"):
            store.record(receipt.model_copy(update={"status": Status.RESOLVED}), {})
    assert [r.status for _, r in RunReader(run_folder(tmp_path, lock)).attempts()] == [Status.UNRESOLVED]


def test_a_second_run_on_the_folder_is_refused(tmp_path: Path) -> None:
    lock = make_lock()
    with RunStore(tmp_path, lock), pytest.raises(EnvironmentFault, match="another `pairtrial run` is at work"):
        RunStore(tmp_path, lock)
    RunStore(tmp_path, lock).close()


def test_a_receipt_that_missed_the_journal_is_entered_at_the_next_start(tmp_path: Path) -> None:
    lock = make_lock()
    with RunStore(tmp_path, lock) as store:
        for receipt in receipts_for(lock, {})[:2]:
            store.record(receipt, {})
        journal = store.folder / "journal.jsonl"
    first = journal.read_bytes().splitlines(keepends=True)[0]
    journal.write_bytes(first)
    with RunStore(tmp_path, lock):
        pass
    lines, _ = parse_journal(journal.read_bytes(), "j")
    assert [line.fields.get("adopted") for line in lines] == [None, True]


def test_what_a_crash_left_half_built_is_removed(tmp_path: Path) -> None:
    lock = make_lock()
    receipt = receipts_for(lock, {})[0]
    folder = run_folder(tmp_path, lock)
    (folder / receipt.cell.id / ".building-1").mkdir(parents=True)
    (folder / receipt.cell.id / ".building-1" / "receipt.json").write_text("{")
    with RunStore(tmp_path, lock) as store:
        assert list(store.attempts()) == []
        store.record(receipt, {})
    assert [path.name for path in (folder / receipt.cell.id).iterdir()] == ["1"]


def test_receipts_of_another_plan_and_in_the_wrong_place_are_refused(tmp_path: Path) -> None:
    lock, other = make_lock(), make_lock(make_plan(seed="other"))
    cell = schedule(lock.plan)[0].cells[0]
    with RunStore(tmp_path, lock) as store:
        store.record(make_receipt(other, cell, Status.RESOLVED), {})
        folder = store.folder
    with pytest.raises(ReceiptError, match="was run under plan"):
        list(RunReader(folder).attempts())
    shutil.move(folder / cell.id, folder / "elsewhere")
    with pytest.raises(ReceiptError, match="holds the receipt of"):
        list(RunReader(folder).attempts())


def test_an_ambiguous_run_is_an_error_and_never_the_newest(tmp_path: Path) -> None:
    first, second = make_lock(), make_lock(make_plan(seed="other"))
    for lock in (first, second):
        RunStore(tmp_path, lock).close()
    with pytest.raises(ReceiptError, match="several runs"):
        find_run(tmp_path, "trial")
    assert find_run(tmp_path, "trial", second.plan_id).name == second.plan_id[:12]
    with pytest.raises(ReceiptError, match="no run of plan id"):
        find_run(tmp_path, "trial", "f" * 64)
