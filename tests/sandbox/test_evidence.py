"""The table of what each isolation stops is what this machine finds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EVIDENCE = Path(__file__).resolve().parents[2] / "sandbox" / "evidence"


def found(kind: str) -> dict[str, str]:
    command = [sys.executable, str(EVIDENCE / "reach.py"), "--kinds", kind, "--image", "pairtrial/host:test"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]
    return {name: "succeeds" if "succeeds" in state else "stopped" for name, state in rows}


def committed(kind: str) -> dict[str, str]:
    record = json.loads((EVIDENCE / "reach.json").read_text())
    return {name: "succeeds" if row[kind] else "stopped" for name, row in record.items()}


@pytest.mark.parametrize("kind", ["bubblewrap", "docker"])
def test_isolation_stops_what_the_table_says(
    kind: str, require: Callable[..., None], request: pytest.FixtureRequest
) -> None:
    require(kind)
    if kind == "docker":
        request.getfixturevalue("docker_engine")
    assert found(kind) == committed(kind)
    assert set(committed(kind).values()) == {"stopped"}


def test_the_table_is_the_record() -> None:
    record = json.loads((EVIDENCE / "reach.json").read_text())
    text = (EVIDENCE / "reach.md").read_text()
    assert text.count("**succeeds**") == sum(state for row in record.values() for state in row.values())
    for name, row in record.items():
        states = " | ".join("**succeeds**" if state else "stopped" for state in row.values())
        assert f"| {name} | {states} |" in text
    assert text.strip() in (EVIDENCE.parents[1] / "docs" / "sandboxes.md").read_text()
