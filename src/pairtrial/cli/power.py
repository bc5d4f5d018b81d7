"""`pairtrial power`: what a plan can show, before it is frozen."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pairtrial.cli.paths import PLAN, open_run, shown
from pairtrial.core.errors import EnvironmentFault, ExitCode, ReceiptError, UsageError
from pairtrial.prereg.plan import load_plan
from pairtrial.prereg.power import Components, PowerTable, power_table


@click.command()
@click.argument("plan", type=PLAN)
@click.option(
    "--from-run", "run", type=click.Path(path_type=Path), help="Earlier run (folder or plan) with repetitions."
)
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw the table into this .svg or .png.")
@click.option("--json", "as_json", is_flag=True, help="Print a record instead of prose.")
def power(plan: Path, run: Path | None, plot: Path | None, as_json: bool) -> int:
    """Print what PLAN can show: smallest effects by discordance, the chance to reach the floor, what more would buy.

    \b
    Example:
      pairtrial power prereg/demo.yaml --from-run runs/bm25-search/0123456789ab --plot power.svg
    """
    document = load_plan(plan)
    table = power_table(document, components_of(run) if run else None)
    if plot is not None:
        draw(table, plot, f"{document.id}: {table.tasks} tasks, alpha {table.alpha:g}")
    if as_json:
        click.echo(json.dumps(table.to_dict(), sort_keys=True))
    else:
        click.echo("\n".join(power_lines(table)))
        if plot is not None:
            click.echo(f"picture: {shown(plot)}")
    return ExitCode.OK


def components_of(run: Path) -> Components:
    """Variance components of the first comparison of an earlier run with repetitions."""
    from pairtrial.cli.results import scorecard

    variance = scorecard(open_run(run, None)).variance
    if not variance:
        raise ReceiptError(
            f"{run}: has one repetition, so it says nothing about the noise inside a task", slug="no-noise"
        )
    first = next(iter(variance.values()))
    return Components(first["omega2"], first["sigma2_control"], first["sigma2_treatment"])


def draw(table: PowerTable, path: Path, title: str) -> None:
    """Draw the picture; a name with another ending or an unwritable folder is refused."""
    from pairtrial.report.powerplot import draw_power

    if path.suffix not in (".svg", ".png"):
        raise UsageError(f"--plot {path}: the name must end in .svg or .png", slug="plot-name")
    try:
        draw_power(table, path, title=title)
    except OSError as fault:
        raise EnvironmentFault(f"{path}: cannot be written ({fault.strerror})", slug="unwritable") from fault


def power_lines(table: PowerTable) -> list[str]:
    """The table for a terminal."""
    lines = [
        f"{table.tasks} tasks, one repetition, alpha {table.alpha:g} after Holm's first step, "
        f"power {100 * table.target:.0f} %, floor {table.floor}",
        f"{'discordant':>11}{'floor reached':>15}{'smallest effect':>17}{'best power':>12}",
    ]
    for row in table.discordance:
        effect = "not reachable" if row.mde is None else f"{100 * row.mde:.1f} pp"
        lines.append(
            f"{100 * row.discordance:>9.0f} %{100 * row.floor_chance:>13.0f} %{effect:>17}{100 * row.max_power:>10.0f} %"
        )
    source = "variance components of the earlier run" if table.components else "the largest plausible discordance"
    lines += ["", f"what more would buy, from {source}"]
    lines.append(f"{'tasks':>7}{'repetitions':>13}{'smallest effect':>17}{'rollouts':>10}{'at most, USD':>14}")
    for design in table.designs:
        effect = "not reachable" if design.mde is None else f"{100 * design.mde:.1f} pp"
        lines.append(
            f"{design.tasks:>7}{design.repetitions:>13}{effect:>17}{design.rollouts:>10}{design.cost_usd or '–':>14}"
        )
    return lines
