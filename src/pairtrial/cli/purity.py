"""`pairtrial purity`: prove that nothing but the treatment differs between arms on the wire."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import anyio
import click

from pairtrial.cli.experiment import (
    gateway_for,
    make_arms,
    make_lock,
    prepare_all,
    prepare_runtime,
    read_experiment,
    toolchain,
)
from pairtrial.cli.paths import PLAN, RUNS
from pairtrial.cli.progress import tracking
from pairtrial.cli.puritytable import purity_lines
from pairtrial.cli.run import scratch_folder
from pairtrial.core.disk import cache_root, write_atomic
from pairtrial.core.errors import ExitCode, PlanError
from pairtrial.harness.counting import count_tokens
from pairtrial.harness.gateway import Route
from pairtrial.harness.purity import ArmPurity, ProbeTax, PurityRecord, Shot, probe_arm, purity_record
from pairtrial.harness.rollout import Experiment
from pairtrial.harness.tax import probe_count, probe_taxes
from pairtrial.prereg.lock import Lock
from pairtrial.prereg.plan import Plan
from pairtrial.prereg.schedule import Cell, schedule

SUFFIX = ".purity.json"


@click.command()
@click.argument("plan", type=PLAN)
@click.option("--replicates", type=click.IntRange(2, 20), default=2, show_default=True, help="Probes of the control.")
@click.option("--task", help="The task whose prompt is used; default: the first of the schedule.")
@click.option(
    "--count-tokens", "counting", is_flag=True, help="Ask the provider how many tokens each first request has (free)."
)
@click.option(
    "--probe-tools",
    "sizes",
    type=click.IntRange(0, 99),
    multiple=True,
    default=(2, 30),
    show_default=True,
    help="Also measure a server of so many tools, schemas deferred and not where the agent can; 0: none. Repeatable.",
)
@click.option("--scratch", type=RUNS, help="Fast folder for work trees; default: memory if there is room.")
@click.option("--json", "as_json", is_flag=True, help="Print the record instead of prose.")
def purity(
    plan: Path,
    replicates: int,
    task: str | None,
    counting: bool,
    sizes: tuple[int, ...],
    scratch: Path | None,
    as_json: bool,
) -> int:
    """Run each arm of PLAN to its first request and print what differs between arms on the wire, and what it costs.

    The gateway answers that request itself, so nothing is spent. Beside the arms it measures servers of two and thirty
    tools, whose schemas the agent defers or not. Writes PLAN's purity record, which a plan with gates.purity demands.

    \b
    Example:
      pairtrial purity prereg/examples/claude-code-bm25.yaml
    """
    material, adapter = read_experiment(plan)
    if adapter.manifest.api is None:
        raise PlanError(f"{plan}: {adapter.manifest.id} asks no model: nothing goes over a wire", slug="no-wire")
    prepared = prepare_all(material)
    lock = make_lock(material, adapter, prepared)
    folder = scratch_folder(scratch)
    try:
        with gateway_for(material, adapter, key_needed=counting) as (server, route):
            experiment = Experiment(
                lock=lock, adapter=adapter, prepared=prepared, arms=make_arms(material, adapter), prompt=material.prompt,
                scratch=folder, cache=cache_root(), toolchain=toolchain(),
                runtime=prepare_runtime(), gateway=server, route=route,
            )  # fmt: skip
            record = anyio.run(
                _probe, experiment, _cells(lock.plan, task), replicates, sorted({n for n in sizes if n}), counting
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    target = record_path(plan)
    write_atomic(target, json.dumps(record.model_dump(mode="json", by_alias=True), indent=1).encode() + b"\n")
    if as_json:
        click.echo(json.dumps(record.model_dump(mode="json", by_alias=True)))
    else:
        click.echo("\n".join(purity_lines(record)))
        click.echo(f"{target} written", err=True)
    return ExitCode.OK if record.passed else ExitCode.REFUSED


def record_path(plan: Path) -> Path:
    """``prereg/x.yaml`` → ``prereg/x.purity.json``."""
    return plan.with_name(plan.name.removesuffix(".yaml") + SUFFIX)


def purity_state(plan: Path, lock: Lock | None) -> str | None:
    """Why the purity gate is closed for a lock (None: for whatever will be frozen); None when it is open."""
    try:
        record = PurityRecord.model_validate(json.loads(record_path(plan).read_bytes()), strict=False)
    except FileNotFoundError:
        return "is missing"
    except (OSError, ValueError):
        return "cannot be read"
    if lock is None or record.plan_id != lock.plan_id:
        return "is of another lock"
    return None if record.passed else "failed"


def demand_purity(plan: Path, lock: Lock) -> None:
    """Refuse to run when the plan demands a purity record and there is none that passed for this lock."""
    state = purity_state(plan, lock) if lock.plan.gates.purity else None
    if state is not None:
        raise PlanError(
            f"{plan}: gates.purity: the purity record {state}", hint=f"pairtrial purity {plan}", slug="purity-gate"
        )


def purity_note(plan: Path, lock: Lock | None) -> str:
    """What `check` says about the gate of a plan that demands it; ``lock`` is the frozen one, where there is one."""
    state = purity_state(plan, lock)
    if state is None:
        return "gates.purity: the purity record passed for the frozen plan"
    if lock is None and state == "is of another lock":
        state = "holds for one lock only, and the plan is not frozen"
    return f"gates.purity: the purity record {state}; run refuses until there is one: pairtrial purity {plan}"


def _cells(plan: Plan, task: str | None) -> Mapping[str, Cell]:
    blocks = [block for block in schedule(plan) if task in (None, block.task)]
    if not blocks:
        raise PlanError(f"--task: {task!r} is not in the plan", slug="missing")
    return {cell.arm: cell for cell in blocks[0].cells}


async def _probe(
    experiment: Experiment, cells: Mapping[str, Cell], replicates: int, sizes: list[int], counting: bool
) -> PurityRecord:
    """Every first request, and what they say together."""
    plan, control = experiment.plan, experiment.plan.control.name
    others = [arm.name for arm in plan.arms if arm.name != control]
    flagged = [arm.name for arm in plan.arms if arm.differences]
    shots: dict[str, list[Shot]] = {name: [] for name in (control, *others)}
    total = replicates * len(shots) + len(flagged) + probe_count(plan, experiment.adapter, sizes)
    with tracking("first requests", total) as tracker:
        seen: list[str] = []

        def done(name: str) -> None:
            seen.append(name)
            tracker.update(len(seen), name)

        for _ in range(replicates):
            for name in shots:
                shots[name].append(await probe_arm(experiment, cells[name]))
                done(name)
        bare = {}
        for name in flagged:
            bare[name] = await probe_arm(experiment, cells[name], bare=True)
            done(name)
        taxes = await probe_taxes(experiment, cells[control], sizes, done) if sizes else []
    rest = {name: shots[name] for name in others}
    record = purity_record(experiment.lock.plan_id, cells[control].task, shots[control], rest, experiment, bare)
    probes = tuple(row for row, _ in taxes)
    if counting and experiment.route is not None:
        route = experiment.route
        arms = counted(record.arms, [shots[name][0] for name in (control, *others)], route)
        return record.model_copy(update={"arms": arms, "probes": counted(probes, [shot for _, shot in taxes], route)})
    return record.model_copy(update={"probes": probes})


Row = TypeVar("Row", ArmPurity, ProbeTax)


def counted(rows: tuple[Row, ...], shots: list[Shot], route: Route) -> tuple[Row, ...]:
    """The rows with the provider's own token counts; taxes are against the control in front of them."""
    found, base = [], None
    for number, (row, shot) in enumerate(zip(rows, shots, strict=True)):
        tokens = count_tokens(route, shot.request, os.environ)
        if number == 0 or (isinstance(row, ProbeTax) and row.server_tools == 0):
            base = tokens
        tax = tokens - base if tokens is not None and base is not None else None
        found.append(row.model_copy(update={"tokens": tokens, "tax_tokens": tax}))
    return tuple(found)
