"""`pairtrial check` and `pairtrial freeze`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import click

from pairtrial.cli.experiment import make_lock, prepare_all, qualification_remarks, read_experiment
from pairtrial.cli.paths import PLAN, RUNS, runs_root
from pairtrial.core.disk import write_atomic
from pairtrial.core.errors import ExitCode, PlanError
from pairtrial.prereg.amend import Bias, amendment, archive_path, differences
from pairtrial.prereg.identities import demand_qualified
from pairtrial.prereg.lock import Lock, load_lock, lock_path, parse_lock
from pairtrial.prereg.review import describe_plan, warnings
from pairtrial.runs.store import run_folder


@click.command()
@click.argument("plan", type=PLAN)
@click.option("--json", "as_json", is_flag=True, help="Print a record instead of prose.")
def check(plan: Path, as_json: bool) -> int:
    """Read PLAN with everything that it refers to and name every problem, each with its field and fix.

    Needs no network and starts nothing.

    \b
    Example:
      pairtrial check prereg/demo.yaml
    """
    material, adapter = read_experiment(plan)
    demand_qualified(material)
    notes = [*warnings(material.plan, embedded=adapter.manifest.embedded), *qualification_remarks(material)]
    if material.plan.gates.purity:
        from pairtrial.cli.purity import purity_note

        frozen = load_lock(lock_path(plan)) if lock_path(plan).exists() else None
        notes.append(purity_note(plan, frozen))
    if as_json:
        click.echo(json.dumps({"plan": material.plan.id, "cells": sum(len(b.cells) for b in material.blocks),
                               "warnings": notes}, sort_keys=True))  # fmt: skip
        return ExitCode.OK
    click.echo("\n".join(describe_plan(material.plan)))
    for note in notes:
        click.echo(f"note: {note}")
    click.echo(f"{plan}: no problem found")
    return ExitCode.OK


@click.command()
@click.argument("plan", type=PLAN)
@click.option("--replace", is_flag=True, help="Replace a lock that says something else; refused once it has results.")
@click.option("--runs", type=RUNS, help="Where runs lie; default: runs/ beside the plan's folder.")
def freeze(plan: Path, replace: bool, runs: Path | None) -> int:
    """Resolve every identity of PLAN to a digest, write PLAN's lock beside it and print the plan id.

    Every task must be qualified or excepted in the plan, and no file of a provider may give a task away. Frozen twice,
    the same bytes. Commit the lock before you run: the commit dates it.

    \b
    Example:
      pairtrial freeze prereg/demo.yaml
    """
    material, adapter = read_experiment(plan)
    demand_qualified(material)
    target = lock_path(plan)
    before = load_lock(target).amendments if target.exists() else ()
    lock = make_lock(material, adapter, prepare_all(material), before)
    if target.exists():
        _may_replace(target, lock, replace, runs_root(plan, runs))
    write_atomic(target, lock.to_bytes())
    click.echo(lock.plan_id)
    click.echo(f"{target} written; commit it before you run the experiment", err=True)
    return ExitCode.OK


def _may_replace(target: Path, lock: Lock, replace: bool, runs: Path) -> None:
    """A frozen plan changes only on request, and never when it has results: that would be another experiment."""
    old = parse_lock(target.read_bytes(), target.name)
    if old.plan_id == lock.plan_id:
        return
    folder = run_folder(runs, old)
    if folder.is_dir() and any(path.is_dir() for path in folder.iterdir()):
        raise PlanError(
            f"{target}: the frozen plan has results in {folder}; a change would separate them from what was registered",
            hint="pairtrial amend says openly what changed and why; or give the changed plan another id and file",
            slug="has-results",
        )
    if not replace:
        raise PlanError(
            f"{target}: frozen already as {old.plan_id[:12]}, today it would be {lock.plan_id[:12]}",
            hint="pass --replace if nothing was run under it",
            slug="frozen-already",
        )


@click.command()
@click.argument("plan", type=PLAN)
@click.option("--reason", required=True, help="Why the frozen plan changes.")
@click.option(
    "--bias", required=True, type=click.Choice(get_args(Bias)), help="Where the change could push the result."
)
def amend(plan: Path, reason: str, bias: Any) -> int:
    """Freeze a changed PLAN anew and say so: parent, date, reason, likely direction of bias, every changed field.

    Receipts keep the plan id that they were run under, and every report lists every amendment.

    \b
    Example:
      pairtrial amend prereg/mine.yaml --reason "task x turned out to be flaky" --bias none-expected
    """
    target = lock_path(plan)
    old = load_lock(target)
    material, adapter = read_experiment(plan)
    demand_qualified(material)
    bare = make_lock(material, adapter, prepare_all(material), old.amendments)
    changes = differences(_record(old), _record(bare))
    record = amendment(old.plan_id, changes, reason=reason, bias=bias, today=datetime.now(UTC).date())
    lock = bare.model_copy(update={"amendments": (*old.amendments, record)}).whole()
    write_atomic(archive_path(target, old.plan_id), old.to_bytes())
    write_atomic(target, lock.to_bytes())
    click.echo(lock.plan_id)
    for line in changes:
        click.echo(f"changed: {line}", err=True)
    click.echo(f"{target} written, the one before is {archive_path(target, old.plan_id)}; commit both", err=True)
    return ExitCode.OK


def _record(lock: Lock) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(lock.whole().to_bytes())
    return value


LOCK_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.command()
@click.argument("before", type=LOCK_FILE)
@click.argument("after", type=LOCK_FILE)
def diff(before: Path, after: Path) -> int:
    """Say in what two locks differ, field by field; exit 1 when they do.

    \b
    Example:
      pairtrial diff prereg/amended/mine.0123456789ab.lock.json prereg/mine.lock.json
    """
    old, new = load_lock(before), load_lock(after)
    lines = differences(_record(old), _record(new))
    click.echo(f"{old.plan_id[:12]} → {new.plan_id[:12]}: {len(lines)} difference(s)")
    for line in lines:
        click.echo(f"  {line}")
    return ExitCode.REFUSED if lines else ExitCode.OK
