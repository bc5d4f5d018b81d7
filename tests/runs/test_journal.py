"""The journal: a chain that survives a torn line and betrays a changed one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pairtrial.core.errors import ReceiptError
from pairtrial.runs.journal import GENESIS, Journal, parse_journal


def filled(path: Path, count: int = 3) -> bytes:
    journal = Journal(path)
    for number in range(count):
        journal.append("receipt", cell=f"c{number}", attempt=1)
    journal.close()
    return path.read_bytes()


def test_lines_are_chained_from_the_first(tmp_path: Path) -> None:
    filled(tmp_path / "j")
    lines, _ = parse_journal((tmp_path / "j").read_bytes(), "j")
    assert [line.sequence for line in lines] == [1, 2, 3]
    assert [line.prev for line in lines] == [GENESIS, lines[0].hash, lines[1].hash]


def test_cut_at_every_byte_at_most_the_last_record_is_lost(tmp_path: Path) -> None:
    data = filled(tmp_path / "j")
    second = data.index(b"\n", data.index(b"\n") + 1) + 1
    for cut in range(second, len(data)):
        path = tmp_path / f"cut{cut}"
        path.write_bytes(data[:cut])
        journal = Journal(path)
        assert len(journal.lines) == 2
        assert journal.torn == cut - second
        journal.append("receipt", cell="next", attempt=1)
        journal.close()
        lines, whole = parse_journal(path.read_bytes(), "j")
        assert [line.fields["cell"] for line in lines] == ["c0", "c1", "next"]
        assert whole == path.stat().st_size


def test_a_changed_a_removed_and_a_swapped_line_are_named(tmp_path: Path) -> None:
    one, two, three = filled(tmp_path / "j").splitlines(keepends=True)
    for data, number in [(one.replace(b'"c0"', b'"c9"') + two + three, 2), (one + three, 2), (two + one + three, 1)]:
        with pytest.raises(ReceiptError, match=f"line {number}"):
            parse_journal(data, "j")
    with pytest.raises(ReceiptError, match="line 2 is not a journal line"):
        parse_journal(one + b"rubbish\n" + three, "j")
