"""`pairtrial run` and `pairtrial status`."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import anyio
import click

from pairtrial.cli.experiment import (
    committed,
    gateway_for,
    make_arms,
    prepare_all,
    prepare_runtime,
    prepared_identities,
    quick_identities,
    read_experiment,
    toolchain,
)
from pairtrial.cli.paths import PLAN, RUNS, TARGET, open_run, runs_root, shown
from pairtrial.cli.progress import tracking
from pairtrial.core.disk import cache_root
from pairtrial.core.errors import ExitCode, PlanError
from pairtrial.harness.batch import UNTOUCHED, Batch, Progress, cell_states
from pairtrial.harness.rollout import Experiment
from pairtrial.prereg.lock import Lock, drift, load_lock, lock_path
from pairtrial.prereg.schedule import schedule
from pairtrial.runs.store import RunStore, run_folder
from pairtrial.sandbox import new_scratch

FAST_SCRATCH = Path("/dev/shm")  # noqa: S108 - a memory file system, used through mkdtemp
ENOUGH_SCRATCH = 2 << 30


@click.command()
@click.argument("plan", type=PLAN)
@click.option("--workers", type=click.IntRange(1, 64), default=2, show_default=True, help="Blocks run at a time.")
@click.option("--runs", type=RUNS, help="Where runs lie; default: runs/ beside the plan's folder.")
@click.option("--scratch", type=RUNS, help="Fast folder for work trees; default: memory if there is room.")
@click.option("--uncommitted", is_flag=True, help="Run although the lock is not committed; the report will say so.")
def run(plan: Path, workers: int, runs: Path | None, scratch: Path | None, uncommitted: bool) -> int:
    """Run a frozen PLAN. Runs what has no receipt yet: call it again after an interruption.

    \b
    Example:
      pairtrial run prereg/demo.yaml --workers 2
    """
    lock = load_lock(lock_path(plan))
    material, adapter = read_experiment(plan)
    frozen = {name: value for name, value in lock.identities.items() if not name.endswith(".workspace")}
    today = quick_identities(material, adapter)
    if not any(name.endswith(".qualification") for name in frozen):  # frozen before tasks were qualified
        today = {name: value for name, value in today.items() if not name.endswith(".qualification")}
    refuse_drift(plan, drift(frozen, today))
    dated = committed(lock_path(plan))
    if dated is False and not uncommitted:
        raise PlanError(
            f"{lock_path(plan)}: not committed as it stands, so nothing dates it",
            hint=f"git add {lock_path(plan)} and commit it, or pass --uncommitted (the report will say so)",
            slug="uncommitted-lock",
        )
    if lock.plan.gates.purity:
        from pairtrial.cli.purity import demand_purity

        demand_purity(plan, lock)
    prepared = prepare_all(material)
    frozen = {name: value for name, value in lock.identities.items() if name.endswith(".workspace")}
    refuse_drift(plan, drift(frozen, prepared_identities(prepared)))
    folder = scratch_folder(scratch)
    try:
        with ExitStack() as stack:
            server, route = stack.enter_context(gateway_for(material, adapter))
            experiment = Experiment(
                lock=lock,
                adapter=adapter,
                prepared=prepared,
                arms=make_arms(material, adapter),
                prompt=material.prompt,
                scratch=folder,
                cache=cache_root(),
                toolchain=toolchain(),
                runtime=prepare_runtime(),
                gateway=server,
                route=route,
            )
            store = stack.enter_context(RunStore(runs_root(plan, runs), lock))
            progress = execute(experiment, store, workers=workers, dated=dated)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return finish(progress, run_folder(runs_root(plan, runs), lock))


def execute(experiment: Experiment, store: RunStore, *, workers: int, dated: bool | None) -> Progress:
    """Run the batch under a progress bar."""
    blocks = schedule(experiment.plan)
    batch = Batch(experiment, blocks, store, workers=workers, committed=dated)
    if experiment.gateway is not None:
        experiment.gateway.gateway.budget.spent = batch.spent
    with tracking("rollouts", batch.progress.planned, batch.progress.done) as tracker:
        batch.on_progress = lambda progress: tracker.update(progress.done, counts_text(progress.by_status))
        return anyio.run(batch.run)


def finish(progress: Progress, folder: Path) -> int:
    """Say how the run ended."""
    click.echo(
        f"{progress.done} of {progress.planned} rollouts have receipts ({counts_text(progress.by_status)})", err=True
    )
    click.echo(f"receipts: {shown(folder)}", err=True)
    if progress.owed:
        click.echo(
            f"{progress.owed} could not be graded, not by fault of their work, which is kept: call `pairtrial run` again "
            "to grade it without another run of the agent",
            err=True,
        )
    if progress.stopped:
        click.echo(f"stopped: {progress.stopped}", err=True)
        return ExitCode.REFUSED
    return ExitCode.REFUSED if progress.owed else ExitCode.OK


def counts_text(counts: Counter[str]) -> str:
    """``resolved 3, unresolved 5``."""
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none yet"


def refuse_drift(plan: Path, lines: list[str]) -> None:
    """Refuse to run what is not what was frozen."""
    if lines:
        text = "\n".join(f"  {line}" for line in lines)
        raise PlanError(
            f"{plan}: has drifted since it was frozen:\n{text}",
            hint="undo the change, or freeze the changed plan anew before anything is run",
            slug="drift",
        )


def scratch_folder(named: Path | None) -> Path:
    """A new folder for work trees: in memory when there is room, for a disk makes a rollout many times slower.

    What killed runs left beside it is removed first.
    """
    base = named
    usable = FAST_SCRATCH.is_dir() and os.access(FAST_SCRATCH, os.W_OK)
    if base is None and usable and shutil.disk_usage(FAST_SCRATCH).free >= ENOUGH_SCRATCH:
        base = FAST_SCRATCH
    return new_scratch(base if base is not None else Path(tempfile.gettempdir()))


@click.command()
@click.argument("target", type=TARGET)
@click.option("--runs", type=RUNS, help="Where runs lie; default: runs/ beside the plan's folder.")
@click.option("--json", "as_json", is_flag=True, help="Print a record instead of prose.")
def status(target: Path, runs: Path | None, as_json: bool) -> int:
    """Show how far the run of TARGET (a plan or a run folder) is.

    \b
    Example:
      pairtrial status prereg/demo.yaml
    """
    reader = open_run(target, runs)
    lock: Lock = reader.lock
    states = cell_states((receipt for _, receipt in reader.attempts()), lock.plan)
    owed = 0
    arms: dict[str, Counter[str]] = {arm.name: Counter() for arm in lock.plan.arms}
    for block in schedule(lock.plan):
        for cell in block.cells:
            state = states.get(cell.id, UNTOUCHED)
            arms[cell.arm][state.status.value if state.status else "not run"] += 1
            owed += state.owed is not None
    if as_json:
        record = {
            "plan": lock.plan.id,
            "plan_id": lock.plan_id,
            "arms": {name: dict(c) for name, c in arms.items()},
            "to_be_graded_again": owed,
        }
        click.echo(json.dumps(record, sort_keys=True))
        return ExitCode.OK
    click.echo(f"{lock.plan.id}  {lock.plan_id[:12]}  {shown(reader.folder)}")
    for name, counts in arms.items():
        click.echo(f"  {name:<16} {counts_text(counts)}")
    if owed:
        click.echo(f"  {owed} to be graded again by the next `pairtrial run`: their work is kept")
    return ExitCode.OK
