"""`pairtrial tasks`: look at packs, and hold tasks against what their authors say."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import click

from pairtrial.cli.progress import tracking
from pairtrial.cli.qualify import qualify
from pairtrial.core.canonical import sha256_file, tree_digest
from pairtrial.core.disk import cache_root, remove_tree
from pairtrial.core.errors import ExitCode, TaskError
from pairtrial.tasks.defects import spans_between
from pairtrial.tasks.model import Span
from pairtrial.tasks.pack import Pack, Task, load_pack, load_target, written_id
from pairtrial.tasks.sources import LOCAL_EXCLUDED, source_for

PACK = click.Path(path_type=Path)


@click.group()
def tasks() -> None:
    """Look at task packs, measure and qualify them."""


tasks.add_command(qualify)


@tasks.command("list")
@click.argument("pack", type=PACK)
@click.option("--json", "as_json", is_flag=True, help="Print a record instead of a table.")
def list_tasks(pack: Path, as_json: bool) -> int:
    """Show the tasks of the pack in folder PACK; every problem in it is named.

    Needs no network and starts nothing.

    \b
    Example:
      pairtrial tasks list tasks/core
    """
    loaded = load_pack(pack)
    if as_json:
        click.echo(json.dumps({"id": loaded.id, "digest": loaded.digest, "tasks": list(map(_record, loaded.tasks))}))
        return ExitCode.OK
    rows = [("TASK", "TARGET", "CATEGORY", "EDITS", "FAIL", "PASS", "TITLE")]
    for task in loaded.tasks:
        version = f" {task.target.version}" if task.target.version else ""
        counts = (str(len(task.defect)), str(len(task.fail_to_pass)), str(len(task.pass_to_pass)))
        rows.append((task.id, f"{task.target.id}{version}", task.category.value, *counts, task.title))
    click.echo("\n".join(_aligned(rows)))
    targets = len({task.target.id for task in loaded.tasks})
    click.echo(f"{len(loaded.tasks)} tasks on {targets} targets, pack {loaded.id} {loaded.digest[:12]}", err=True)
    return ExitCode.OK


@tasks.command()
@click.argument("pack", type=PACK)
@click.option("--task", "names", multiple=True, metavar="ID", help="Measure this task only; may be given again.")
@click.option("--sandbox", "kind", default="local", show_default=True, help="Where the tests run.")
@click.option("--json", "as_json", is_flag=True, help="Print a record instead of prose.")
def measure(pack: Path, names: tuple[str, ...], kind: str, as_json: bool) -> int:
    """Run the tests of each task of PACK with its defect and without.

    The defect must break exactly the tests in fail_to_pass, the unbroken tree must pass the whole baseline, and the
    prompt's example must fail before and pass after. Exit code 1 when it is otherwise.

    \b
    Example:
      pairtrial tasks measure tasks/core --task toolz-join-unmatched-left
    """
    from pairtrial.cli.run import scratch_folder

    loaded = load_pack(pack)
    chosen = [loaded.task(name) for name in dict.fromkeys(names)] or list(loaded.tasks)
    scratch = scratch_folder(None)
    try:
        found = anyio.run(_measure_all, chosen, scratch, kind)
    finally:
        remove_tree(scratch)
    wrong = [item for item in found if item["problems"]]
    if as_json:
        click.echo(json.dumps({"tasks": found, "ok": not wrong}))
    else:
        for item in found:
            click.echo(f"{item['task']}: {len(item['broken'])} fail, {item['seconds']:.1f} s, {_verdict(item)}")
        click.echo(f"{len(found) - len(wrong)} of {len(found)} tasks are what they say", err=True)
    return ExitCode.REFUSED if wrong else ExitCode.OK


async def _measure_all(chosen: Sequence[Task], scratch: Path, kind: str) -> list[dict[str, Any]]:
    from pairtrial.cli.measure import measure_task

    found = []
    with tracking("measuring tasks", len(chosen)) as tracker:
        for number, task in enumerate(chosen, 1):
            item = await measure_task(task, cache_root(), scratch, kind=kind)
            found.append(
                {
                    "task": item.task,
                    "broken": list(item.broken),
                    "seconds": round(item.seconds, 3),
                    "problems": list(item.problems),
                }
            )
            tracker.update(number, task.id)
    return found


def _verdict(item: dict[str, Any]) -> str:
    return "as it says" if not item["problems"] else "\n  " + "\n  ".join(item["problems"])


@tasks.command()
@click.argument("target", type=PACK)
@click.option("--repeat", default=2, show_default=True, type=click.IntRange(1, 20), help="Runs that must agree.")
@click.option("--sandbox", "kind", default="local", show_default=True, help="Where the tests run.")
def baseline(target: Path, repeat: int, kind: str) -> int:
    """Print the ids of all tests that pass on the unbroken tree of the target in folder TARGET, in every run.

    \b
    Example:
      pairtrial tasks baseline tasks/mine/targets/abacus > baseline.txt
    """
    from pairtrial.cli.measure import passing_ids
    from pairtrial.cli.run import scratch_folder

    loaded = load_target(target)
    scratch = scratch_folder(None)
    try:
        found = anyio.run(partial(passing_ids, loaded, cache_root(), scratch, kind=kind, repeat=repeat))
    finally:
        remove_tree(scratch)
    if not found:
        raise TaskError(f"{target}: no test passes", hint="check tests.paths and the lock", slug="no-baseline")
    click.echo("\n".join(map(written_id, found)))
    click.echo(f"{len(found)} tests pass in each of {repeat} runs", err=True)
    return ExitCode.OK


@tasks.command()
@click.argument("path", type=PACK)
def digest(path: Path) -> int:
    """Print the digest that a `source` pins: SHA-256 of a file, tree digest of a folder.

    \b
    Example:
      pairtrial tasks digest tasks/mine/targets/abacus/source
    """
    if path.is_dir():
        click.echo(tree_digest(path, exclude=LOCAL_EXCLUDED))
    elif path.is_file():
        click.echo(sha256_file(path))
    else:
        raise TaskError(f"{path}: no such file or folder", slug="missing-file")
    return ExitCode.OK


@tasks.command()
@click.argument("pack", type=PACK)
@click.argument("target")
@click.argument("file")
@click.argument("edited", type=click.Path(path_type=Path, dir_okay=False))
def spans(pack: Path, target: str, file: str, edited: Path) -> int:
    """Print the `defect` of a task.yaml that turns FILE of TARGET into the file EDITED.

    To make a task, copy a file of the target, break it, and let this write the spans.

    \b
    Example:
      pairtrial tasks spans tasks/core toolz toolz/itertoolz.py broken.py
    """
    found = anyio.run(_spans, load_pack(pack), target, file, edited)
    if not found:
        raise TaskError(f"{edited}: the same as {file} of {target}", hint="edit the copy first", slug="no-edit")
    click.echo("defect:")
    for span in found:
        click.echo(f"  - {json.dumps(span.model_dump(mode='json'), ensure_ascii=False)}")
    return ExitCode.OK


async def _spans(pack: Pack, target: str, file: str, edited: Path) -> tuple[Span, ...]:
    owner = next((task.target for task in pack.tasks if task.target.id == target), None)
    if owner is None:
        raise TaskError(f"{pack.folder}: no task is on a target called {target!r}", slug="unknown-target")
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        await source_for(owner).materialise(cache_root(), tree)
        return spans_between(file, _text(tree / file, file), _text(edited, str(edited)))


def _text(path: Path, shown: str) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as fault:
        raise TaskError(f"{shown}: cannot be read ({fault.strerror})", slug="unreadable-file") from None
    except UnicodeDecodeError as fault:
        raise TaskError(f"{shown}: not UTF-8 (byte {fault.start})", slug="not-utf8") from None


def _record(task: Task) -> dict[str, Any]:
    return {
        "id": task.id,
        "title": task.title,
        "category": task.category.value,
        "target": task.target.id,
        "version": task.target.version,
        "license": task.target.document.license,
        "edits": len(task.defect),
        "fail_to_pass": len(task.fail_to_pass),
        "pass_to_pass": len(task.pass_to_pass),
        "digest": task.digest,
    }


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of equal width; cut to the terminal only where there is one."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    if sys.stdout.isatty():
        import shutil

        lines = [line[: shutil.get_terminal_size().columns] for line in lines]
    return lines
