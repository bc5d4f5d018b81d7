"""What `init` writes is an experiment that runs as it stands."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from pairtrial.cli.main import main

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    return int(str(caught.value.code))


@pytest.mark.registry
def test_the_first_experiment_runs_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "tasks" / "core", "tasks/core")
    shutil.copytree(ROOT / "harness" / "prompts", "harness/prompts")
    assert run("init", "mine") == 0
    plan = Path("prereg/mine.yaml")
    document = yaml.safe_load(plan.read_text())
    document["tasks"]["ids"] = ["toolz-join-unmatched-left"]
    plan.write_text(yaml.safe_dump(document))
    assert run("check", str(plan)) == 0
    assert run("freeze", str(plan)) == 0
    assert run("run", str(plan), "--workers", "1") == 0
    receipts = {
        value["cell"]["arm"]: value
        for value in (json.loads(path.read_bytes()) for path in Path("runs").rglob("receipt.json"))
    }
    capsys.readouterr()
    assert {arm: value["status"] in ("resolved", "unresolved") for arm, value in receipts.items()} == {
        "control": True, "mine": True, "aa": True,
    }  # fmt: skip
    assert receipts["mine"]["startup"]["servers"] == [{"name": "mine", "status": "connected", "tools": ["search"]}]
    assert receipts["mine"]["context_tool_calls"] >= 1
    assert receipts["control"]["startup"]["servers"] == []
