"""`status` and `run` say which work is to be graded again."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from factories import make_lock, receipts_for

from pairtrial.cli.main import cli
from pairtrial.cli.run import finish
from pairtrial.core.errors import ExitCode
from pairtrial.core.status import Status
from pairtrial.harness.batch import Progress
from pairtrial.runs.store import RunStore


def test_status_counts_work_that_waits_for_a_grading(tmp_path: Path) -> None:
    lock = make_lock()
    with RunStore(tmp_path, lock) as store:
        for receipt in receipts_for(lock, {"t1.control.r1": Status.GRADING_ERROR}):
            store.record(receipt, {"work.patch": b"diff"})
        folder = store.folder
    told = CliRunner().invoke(cli, ["status", str(folder), "--json"])
    assert json.loads(told.output)["to_be_graded_again"] == 1
    said = CliRunner().invoke(cli, ["status", str(folder)])
    assert "1 to be graded again by the next `pairtrial run`: their work is kept" in said.output


def test_a_regrade_ends_the_waiting(tmp_path: Path) -> None:
    lock = make_lock()
    with RunStore(tmp_path, lock) as store:
        (first, *_) = receipts_for(lock, {}, Status.GRADING_ERROR)
        store.record(first, {"work.patch": b"diff"})
        again = first.model_copy(update={"attempt": 2, "regrades": 1, "status": Status.UNRESOLVED})
        store.record(again, {"work.patch": b"diff", "report.zst": b""})
        folder = store.folder
    told = json.loads(CliRunner().invoke(cli, ["status", str(folder), "--json"]).output)
    assert told["to_be_graded_again"] == 0
    assert sum(arm.get("unresolved", 0) for arm in told["arms"].values()) == 1


def test_a_run_that_leaves_work_ungraded_is_not_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert finish(Progress(9, done=8, by_status=Counter(resolved=8), owed=1), tmp_path) == ExitCode.REFUSED
    assert "1 could not be graded, not by fault of their work, which is kept" in capsys.readouterr().err
    assert finish(Progress(9, done=9, by_status=Counter(resolved=9)), tmp_path) == ExitCode.OK
