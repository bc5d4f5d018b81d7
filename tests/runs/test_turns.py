"""The order of turns by the journal: what is missing, doubled, swapped or foreign is named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import zstandard
from factories import make_lock, receipts_for

from pairtrial.core.canonical import sha256_hex
from pairtrial.core.status import Status
from pairtrial.runs.store import RunStore
from pairtrial.runs.turns import disorder
from pairtrial.runs.verify import verify_run

ONE, TWO, THREE, FOREIGN = (sha256_hex(word) for word in (b"one\n", b"two\n", b"three\n", b"foreign\n"))
ORDER = (ONE, TWO, THREE)


def problems(
    tmp_path: Path, sent: Sequence[str], *, told: Sequence[str] | None = None, killed: bool = False
) -> list[str]:
    """Verify a run whose first cell's journal has the turns ``sent`` and whose receipt has ``told``."""
    lock = make_lock(None, **{"task.t1.turns": " ".join(ORDER)})
    with RunStore(tmp_path, lock) as store:
        for receipt in receipts_for(lock, {}):
            mine = sent if receipt.cell.id == "t1.control.r1" else ORDER
            turns: Sequence[str] = ()
            if receipt.cell.task == "t1":
                turns = told if told is not None and mine is sent else mine
                if killed and mine is sent:
                    store.note("attempt-started", cell=receipt.cell.id, attempt=1)
                    store.note("turn", cell=receipt.cell.id, attempt=1, turn=1, sha256=ONE)
                store.note("attempt-started", cell=receipt.cell.id, attempt=1)
                for number, digest in enumerate(mine, start=1):
                    store.note("turn", cell=receipt.cell.id, attempt=1, turn=number, sha256=digest)
            report = zstandard.ZstdCompressor().compress(receipt.status.value.encode())
            store.record(receipt.model_copy(update={"turns": tuple(turns) or None}), {"report.zst": report})
        folder = store.folder
    return verify_run(folder, lambda receipt, raw: Status(raw.decode())).problems


def test_the_registered_order_is_right_also_after_a_start_that_was_killed(tmp_path: Path) -> None:
    assert problems(tmp_path / "a", ORDER) == []
    assert problems(tmp_path / "b", ORDER, killed=True) == []


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ((TWO, ONE, THREE), ["turn 2 was sent in place 1", "turn 1 was sent in place 2"]),
        ((ONE, ONE, TWO), ["turn 1 was sent twice", "turn 2 was sent in place 3"]),
        ((ONE, THREE), ["turn 3 was sent in place 2", "turn 3 of 3 is missing"]),
        ((ONE, TWO), ["turn 3 of 3 is missing"]),
        ((), ["turn 1 of 3 is missing"]),
        ((ONE, FOREIGN, THREE), ["place 2 holds a turn that is not registered"]),
        ((ONE, TWO, THREE, FOREIGN), ["place 4 holds a turn that is not registered"]),
    ],
    ids=["swapped", "doubled", "left out", "last missing", "none", "foreign", "one more"],
)
def test_a_planted_journal_is_named(tmp_path: Path, sent: tuple[str, ...], expected: list[str]) -> None:
    assert problems(tmp_path, sent) == [f"t1.control.r1/1: {text}" for text in expected]


def test_a_journal_that_tells_other_turns_than_the_receipt_is_named(tmp_path: Path) -> None:
    found = problems(tmp_path, (TWO, ONE, THREE), told=ORDER)
    assert found[0] == "t1.control.r1/1: the journal's turns are not the receipt's"


def test_to_stop_early_is_no_disorder_and_equal_turns_are_no_doubles() -> None:
    assert disorder((ONE, TWO), ORDER) == []
    assert disorder((ONE, ONE), (ONE, ONE, TWO)) == []
