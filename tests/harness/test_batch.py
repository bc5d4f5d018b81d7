"""Batches: resumable after any kill, outcome-blind, whole blocks under a budget."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import anyio
import pytest
from factories import make_plan
from rollout_cases import HEAD, REPAIR, Laboratory, make_laboratory

from pairtrial.core.status import Status
from pairtrial.harness.batch import Batch, Progress
from pairtrial.prereg.plan import Plan
from pairtrial.prereg.schedule import schedule
from pairtrial.runs.journal import parse_journal
from pairtrial.runs.store import RunStore

pytestmark = pytest.mark.anyio
ANALYSIS = {"primary": "sign-flip-exact", "family": ["treat"]}


def plan(repetitions: int = 2, **changes: object) -> Plan:
    return make_plan(tasks={"pack": "pack", "ids": ["calc-add"]}, repetitions=repetitions, analysis=ANALYSIS, **changes)


async def run(lab: Laboratory, root: Path, workers: int = 2) -> Progress:
    with RunStore(root, lab.experiment.lock) as store:
        return await Batch(lab.experiment, schedule(lab.experiment.plan), store, workers=workers).run()


def receipts(lab: Laboratory, root: Path) -> list[tuple[str, int, Status]]:
    with RunStore(root, lab.experiment.lock) as store:
        return [(receipt.cell.id, receipt.attempt, receipt.status) for _, receipt in store.attempts()]


def journal(lab: Laboratory, root: Path) -> list[tuple[str, str]]:
    (path,) = root.glob("*/*/journal.jsonl")
    lines, _ = parse_journal(path.read_bytes(), "j")
    return [(line.event, str(line.fields.get("cell", ""))) for line in lines]


async def test_every_cell_once_and_a_second_run_does_no_work(tmp_path: Path) -> None:
    lab = make_laboratory(tmp_path, REPAIR, plan=plan())
    first = await run(lab, tmp_path / "runs")
    assert (first.done, first.planned, first.by_status) == (6, 6, Counter(resolved=6))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*.json*")}
    second = await run(lab, tmp_path / "runs")
    assert second.done == 6
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*.json*")}


async def test_arms_of_a_block_run_one_after_another_in_their_order(tmp_path: Path) -> None:
    lab = make_laboratory(tmp_path, REPAIR, plan=plan(repetitions=3))
    await run(lab, tmp_path / "runs", workers=2)
    started = [cell for event, cell in journal(lab, tmp_path / "runs") if event == "attempt-started"]
    for block in schedule(lab.experiment.plan):
        mine = [cell for cell in started if cell.endswith(f".r{block.repetition}")]
        assert mine == [cell.id for cell in block.cells]


async def test_cancelled_at_any_moment_it_goes_on_and_loses_nothing(tmp_path: Path) -> None:
    script = HEAD + "start(); import time; time.sleep(0.3); fix(); done()"
    lab = make_laboratory(tmp_path, script, plan=plan(repetitions=3))
    root = tmp_path / "runs"
    for seconds in (0.2, 0.5, 0.9):
        with anyio.move_on_after(seconds):
            await run(lab, root)
        kept = receipts(lab, root)
        assert all(status is Status.RESOLVED for _, _, status in kept)
        assert not [path for path in lab.experiment.scratch.iterdir() if not path.name.startswith(".")]
    await run(lab, root)
    cells = [cell.id for block in schedule(lab.experiment.plan) for cell in block.cells]
    assert sorted(receipts(lab, root)) == sorted((cell, 1, Status.RESOLVED) for cell in cells)


async def test_a_run_in_which_nothing_can_be_graded_stops(tmp_path: Path) -> None:
    lab = make_laboratory(tmp_path, HEAD + "start(version='0')", plan=plan(repetitions=9))
    progress = await run(lab, tmp_path / "runs", workers=1)
    assert progress.done == 9
    assert progress.stopped == (
        "none of the first 3 blocks has a graded cell (invalid_environment): the fault is not in the work of the agent"
    )
    assert Counter(attempt for _, attempt, _ in receipts(lab, tmp_path / "runs")) == {1: 9}  # never run again


async def test_only_what_the_plan_names_runs_again_and_every_attempt_stays(tmp_path: Path) -> None:
    """The index step fails at its first two calls: a set-up failure, which this plan lets run again once."""
    from rollout_cases import SERVER, write_provider

    counter = tmp_path / "count"
    code = (
        f"import pathlib, sys; p = pathlib.Path({str(counter)!r}); n = int(p.read_text()) if p.exists() else 0; "
        "p.write_text(str(n + 1)); sys.exit(n < 3)"
    )
    index = {"index": {"command": ["${PYTHON}", "${PROVIDER}/index.py"], "timeout_s": 9, "max_bytes": 9}}
    provider = write_provider(tmp_path / "looker", {**SERVER, **index}, {"server.py": "", "index.py": code})
    retries = {"max_attempts": 2, "statuses": ["setup_failure"]}
    lab = make_laboratory(tmp_path, REPAIR, plan=plan(retries=retries), provider=provider)
    await run(lab, tmp_path / "runs", workers=1)
    mine = [item for item in receipts(lab, tmp_path / "runs") if ".treat." in item[0]]
    order = [block.repetition for block in schedule(lab.experiment.plan)]
    assert sorted(mine, key=lambda item: (order.index(int(item[0][-1])), item[1])) == [
        (f"calc-add.treat.r{order[0]}", 1, Status.SETUP_FAILURE),
        (f"calc-add.treat.r{order[0]}", 2, Status.SETUP_FAILURE),
        (f"calc-add.treat.r{order[1]}", 1, Status.SETUP_FAILURE),
        (f"calc-add.treat.r{order[1]}", 2, Status.RESOLVED),
    ]


async def test_the_budget_stops_before_a_block_that_could_pass_it(tmp_path: Path) -> None:
    """Three arms at 0.40 each: a ceiling of 3.00 has room for two blocks of 1.20, not for a third."""
    spend = HEAD + "start(); say(type='usage', model='m', cost_usd='0.40'); done()"
    money = {"ceiling_usd": 3, "per_rollout_usd": 0.4}
    lab = make_laboratory(tmp_path, spend, plan=plan(repetitions=4, budget=money))
    progress = await run(lab, tmp_path / "runs", workers=4)
    assert progress.done == 6
    assert progress.stopped == "budget: 2.40 of 3 USD spent, the next block may need 1.2"
    again = await run(lab, tmp_path / "runs", workers=4)
    assert again.stopped == "budget: 2.40 of 3 USD spent, the next block may need 1.2"
    assert len(receipts(lab, tmp_path / "runs")) == 6


async def test_what_may_be_spent_but_was_not_stops_no_run(tmp_path: Path) -> None:
    """Two blocks at a time may cost 2.40 of 3.00; each costs 0.30, so all four fit: the others wait for them."""
    spend = HEAD + "start(); say(type='usage', model='m', cost_usd='0.10'); done()"
    money = {"ceiling_usd": 3, "per_rollout_usd": 0.4}
    lab = make_laboratory(tmp_path, spend, plan=plan(repetitions=4, budget=money))
    progress = await run(lab, tmp_path / "runs", workers=4)
    assert (progress.done, progress.stopped) == (12, None)


async def test_a_cost_that_nobody_reported_is_taken_as_the_cap(tmp_path: Path) -> None:
    money = {"ceiling_usd": 3, "per_rollout_usd": 0.4}
    lab = make_laboratory(tmp_path, HEAD + "start(); done()", plan=plan(repetitions=4, budget=money))
    await run(lab, tmp_path / "runs", workers=1)
    assert len(receipts(lab, tmp_path / "runs")) == 6


async def test_two_rollouts_at_once_share_nothing(tmp_path: Path) -> None:
    script = HEAD + (
        "start(); open('mine.txt', 'x').write('x'); open(os.environ['TMPDIR'] + '/t', 'x'); open(os.environ['HOME'] + '/h', 'x')\n"
        "import time; time.sleep(0.3)\n"
        "names = sorted(n for n in os.listdir('.') if n != '.git')\n"
        "say(type='message', role='assistant', text=json.dumps(names)); done()"
    )
    lab = make_laboratory(tmp_path, script, plan=plan(repetitions=2))
    progress = await run(lab, tmp_path / "runs", workers=2)
    assert progress.by_status == Counter(unresolved=6)
    import zstandard

    for path in (tmp_path / "runs").rglob("events.jsonl.zst"):
        lines = zstandard.ZstdDecompressor().decompress(path.read_bytes(), max_output_size=1 << 20).splitlines()
        assert json.loads(json.loads(lines[1])["text"]) == ["calc.py", "mine.txt", "pyproject.toml", "tests"]
