"""`pairtrial check` and `pairtrial freeze`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pairtrial.cli.experiment import make_lock, prepare_all, read_experiment
from pairtrial.cli.paths import PLAN, RUNS, runs_root
from pairtrial.core.disk import write_atomic
from pairtrial.core.errors import ExitCode, PlanError
from pairtrial.prereg.lock import Lock, lock_path, parse_lock
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
    notes = warnings(material.plan, embedded=adapter.manifest.embedded)
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

    Frozen twice, the same bytes. Commit the lock before you run: the commit dates it.

    \b
    Example:
      pairtrial freeze prereg/demo.yaml
    """
    material, adapter = read_experiment(plan)
    lock = make_lock(material, adapter, prepare_all(material))
    target = lock_path(plan)
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
            hint="give the changed plan another id and file, or remove that run",
            slug="has-results",
        )
    if not replace:
        raise PlanError(
            f"{target}: frozen already as {old.plan_id[:12]}, today it would be {lock.plan_id[:12]}",
            hint="pass --replace if nothing was run under it",
            slug="frozen-already",
        )
