"""`pairtrial init`: a plan, a provider and its server to start from."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import click

from pairtrial.core.disk import write_atomic
from pairtrial.core.errors import ExitCode, UsageError


@click.command()
@click.argument("name")
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False), default=Path(), help="Project; default: here."
)
def init(name: str, folder: Path) -> int:
    """Write prereg/NAME.yaml and providers/NAME/ (provider.yaml, server.py) to start from; never replaces a file.

    \b
    Example:
      pairtrial init mine
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,63}", name):
        raise UsageError(f"{name!r}: a name has lowercase letters, digits and hyphens", slug="name")
    templates = files("pairtrial.prereg") / "templates"
    targets = {
        folder / "prereg" / f"{name}.yaml": templates / "plan.yaml",
        folder / "providers" / name / "provider.yaml": templates / "provider.yaml",
        folder / "providers" / name / "server.py": templates / "server.py",
    }
    for target in targets:
        if target.exists():
            raise UsageError(f"{target}: exists already", hint="choose another name", slug="exists")
    for target, template in targets.items():
        write_atomic(target, template.read_text(encoding="utf-8").replace("@NAME@", name).encode())
        click.echo(f"{target} written")
    click.echo(f"fill in what they ask for, then: pairtrial check {folder / 'prereg' / name}.yaml", err=True)
    return ExitCode.OK
