"""The same experiment in every backend: same seeds, same agent, so the same steps and the same grades."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
TASKS = ["toolz-join-unmatched-left", "semver-compatible-same-minor"]
Record = dict[str, tuple[object, ...]]


def pairtrial(*arguments: str) -> None:
    command = [sys.executable, "-m", "pairtrial.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def grades(place: Path, sandbox: dict[str, str]) -> Record:
    """Freeze and run two tasks of the demo in one kind of sandbox; gives status, checks and steps of every cell."""
    plan = yaml.safe_load((ROOT / "prereg" / "demo.yaml").read_text())
    plan["id"] = f"demo-{sandbox['kind']}"
    plan["tasks"]["ids"] = TASKS
    plan["tasks"].pop("exceptions", None)
    plan["sandbox"] = sandbox
    path = place / "prereg" / f"{plan['id']}.yaml"
    path.write_text(yaml.safe_dump(plan))
    pairtrial("freeze", str(path))
    pairtrial("run", str(path), "--uncommitted", "--runs", str(place / "runs"), "--scratch", str(place))
    found: Record = {}
    for receipt in sorted((place / "runs" / plan["id"]).glob("*/*/*/receipt.json")):
        record = json.loads(receipt.read_text())
        cell = f"{record['cell']['task']}.{record['cell']['arm']}"
        steps = [usage["steps"] for usage in record["usage"]]
        found[cell] = (record["status"], record["reason"], record["stop_reason"], steps, record["files_modified"])
        assert record["sandbox"]["kind"] == sandbox["kind"]
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("same")
    (folder / "prereg").mkdir()
    for name in ("tasks", "providers", "harness"):
        (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.fixture(scope="module")
def expected(place: Path) -> Record:
    found = grades(place, {"kind": "local"})
    assert len(found) == 3 * len(TASKS)
    assert {record[0] for record in found.values()} == {"resolved", "unresolved"}
    return found


@pytest.mark.registry
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_bubblewrap_gives_the_grades_of_local(expected: Record, place: Path, require: Callable[..., None]) -> None:
    require("bubblewrap")
    assert grades(place, {"kind": "bubblewrap"}) == expected


@pytest.mark.registry
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("docker_engine")
def test_docker_gives_the_grades_of_local(expected: Record, place: Path) -> None:
    assert grades(place, {"kind": "docker", "image": "pairtrial/host:test"}) == expected
