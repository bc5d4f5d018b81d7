"""`pairtrial schemas`: JSON Schemas of every document, generated from the models that read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel

from pairtrial.core.disk import write_atomic
from pairtrial.core.errors import ExitCode, PairtrialError, UsageError
from pairtrial.harness.agents.base import AgentManifest
from pairtrial.harness.gateway.prices import PriceTable
from pairtrial.harness.purity import PurityRecord
from pairtrial.prereg.lock import Lock
from pairtrial.prereg.plan import Plan
from pairtrial.providers.contract import AgentConfig
from pairtrial.report.scorecard import Scorecard
from pairtrial.runs.journal import JournalLine
from pairtrial.runs.receipt import Receipt
from pairtrial.tasks.model import PackDocument, TargetDocument, TaskDocument
from pairtrial.tasks.qualification import QualificationDocument

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DOCUMENTS: dict[str, type[BaseModel]] = {
    "agent": AgentManifest,
    "journal": JournalLine,
    "lock": Lock,
    "pack": PackDocument,
    "plan": Plan,
    "prices": PriceTable,
    "provider": AgentConfig,
    "purity": PurityRecord,
    "qualification": QualificationDocument,
    "receipt": Receipt,
    "scorecard": Scorecard,
    "target": TargetDocument,
    "task": TaskDocument,
}
"""Kind → the model of ``pairtrial.KIND.v1``; a line of the journal carries no schema key."""


def schema_text(kind: str) -> str:
    """The JSON Schema of one kind of document; the same bytes each time."""
    body: dict[str, Any] = DOCUMENTS[kind].model_json_schema(by_alias=True)
    whole = {**body, "$schema": DIALECT, "title": f"pairtrial.{kind}.v1"}
    return json.dumps(whole, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def stale(folder: Path) -> list[str]:
    """Names of files in ``folder`` that are not what the models give, too many or missing."""
    wanted = {f"{kind}.v1.json": schema_text(kind).encode() for kind in DOCUMENTS}
    there = {path.name: path.read_bytes() for path in folder.glob("*.json")}
    return sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit 1 when a schema there is stale.")
def schemas(folder: Path, only_check: bool) -> int:
    """Write the JSON Schema of every document into FOLDER, for editors and other programs.

    \b
    Example:
      pairtrial schemas docs/schemas --check
    """
    old = stale(folder) if folder.is_dir() else [f"{kind}.v1.json" for kind in DOCUMENTS]
    if only_check:
        if old:
            raise Stale("\n".join(f"{folder / name}: is not what the models give" for name in old),
                        hint=f"pairtrial schemas {folder}", slug="stale-schema")  # fmt: skip
        return ExitCode.OK
    for kind in DOCUMENTS:
        write_atomic(folder / f"{kind}.v1.json", schema_text(kind).encode())
    strangers = [name for name in old if name.removesuffix(".v1.json") not in DOCUMENTS]
    if strangers:
        raise UsageError(
            f"{folder}: {', '.join(strangers)}: no document of ours", hint="remove them", slug="strange-schema"
        )
    click.echo(f"{len(DOCUMENTS)} schemas in {folder}")
    return ExitCode.OK


class Stale(PairtrialError):
    """A schema is not what its model gives."""
