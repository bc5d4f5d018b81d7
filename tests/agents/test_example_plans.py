"""The example plans from end to end: purity, registration, run, report and verification, with a scripted model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_cases import present
from scripted import scripted

ROOT = Path(__file__).parents[2]
PARTS = ("prereg/examples", "prereg/prices", "providers", "harness/prompts", "tasks/core")
pytestmark = [pytest.mark.slow, pytest.mark.registry, pytest.mark.timeout(300)]
LINE = (
    "second difference: arm notes-file also sets context_files=true (Claude Code reads CLAUDE.md with this option only)"
)


@pytest.fixture
def project(tmp_path: Path, require: Callable[..., None]) -> Path:
    """A repository with the examples and what they refer to."""
    require("agents", *present("claude-code", "2.1.332"))
    for part in PARTS:
        skip = shutil.ignore_patterns("__pycache__", "*.lock.json", "*.purity.json")
        shutil.copytree(ROOT / part, tmp_path / part, ignore=skip)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def pairtrial(project: Path, *arguments: str, model: str) -> str:
    """Run a command that must succeed; gives what it printed."""
    command = [sys.executable, "-m", "pairtrial", *arguments]
    env = {**os.environ, "PAIRTRIAL_SCRIPTED_MODEL": model}
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


def table(text: str) -> dict[str, list[str]]:
    """First column of the printed table → the others; under a heading, ``heading/row``."""
    rows, heading = {}, ""
    for line in text.splitlines():
        cells = line.split("  ")
        if line.startswith("servers of so many tools, options "):
            heading = line.removeprefix("servers of so many tools, options ") + "/"
        elif len(words := [cell.strip() for cell in cells if cell.strip()]) == 6:
            rows[heading + words[0]] = words[1:]
    return rows


def test_purity_prints_no_aa_difference_and_the_tax_of_two_and_thirty_tools(project: Path) -> None:
    with scripted({"steps": []}, project) as model:
        text = pairtrial(project, "purity", "prereg/examples/claude-code-bm25.yaml", model=model.url)
        assert model.requests == []
    assert "A/A difference: 0 bytes" in text.splitlines()
    assert text.splitlines()[-1] == "pure: the arms differ in their providers alone"
    rows = table(text)
    assert rows["arm"] == ["tools", "deferred", "request B", "schemas B", "tax B"]
    assert {name: (row[0], row[1], row[4]) for name, row in rows.items() if "/" not in name and name != "arm"} == {
        "control": ("4", "–", "+0"), "bm25": ("5", "no", "+408"), "aa": ("4", "–", "+0"),
    }  # fmt: skip
    modes = ("tools=core tool_search=false", "tools=full tool_search=false", "tools=full tool_search=true")
    core, full, search = (
        {name: (rows[f"{mode}/{name}"][1], int(rows[f"{mode}/{name}"][4]))
         for name in ("no server", "2-tool server", "30-tool server")}
        for mode in modes
    )  # fmt: skip
    assert core == {"no server": ("–", 0), "2-tool server": ("no", 1290), "30-tool server": ("no", 19371)}
    assert full["30-tool server"][1] > full["2-tool server"][1] > 1290
    assert search["2-tool server"][0] == search["30-tool server"][0] == "yes"
    assert 0 < search["2-tool server"][1] < search["30-tool server"][1] < core["2-tool server"][1]


def test_one_content_by_two_channels_registers_runs_and_is_told_with_its_second_difference(project: Path) -> None:
    notes = [(project / "providers" / name / "notes.md").read_bytes() for name in ("notes-mcp", "notes-file")]
    assert notes[0] == notes[1]
    plan = "prereg/examples/claude-code-notes.yaml"
    script = json.loads((ROOT / "harness" / "scripted" / "claude-code-notes.json").read_text())
    with scripted(script, project) as model:
        checked = pairtrial(project, "check", plan, model=model.url)
        assert LINE in checked.splitlines()
        assert f"the purity record is missing; run refuses until there is one: pairtrial purity {plan}" in checked
        pure = pairtrial(project, "purity", plan, "--probe-tools", "0", model=model.url)
        assert "notes-file: +0 bytes of its tax come with the declared flags alone" in pure
        assert pure.splitlines()[-1] == "pure: the arms differ in their providers and declared flags alone"
        pairtrial(project, "freeze", plan, model=model.url)
        assert "note: gates.purity: the purity record passed for the frozen plan" in pairtrial(
            project, "check", plan, model=model.url
        )
        pairtrial(project, "run", plan, "--uncommitted", model=model.url)
    report = pairtrial(project, "report", plan, model="")
    verified = pairtrial(project, "verify", plan, "--pack", "tasks/core", model="")
    assert "8 receipts, 8 grades recomputed from their test reports, 0 problem(s)" in verified

    (folder,) = (project / "runs" / "claude-code-notes").iterdir()
    receipts = [json.loads(path.read_text()) for path in folder.glob("*/*/receipt.json")]
    assert {(item["cell"]["arm"], item["status"]) for item in receipts} == {
        (arm, "resolved") for arm in ("control", "notes-mcp", "notes-file", "aa")
    }
    flagged = {item["cell"]["arm"]: item["observed"].get("flags") for item in receipts}
    lock = json.loads((project / "prereg" / "examples" / "claude-code-notes.lock.json").read_text())
    assert flagged == {
        "control": None, "aa": None, "notes-mcp": None,
        "notes-file": lock["identities"]["arm.notes-file.flags"],
    }  # fmt: skip
    called = {item["cell"]["arm"]: item["context_tool_calls"] for item in receipts}
    assert called == {"control": 0, "aa": 0, "notes-mcp": 1, "notes-file": 0}

    assert LINE in " ".join(report.split())
    claims = {
        claim["treatment"]: claim["sentence"] for claim in json.loads((folder / "scorecard.json").read_text())["claims"]
    }
    assert claims["notes-file"].endswith(f" {LINE.capitalize()[0]}{LINE[1:]}.")
    assert "econd difference" not in claims["notes-mcp"]
