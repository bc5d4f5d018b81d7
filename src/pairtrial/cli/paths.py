"""Where commands look: plans, run folders, and how both are named to the user."""

from __future__ import annotations

from pathlib import Path

import click

from pairtrial.core.errors import UsageError
from pairtrial.prereg.lock import load_lock, lock_path
from pairtrial.runs.store import LOCK_COPY, RunReader, run_folder

PLAN = click.Path(path_type=Path, dir_okay=False)
TARGET = click.Path(path_type=Path)
RUNS = click.Path(path_type=Path, file_okay=False)


def runs_root(plan: Path, named: Path | None) -> Path:
    """Folder of all runs: the named one, or ``runs`` beside the ``prereg`` folder that the plan lies in."""
    if named is not None:
        return named
    above = [folder for folder in plan.resolve().parents if folder.name == "prereg"]
    return (above[-1].parent if above else plan.resolve().parent) / "runs"


def open_run(target: Path, runs: Path | None) -> RunReader:
    """The run of a plan file (by its lock, never by date) or the run folder itself."""
    if (target / LOCK_COPY).is_file():
        return RunReader(target)
    if target.is_dir():
        raise UsageError(f"{target}: not a run folder", hint="name runs/NAME/PLANID, or the plan file", slug="no-run")
    lock = load_lock(lock_path(target))
    return RunReader(run_folder(runs_root(target, runs), lock))


def shown(path: Path) -> str:
    """A path as the user may type it: relative to where they are when it lies below."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
