"""`pairtrial export`: registrations for people."""

from __future__ import annotations

from pathlib import Path

import click

from pairtrial.cli.paths import PLAN
from pairtrial.core.disk import write_atomic
from pairtrial.core.errors import ExitCode
from pairtrial.prereg.lock import load_lock, lock_path
from pairtrial.prereg.registration import as_html, as_markdown


@click.group()
def export() -> None:
    """Write what was registered in a form for people."""


@export.command()
@click.argument("plan", type=PLAN)
@click.option("--format", "form", type=click.Choice(["osf", "html"]), default="osf", show_default=True)
@click.option("--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="File; default: standard output.")
def prereg(plan: Path, form: str, output: Path | None) -> int:
    """The frozen PLAN under the headings of the OSF preregistration form (Markdown), or as one HTML page.

    \b
    Example:
      pairtrial export prereg prereg/demo.yaml --format html -o demo.html
    """
    lock = load_lock(lock_path(plan))
    text = as_markdown(lock) if form == "osf" else as_html(lock)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_atomic(output, text.encode())
        click.echo(f"{output} written", err=True)
    return ExitCode.OK
