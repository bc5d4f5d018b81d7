"""`pairtrial tasks qualify`: is a task what its author says, always, and does nothing give it away?"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import click

from pairtrial.cli.progress import Tracker, tracking
from pairtrial.core.disk import cache_root, remove_tree, write_atomic
from pairtrial.core.errors import ExitCode, SandboxUnavailableError
from pairtrial.tasks.pack import Pack, Task, load_pack
from pairtrial.tasks.qualification import (
    FILE,
    MIN_REPEAT,
    Qualification,
    QualificationDocument,
    read_document,
    read_qualifications,
)


@click.command()
@click.argument("pack", type=click.Path(path_type=Path))
@click.option("--repeat", default=MIN_REPEAT, show_default=True, type=click.IntRange(1, 100), help="Runs of each kind.")
@click.option("--task", "names", multiple=True, metavar="ID", help="Qualify this task only; may be given again.")
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(1, 64), help="Tasks at a time.")
@click.option("--sandbox", "kind", help="Where the suites run; default: bubblewrap where it works, else local.")
@click.option("--check", "only_check", is_flag=True, help="Write nothing; compare with qualification.json.")
@click.option("--json", "as_json", is_flag=True, help="Print a record instead of a table.")
def qualify(
    pack: Path, repeat: int, names: tuple[str, ...], jobs: int, kind: str | None, only_check: bool, as_json: bool
) -> int:
    """Run every task of PACK under changed conditions and write what was found to PACK/qualification.json.

    With the defect exactly fail_to_pass must fail and without it nothing: as graded, with another order, clock, time
    zone, locale, path and hash seed, and under load. An agent that does nothing must not resolve the task, and an agent
    that reads everything must find neither a hidden test nor the unbroken line. What has not changed since the last
    time is taken from the cache. Exit code 1 when a task does not qualify.

    \b
    Example:
      pairtrial tasks qualify tasks/core
    """
    from pairtrial.cli.run import scratch_folder

    loaded = load_pack(pack)
    chosen = [loaded.task(name) for name in dict.fromkeys(names)] or list(loaded.tasks)
    scratch = scratch_folder(None)
    try:
        found = anyio.run(partial(_qualify_all, chosen, scratch, kind=kind, repeat=repeat, jobs=jobs))
    finally:
        remove_tree(scratch)
    entries = {name: item for name, (item, _) in found.items()}
    if only_check:
        known = read_qualifications(loaded)
        changed = [name for name, item in entries.items() if known.get(name) != item]
    else:
        changed = []
        _write(loaded, found)
    wrong = [name for name, item in entries.items() if item.verdict != "qualified"]
    if as_json:
        records = {name: item.model_dump(mode="json") | {"verdict": item.verdict} for name, item in entries.items()}
        click.echo(json.dumps({"ok": not wrong and not changed, "tasks": records, "changed": changed}))
    else:
        click.echo("\n".join(table(chosen, found)))
        for name in changed:
            click.echo(f"{name}: differs from {FILE}; run the same without --check", err=True)
        click.echo(f"{len(entries) - len(wrong)} of {len(entries)} tasks qualify", err=True)
    return ExitCode.REFUSED if wrong or changed else ExitCode.OK


Found = dict[str, tuple[Qualification, float | None]]
"""Task → what was found and the seconds that it took, None when it came from the cache."""


async def _qualify_all(chosen: Sequence[Task], scratch: Path, *, kind: str | None, repeat: int, jobs: int) -> Found:
    from pairtrial.grading.qualify import Qualifier
    from pairtrial.grading.qualify.rounds import Where
    from pairtrial.harness.runtime import build_runtime, runtime_identity

    isolating = await _isolating(scratch)
    suites = Where(kind or (isolating or "local"), scratch)
    reader = Where(isolating or "local", scratch)
    runtime = await build_runtime(cache_root())
    found: Found = {}
    limiter = anyio.CapacityLimiter(jobs)
    with tracking("qualifying tasks", len(chosen)) as tracker:

        async def one(task: Task) -> None:
            async with limiter:
                began = time.monotonic()
                qualifier = Qualifier(
                    cache_root(), suites, reader, repeat, runtime.folders, runtime_identity(),
                    _Beat(tracker, found, task.id),
                )  # fmt: skip
                item, cached = await qualifier.qualify(task)
                found[task.id] = (item, None if cached else time.monotonic() - began)
                tracker.update(len(found), task.id)

        async with anyio.create_task_group() as group:
            for task in chosen:
                group.start_soon(one, task)
    return {task.id: found[task.id] for task in chosen}


class _Beat:
    """Shows that something happens inside a task."""

    def __init__(self, tracker: Tracker, found: Found, task: str) -> None:
        self.tracker, self.found, self.task, self.runs = tracker, found, task, 0

    def __call__(self) -> None:
        self.runs += 1
        self.tracker.update(len(self.found), f"{self.task}, run {self.runs}")


async def _isolating(scratch: Path) -> str | None:
    """The isolating sandbox that this machine has without an image, when it works."""
    from pairtrial.sandbox import Limits, SandboxSpec, make_sandbox

    try:
        sandbox = make_sandbox("bubblewrap", SandboxSpec(label="try", scratch=scratch, limits=Limits(wall_s=30.0)))
        await sandbox.prepare()
        await sandbox.destroy()
    except SandboxUnavailableError:
        return None
    return "bubblewrap"


def _write(pack: Pack, found: Found) -> None:
    """Put what was found into the pack's file; entries of other tasks of the pack stay."""
    before = read_document(pack)
    known, seconds = (dict(before.tasks), dict(before.seconds)) if before else ({}, {})
    for name, (item, took) in found.items():
        known[name] = item
        if took is not None or name not in seconds:
            seconds[name] = round(took or 0.0, 1)
    ours = {task.id for task in pack.tasks}
    document = QualificationDocument(
        schema_="pairtrial.qualification.v1",
        pack=pack.id,
        tasks={name: item for name, item in sorted(known.items()) if name in ours},
        seconds={name: value for name, value in sorted(seconds.items()) if name in ours},
    )
    write_atomic(pack.folder / FILE, document.to_bytes())


def table(chosen: Sequence[Task], found: Found) -> list[str]:
    """One row a task: runs as declared, of all runs, with the defect and without."""
    rows = [["TASK", "AS GRADED", "VARIED", "LOAD", "NO-OP", "READER", "SECONDS", "VERDICT"]]
    lines = []
    for task in chosen:
        item, took = found[task.id]
        rounds = [_share(entry) for entry in item.rounds]
        seconds = "cached" if took is None else f"{took:.1f}"
        rows.append([task.id, *rounds, item.noop, item.reader, seconds, item.verdict])
        lines += [f"{task.id}: {problem.fault.value}: {problem.text}" for problem in item.problems]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [*shown, *lines]


def _share(entry: Any) -> str:
    good, runs = entry.defective + entry.unbroken, entry.defective_runs + entry.unbroken_runs
    return f"{good}/{runs}{'*' if entry.note else ''}"
