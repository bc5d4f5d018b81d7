"""A grading that failed by our fault is made up for without the agent; what was graded is never graded again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path

import pytest
from factories import make_lock, make_plan, make_receipt
from rollout_cases import HEAD, Laboratory, make_laboratory

from pairtrial.core.canonical import sha256_hex
from pairtrial.core.errors import GradeError, ReceiptError
from pairtrial.core.status import Status
from pairtrial.grading import grade_from_report
from pairtrial.harness.batch import Batch, Progress, cell_states
from pairtrial.harness.rollout import regrade_attempt
from pairtrial.prereg.schedule import schedule
from pairtrial.report import journal_facts, score
from pairtrial.runs.journal import parse_journal
from pairtrial.runs.receipt import Receipt
from pairtrial.runs.regrade import Gradings
from pairtrial.runs.store import RunReader, RunStore
from pairtrial.runs.verify import Verification, verify_run

pytestmark = pytest.mark.anyio
MONEY = {"ceiling_usd": 3, "per_rollout_usd": 0.4}


@dataclass
class Bench:
    """A laboratory whose grading fails while ``hidden`` stands where the tree to grade should be."""

    lab: Laboratory
    root: Path
    starts: Path
    pristine: Path = field(init=False)

    def __post_init__(self) -> None:
        self.pristine = self.lab.prepared.defective

    def break_grading(self) -> None:
        """Our fault: the tree that is graded cannot be read."""
        self.pristine.rename(self.pristine.with_name("away"))

    def mend_grading(self) -> None:
        self.pristine.with_name("away").rename(self.pristine)

    async def run(self) -> Progress:
        with RunStore(self.root, self.lab.experiment.lock) as store:
            return await Batch(self.lab.experiment, schedule(self.lab.experiment.plan), store, workers=1).run()

    def receipts(self) -> list[Receipt]:
        with RunStore(self.root, self.lab.experiment.lock) as store:
            return [receipt for _, receipt in store.attempts()]

    def verify(self) -> Verification:
        (folder,) = (path.parent for path in self.root.glob("*/*/journal.jsonl"))
        task = self.lab.prepared.task
        return verify_run(folder, lambda receipt, raw: grade_from_report(raw, task).status)

    def started(self) -> int:
        """How often an agent was started."""
        return len(self.starts.read_text())


def bench(tmp_path: Path, **changes: object) -> Bench:
    starts = tmp_path / "starts"
    starts.write_text("")
    script = HEAD + (
        f"open({str(starts)!r}, 'a').write('x'); start(); fix(); say(type='usage', model='m', cost_usd='0.40'); done()"
    )
    plan = make_plan(tasks={"pack": "pack", "ids": ["calc-add"]}, budget=MONEY, **changes)
    return Bench(make_laboratory(tmp_path, script, plan=plan), tmp_path / "runs", starts)


async def test_work_whose_grading_failed_is_graded_by_the_next_run_without_an_agent(tmp_path: Path) -> None:
    it = bench(tmp_path)
    it.break_grading()
    first = await it.run()
    assert (first.done, first.owed, it.started()) == (0, 3, 3)
    assert {(r.attempt, r.status in (Status.GRADING_ERROR, Status.SANDBOX_LOST)) for r in it.receipts()} == {(1, True)}
    it.mend_grading()
    second = await it.run()
    assert (second.done, second.owed, it.started()) == (3, 0, 3)
    assert second.by_status == {"resolved": 3}
    for old, new in zip(it.receipts()[::2], it.receipts()[1::2], strict=True):
        assert (new.attempt, new.regrades, new.status) == (2, 1, Status.RESOLVED)
        assert new.usage == old.usage
        assert new.started_at == old.started_at
        assert new.observed == old.observed
        assert new.files["work.patch"] == old.files["work.patch"]
        assert new.times.agent_s == old.times.agent_s
    found = it.verify()
    assert (found.problems, found.receipts, found.regraded) == ([], 6, 3)
    await it.run()
    assert len(it.receipts()) == 6  # what is graded stays


async def test_the_agent_is_paid_for_once_in_budget_score_and_counts(tmp_path: Path) -> None:
    """Three rollouts of 0.40: 1.20 spent before the regrades and after them."""
    it = bench(tmp_path)
    it.break_grading()
    await it.run()
    it.mend_grading()
    await it.run()
    states = cell_states(it.receipts(), it.lab.experiment.plan)
    assert sum((state.spent for state in states.values()), Decimal(0)) == Decimal("1.20")
    assert {(state.attempts, state.runs) for state in states.values()} == {(2, 1)}
    (journal,) = it.root.glob("*/*/journal.jsonl")
    lines, _ = parse_journal(journal.read_bytes(), "j")
    card = score(it.lab.experiment.lock, it.receipts(), journal_facts(lines))
    assert [(arm.attempts, arm.interrupted, arm.regrades, arm.resolved) for arm in card.arms] == [(1, 0, 1, 1)] * 3
    assert b'"regrades":1' in card.to_bytes()


async def test_a_fault_that_comes_back_stops_after_two_regrades(tmp_path: Path) -> None:
    it = bench(tmp_path)
    it.break_grading()
    owed = [(await it.run()).owed for _ in range(5)]
    assert owed == [3, 3, 0, 0, 0]
    assert sorted({(r.attempt, r.regrades) for r in it.receipts()}, key=lambda pair: pair[0]) == [
        (1, None),
        (2, 1),
        (3, 1),
    ]
    assert it.started() == 3
    assert it.verify().problems == []


async def test_a_full_budget_does_not_keep_work_from_being_graded(tmp_path: Path) -> None:
    it = bench(tmp_path)
    it.lab = replace(it.lab, experiment=replace(it.lab.experiment, lock=make_lock(
        make_plan(tasks={"pack": "pack", "ids": ["calc-add"]}, budget={"ceiling_usd": 1.2, "per_rollout_usd": 0.4})
    )))  # fmt: skip
    it.break_grading()
    await it.run()
    it.mend_grading()
    assert (await it.run()).by_status == {"resolved": 3}


async def test_work_that_was_changed_in_between_is_refused(tmp_path: Path) -> None:
    it = bench(tmp_path)
    it.break_grading()
    await it.run()
    it.mend_grading()
    for path in it.root.rglob("work.patch"):
        path.write_bytes(path.read_bytes().replace(b"a + b", b"b + a"))
    with pytest.raises(ExceptionGroup) as caught:
        await it.run()
    assert caught.group_contains(ReceiptError, match="work.patch: was changed after it was written")


@pytest.mark.parametrize("status", [Status.RESOLVED, Status.UNRESOLVED, Status.TAMPERED])
async def test_a_verdict_is_never_graded_again(tmp_path: Path, status: Status) -> None:
    it = bench(tmp_path)
    cell = it.lab.cell("control")
    files = {"work.patch": sha256_hex(b""), "report.zst": sha256_hex(b"")}
    receipt = make_receipt(it.lab.experiment.lock, cell, status, files=files)
    assert Gradings().after(receipt).owed is None
    with pytest.raises(GradeError, match="is not graded again"):
        await regrade_attempt(it.lab.experiment, cell, 2, receipt, {"work.patch": b""})


def test_only_our_own_faults_while_grading_are_made_up_for(tmp_path: Path) -> None:
    lock = make_lock()
    cell = schedule(lock.plan)[0].cells[0]

    def owed(status: Status, *names: str, grading_s: float | None = 0.5) -> int | None:
        receipt = make_receipt(lock, cell, status, files=dict.fromkeys(names, sha256_hex(b"")))
        times = receipt.times.model_copy(update={"grading_s": grading_s})
        return Gradings().after(receipt.model_copy(update={"times": times})).owed

    assert owed(Status.GRADING_ERROR, "work.patch") == 1
    assert owed(Status.GRADING_ERROR, "work.patch", "report.zst") == 1
    assert owed(Status.SANDBOX_LOST, "work.patch") == 1
    assert owed(Status.CLEANUP_FAILURE, "work.patch") == 1
    assert owed(Status.CLEANUP_FAILURE, "work.patch", "report.zst") is None  # the verdict is known
    assert owed(Status.SANDBOX_LOST, "work.patch", grading_s=None) is None  # lost before it came to grading
    assert owed(Status.GRADING_ERROR) is None  # there is no work
    assert owed(Status.SETUP_FAILURE, "work.patch") is None


def forged(it: Bench, *receipts: tuple[Receipt, dict[str, bytes]]) -> list[str]:
    root = it.root.with_name("forged")
    with RunStore(root, it.lab.experiment.lock) as store:
        for receipt, files in receipts:
            store.record(receipt, files)
        folder = store.folder
    task = it.lab.prepared.task
    return verify_run(folder, lambda receipt, raw: grade_from_report(raw, task).status).problems


async def test_verify_names_a_second_draw_and_a_changed_agents_part(tmp_path: Path) -> None:
    it = bench(tmp_path)
    receipt, files = await it.lab.attempt()
    assert receipt.status is Status.RESOLVED
    again = receipt.model_copy(update={"attempt": 2, "regrades": 1})
    assert forged(it, (receipt, files), (again, files)) == [
        "calc-add.control.r1/2: was graded again though attempt 1 ended as resolved after 0 regrade(s)"
    ]
    lost = receipt.model_copy(update={"status": Status.GRADING_ERROR, "grade": None})
    kept = {name: data for name, data in files.items() if name != "report.zst"}
    other = again.model_copy(update={"tool_calls": 99})
    it.root = tmp_path / "b" / "runs"
    it.root.parent.mkdir()
    assert forged(it, (lost, kept), (other, {**files, "work.patch": b"another"})) == [
        "calc-add.control.r1/2: tool_calls is not that of attempt 1",
        "calc-add.control.r1/2: the agent's files are not those of attempt 1",
    ]
    it.root = tmp_path / "c" / "runs"
    it.root.parent.mkdir()
    assert forged(it, (again, files)) == ["calc-add.control.r1/2: regrades attempt 1, which ran no agent"]


def test_a_run_reader_gives_an_attempt_with_its_files(tmp_path: Path) -> None:
    lock = make_lock()
    cell = schedule(lock.plan)[0].cells[0]
    with RunStore(tmp_path, lock) as store:
        store.record(make_receipt(lock, cell, Status.RESOLVED), {"work.patch": b"diff"})
        folder = store.folder
    receipt, files = RunReader(folder).kept(cell.id, 1)
    assert (receipt.status, files) == (Status.RESOLVED, {"work.patch": b"diff"})
    with pytest.raises(ReceiptError, match="cannot be read"):
        RunReader(folder).kept(cell.id, 2)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A scratch folder on a disk of 3 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], capture_output=True)
    if done.returncode:
        pytest.skip("a file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


async def test_a_full_scratch_disk(tmp_path: Path, small_disk: Path) -> None:
    """There is no room to grade in: that is a fault of ours, and is made up for once there is room again."""
    it = bench(tmp_path)
    it.break_grading()
    await it.run()
    it.mend_grading()
    it.lab = replace(it.lab, experiment=replace(it.lab.experiment, scratch=small_disk))
    with (small_disk / "filler").open("ab", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(4096))
    assert (await it.run()).owed == 3
    full = [receipt for receipt in it.receipts() if receipt.attempt == 2]
    assert {(r.regrades, r.status in (Status.GRADING_ERROR, Status.SANDBOX_LOST)) for r in full} == {(1, True)}
    assert all("No space left" in (receipt.reason or "") for receipt in full), [receipt.reason for receipt in full]
    (small_disk / "filler").unlink()
    assert (await it.run()).by_status == {"resolved": 3}
    assert it.started() == 3
    assert it.verify().problems == []


async def test_a_grader_that_is_killed(tmp_path: Path) -> None:
    """Whatever runs the hidden tests is killed from outside, as a machine short of memory does."""
    it = bench(tmp_path)
    mark = tmp_path / "kill"
    mark.touch()
    scratch, victims = str(it.lab.experiment.scratch), []

    def hunt() -> None:
        while mark.exists():
            for folder in Path("/proc").glob("[0-9]*"):
                try:
                    words = (folder / "cmdline").read_bytes()
                    place = str((folder / "cwd").readlink())
                except OSError:
                    continue
                if place.startswith(scratch) and b"Parent of the test process" in words and b"fix()" not in words:
                    victims.append(words)
                    with contextlib.suppress(OSError):
                        os.kill(int(folder.name), signal.SIGKILL)
            time.sleep(0.002)

    hunter = threading.Thread(target=hunt)
    hunter.start()
    try:
        first = await it.run()
    finally:
        mark.unlink()
        hunter.join()
    assert victims
    assert (first.owed, it.started()) == (3, 3), [(r.status, r.reason) for r in it.receipts()]
    assert (await it.run()).by_status == {"resolved": 3}
    assert it.started() == 3
    assert it.verify().problems == []
