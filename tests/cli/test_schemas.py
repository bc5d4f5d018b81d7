"""The JSON Schemas that lie in docs/ are what the models give, and accept the documents of this repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

import pairtrial
from pairtrial.cli.main import cli
from pairtrial.cli.schemas import DOCUMENTS, schema_text, stale
from pairtrial.core.errors import PairtrialError

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "docs" / "schemas"
PLACES = (
    "prereg/*.yaml", "prereg/examples/*.yaml", "prereg/prices/*.yaml", "prereg/*.lock.json", "providers/*/provider.yaml",
    "tasks/*/pack.yaml", "tasks/*/*/task.yaml", "tasks/*/targets/*/target.yaml", "tasks/*/qualification.json",
    "src/pairtrial/harness/agents/*.yaml", "runs/*/*/scorecard.json", "runs/*/*/*.r1/1/receipt.json",
)  # fmt: skip


def errors(kind: str, document: Any) -> list[str]:
    validator = Draft202012Validator(json.loads((SCHEMAS / f"{kind}.v1.json").read_text()))
    return [f"{list(fault.path)}: {fault.message}" for fault in validator.iter_errors(document)]


def test_what_is_checked_in_is_current() -> None:
    assert stale(SCHEMAS) == []


def test_every_kind_of_document_in_the_code_has_a_schema() -> None:
    text = "".join(path.read_text() for path in Path(pairtrial.__file__).parent.rglob("*.py"))
    named = {part.split(".v1")[0] for part in text.split('Literal["pairtrial.')[1:]}
    assert named == set(DOCUMENTS) - {"journal"}


@pytest.mark.parametrize("place", PLACES)
def test_documents_of_this_repository_are_accepted(place: str) -> None:
    found = sorted(ROOT.glob(place))[:60]
    assert found
    for path in found:
        document = yaml.load(path.read_text(), yaml.CSafeLoader)
        kind = document["schema"].removeprefix("pairtrial.").removesuffix(".v1")
        assert errors(kind, document) == [], path


def test_lines_of_a_journal_are_accepted() -> None:
    (path,) = ROOT.glob("runs/bm25-search/*/journal.jsonl")
    for line in path.read_text().splitlines()[:200]:
        assert errors("journal", json.loads(line)) == []


def test_a_wrong_word_and_an_unknown_key_are_refused() -> None:
    plan = yaml.load((ROOT / "prereg" / "demo.yaml").read_text(), yaml.CSafeLoader)
    assert errors("plan", {**plan, "stage": "final"}) == [
        "['stage']: 'final' is not one of ['feasibility', 'confirmatory']"
    ]
    assert errors("plan", {**plan, "sed": 1}) == ["[]: Additional properties are not allowed ('sed' was unexpected)"]


def test_the_command_writes_checks_and_names_what_is_stale(tmp_path: Path) -> None:
    folder = tmp_path / "schemas"
    done = CliRunner().invoke(cli, ["schemas", str(folder)])
    assert (done.exit_code, done.output) == (0, f"{len(DOCUMENTS)} schemas in {folder}\n")
    assert (folder / "plan.v1.json").read_text() == schema_text("plan")
    (folder / "plan.v1.json").write_text("{}\n")
    (folder / "strange.json").write_text("{}\n")
    assert stale(folder) == ["plan.v1.json", "strange.json"]
    refused = CliRunner().invoke(cli, ["schemas", str(folder), "--check"])
    assert refused.exit_code == 1
    assert isinstance(refused.exception, PairtrialError | SystemExit)
