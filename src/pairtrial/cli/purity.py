"""`pairtrial purity`: prove that nothing but the treatment differs between arms on the wire."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

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
from pairtrial.cli.run import scratch_folder
from pairtrial.core.disk import cache_root, write_atomic
from pairtrial.core.errors import ExitCode, PlanError
from pairtrial.harness.counting import count_tokens
from pairtrial.harness.purity import ArmPurity, PurityRecord, Shot, probe_arm, purity_record
from pairtrial.harness.rollout import Experiment
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
@click.option("--scratch", type=RUNS, help="Fast folder for work trees; default: memory if there is room.")
@click.option("--json", "as_json", is_flag=True, help="Print the record instead of prose.")
def purity(plan: Path, replicates: int, task: str | None, counting: bool, scratch: Path | None, as_json: bool) -> int:
    """Run each arm of PLAN to its first request and print what differs between arms on the wire.

    The gateway answers that request itself, so nothing is spent. Writes PLAN's purity record, which a plan with
    gates.purity demands.

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
            found = _probe(experiment, _cells(lock.plan, task), replicates)
            if counting:
                found = _counted(found, experiment)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    record, target = found[0], record_path(plan)
    write_atomic(target, json.dumps(record.model_dump(mode="json", by_alias=True), indent=1).encode() + b"\n")
    if as_json:
        click.echo(json.dumps(record.model_dump(mode="json", by_alias=True)))
    else:
        click.echo("\n".join(prose(record)))
        click.echo(f"{target} written", err=True)
    return ExitCode.OK if record.passed else ExitCode.REFUSED


def record_path(plan: Path) -> Path:
    """``prereg/x.yaml`` → ``prereg/x.purity.json``."""
    return plan.with_name(plan.name.removesuffix(".yaml") + SUFFIX)


def demand_purity(plan: Path, lock: Lock) -> None:
    """Refuse to run when the plan demands a purity record and there is none that passed for this lock."""
    if not lock.plan.gates.purity:
        return
    path = record_path(plan)
    try:
        record = PurityRecord.model_validate(json.loads(path.read_bytes()), strict=False)
    except (OSError, ValueError):
        record = None
    if record is None or record.plan_id != lock.plan_id or not record.passed:
        state = "is missing" if record is None else "is of another lock" if record.plan_id != lock.plan_id else "failed"
        raise PlanError(
            f"{plan}: gates.purity: the purity record {state}", hint=f"pairtrial purity {plan}", slug="purity-gate"
        )


def _cells(plan: Plan, task: str | None) -> Mapping[str, Cell]:
    blocks = [block for block in schedule(plan) if task in (None, block.task)]
    if not blocks:
        raise PlanError(f"--task: {task!r} is not in the plan", slug="missing")
    return {cell.arm: cell for cell in blocks[0].cells}


def _probe(experiment: Experiment, cells: Mapping[str, Cell], replicates: int) -> tuple[PurityRecord, list[Shot]]:
    control = experiment.plan.control.name
    others = [arm.name for arm in experiment.plan.arms if arm.name != control]
    shots: dict[str, list[Shot]] = {name: [] for name in (control, *others)}

    async def work() -> None:
        with tracking("first requests", replicates * len(shots)) as tracker:
            done = 0
            for _ in range(replicates):
                for name in shots:
                    shots[name].append(await probe_arm(experiment, cells[name]))
                    done += 1
                    tracker.update(done, name)

    anyio.run(work)
    rest = {name: shots[name] for name in others}
    record = purity_record(experiment.lock.plan_id, cells[control].task, shots[control], rest, experiment)
    return record, [shots[name][0] for name in (control, *others)]


def _counted(record: tuple[PurityRecord, list[Shot]], experiment: Experiment) -> tuple[PurityRecord, list[Shot]]:
    """Fill in the provider's own token counts."""
    found, shots = record
    route = experiment.route
    if route is None:
        return record
    tokens = [count_tokens(route, shot.request, os.environ) for shot in shots]
    base = tokens[0]
    arms = tuple(
        arm.model_copy(update={
            "tokens": count, "tax_tokens": count - base if count is not None and base is not None else None,
        })
        for arm, count in zip(found.arms, tokens, strict=True)
    )  # fmt: skip
    return found.model_copy(update={"arms": arms}), shots


def prose(record: PurityRecord) -> list[str]:
    """The record for people."""
    lines = [
        f"first requests of {record.task}, {record.replicates} probes an arm; masked: {', '.join(record.masked)}",
        f"A/A difference: {record.aa_bytes} bytes",
    ]
    lines += [_arm_line(arm) for arm in record.arms]
    for arm in record.arms:
        for item in arm.differences:
            sign = " " if item.explained else "!"
            lines.append(f"{sign} {arm.arm}  {item.where}: {item.detail}")
    lines += [f"problem: {problem}" for problem in record.problems]
    lines.append("pure: the arms differ in their providers alone" if record.passed else "not pure")
    return lines


def _arm_line(arm: ArmPurity) -> str:
    tokens = f", {arm.tokens} tokens (tax {arm.tax_tokens:+d})" if arm.tokens is not None else ""
    return (
        f"  {arm.arm:<16} {arm.request_bytes:>7} bytes, {len(arm.tools):>3} tools ({arm.tools_bytes} bytes), "
        f"schema tax {arm.tax_bytes:+d} bytes{tokens}"
    )
