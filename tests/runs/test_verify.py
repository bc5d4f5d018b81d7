"""`verify` finds one changed byte, wherever it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard
from factories import make_lock, receipts_for

from pairtrial.core.status import Status
from pairtrial.runs.receipt import Receipt
from pairtrial.runs.store import RunStore
from pairtrial.runs.verify import verify_run


def from_report(receipt: Receipt, raw: bytes) -> Status | None:
    return Status(raw.decode())


def a_run(tmp_path: Path) -> Path:
    lock = make_lock()
    with RunStore(tmp_path, lock) as store:
        for receipt in receipts_for(lock, {"t1.treat.r1": Status.RESOLVED}):
            report = zstandard.ZstdCompressor().compress(receipt.status.value.encode())
            store.record(receipt, {"report.zst": report, "work.patch": b"diff"})
        return store.folder


def test_an_untouched_run_is_right(tmp_path: Path) -> None:
    found = verify_run(a_run(tmp_path), from_report)
    assert (found.problems, found.receipts, found.regraded) == ([], 9, 9)


@pytest.mark.parametrize("name", ["work.patch", "report.zst", "receipt.json"])
def test_one_changed_byte_is_named(tmp_path: Path, name: str) -> None:
    folder = a_run(tmp_path)
    path = folder / "t2.aa.r1" / "1" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    problems = verify_run(folder, from_report).problems
    assert problems
    assert any(f"t2.aa.r1/1/{name}" in problem for problem in problems)


def test_a_receipt_rewritten_in_its_own_form_is_named(tmp_path: Path) -> None:
    folder = a_run(tmp_path)
    path = folder / "t2.aa.r1" / "1" / "receipt.json"
    path.write_bytes(path.read_bytes().replace(b'"status":"unresolved"', b'"status":"resolved"'))
    problems = verify_run(folder, from_report).problems
    assert "t2.aa.r1/1/receipt.json: was changed after it was written" in problems
    assert "t2.aa.r1/1: the test report says unresolved, the receipt resolved" in problems


def test_deleted_and_added_receipts_and_files_are_named(tmp_path: Path) -> None:
    folder = a_run(tmp_path)
    (folder / "t1.treat.r1").rename(tmp_path / "elsewhere")
    (folder / "t3.aa.r1" / "1" / "extra.txt").write_text("x")
    (folder / "t3.control.r1" / "1" / "work.patch").unlink()
    problems = verify_run(folder, from_report).problems
    assert "t1.treat.r1/1: the journal has it, the folder has not" in problems
    assert "t3.aa.r1/1/extra.txt: no receipt names this file" in problems
    assert "t3.control.r1/1/work.patch: is missing" in problems


def test_a_cut_journal_and_a_changed_lock_are_named(tmp_path: Path) -> None:
    folder = a_run(tmp_path)
    journal = folder / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-5])
    problems = verify_run(folder, from_report).problems
    assert problems[0] == "journal.jsonl: the last line is cut"
    lock = folder / "lock.json"
    lock.write_bytes(lock.read_bytes().replace(b'"alpha":0.05', b'"alpha":0.06'))
    assert "holds the lock of plan" in verify_run(folder, from_report).problems[0]
