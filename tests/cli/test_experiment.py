"""The whole product on two real tasks: register, run, kill, go on, report – with the embedded agent and the real server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from pairtrial.core.errors import ExitCode

ROOT = Path(__file__).parents[2]
TASKS = ("toolz-join-unmatched-left", "semver-match-strict-comparison")
pytestmark = pytest.mark.registry


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "pairtrial", *map(str, arguments)]


def pairtrial(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command(*arguments), cwd=folder, capture_output=True, text=True, check=False, timeout=110)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with two tasks, the provider, the prompt and a small plan, not frozen yet."""
    skip = shutil.ignore_patterns("__pycache__")
    for task in TASKS:
        shutil.copytree(ROOT / "tasks" / "core" / task, tmp_path / "tasks" / "core" / task, ignore=skip)
    for target in ("toolz", "semver"):
        shutil.copytree(ROOT / "tasks/core/targets" / target, tmp_path / "tasks/core/targets" / target, ignore=skip)
    pack = {"schema": "pairtrial.pack.v1", "id": "core", "title": "Two tasks", "tasks": list(TASKS)}
    (tmp_path / "tasks" / "core" / "pack.yaml").write_text(yaml.safe_dump(pack))
    shutil.copy(ROOT / "tasks/core/qualification.json", tmp_path / "tasks" / "core")
    shutil.copytree(ROOT / "providers" / "bm25", tmp_path / "providers" / "bm25", ignore=skip)
    shutil.copytree(ROOT / "harness" / "prompts", tmp_path / "harness" / "prompts")
    plan = yaml.safe_load((ROOT / "prereg" / "demo.yaml").read_text())
    plan["tasks"] = {"pack": plan["tasks"]["pack"], "ids": list(TASKS)}
    plan["agent"]["limits"]["turns"] = 40
    (tmp_path / "prereg").mkdir()
    (tmp_path / "prereg" / "demo.yaml").write_text(yaml.safe_dump(plan))
    git(tmp_path, "init", "-q")
    return tmp_path


def register(project: Path) -> str:
    done = pairtrial(project, "freeze", "prereg/demo.yaml")
    assert done.returncode == 0, done.stderr
    git(project, "add", "-A")
    git(project, "commit", "-qm", "register")
    return done.stdout.strip()


def cells(project: Path) -> dict[str, bytes]:
    """Receipt of every cell and attempt."""
    return {
        str(path.parent.relative_to(project / "runs" / "demo")): path.read_bytes()
        for path in (project / "runs" / "demo").glob("*/*/[0-9]*/receipt.json")  # a kill may leave .building-1
    }


@pytest.mark.slow
def test_registered_run_killed_resumed_and_reported(project: Path) -> None:
    plan_id = register(project)
    assert pairtrial(project, "freeze", "prereg/demo.yaml").stdout.strip() == plan_id

    process = subprocess.Popen(command("run", "prereg/demo.yaml"), cwd=project, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not cells(project) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = cells(project)
    assert 1 <= len(kept) < 6

    done = pairtrial(project, "run", "prereg/demo.yaml")
    assert done.returncode == 0, done.stderr
    after = cells(project)
    arms = ("control", "bm25", "aa")
    assert sorted(after) == sorted(f"{plan_id[:12]}/{task}.{arm}.r1/1" for task in TASKS for arm in arms)
    assert {name: after[name] for name in kept} == kept  # no earlier record was changed
    assert {json.loads(data)["status"] for data in after.values()} <= {"resolved", "unresolved"}

    again = pairtrial(project, "run", "prereg/demo.yaml")
    assert again.returncode == 0
    assert cells(project) == after  # a second run does no work

    report = pairtrial(project, "report", "prereg/demo.yaml")
    assert report.returncode == 0
    lines = [line for line in report.stdout.splitlines() if line]
    assert lines[0].startswith("Descriptive only (no language model took part; feasibility stage")
    assert "A/A flip rate (aa)" in report.stdout
    assert lines[-1] == f"report: runs/demo/{plan_id[:12]}/report.md"
    text = (project / "runs" / "demo" / plan_id[:12] / "report.md").read_text()
    assert "says nothing about language models" in text
    assert "1 interrupted" in text or "0 interrupted" in text

    verified = pairtrial(project, "verify", "prereg/demo.yaml", "--pack", "tasks/core")
    assert verified.returncode == 0, verified.stderr
    assert "6 receipts, 6 grades recomputed from their test reports, 0 problem(s)" in verified.stdout


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done_and_leaves_nothing_behind(project: Path) -> None:
    register(project)
    scratch = project / "scratch"
    scratch.mkdir()
    process = subprocess.Popen(
        command("run", "prereg/demo.yaml", "--scratch", "scratch"), cwd=project, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not cells(project) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED, errors
    assert errors.splitlines()[-1].startswith("interrupted: finished rollouts are kept")
    assert "Traceback" not in errors
    assert list(scratch.iterdir()) == []
    assert not list((project / "runs").glob("*/*/*/.building-*"))
    assert all(json.loads(data)["status"] in ("resolved", "unresolved") for data in cells(project).values())


def test_one_changed_byte_after_freezing_is_refused_by_name(project: Path) -> None:
    register(project)
    changes = {
        f"tasks/core/{TASKS[0]}/prompt.md": f"task.{TASKS[0]}.definition",
        "tasks/core/targets/semver/baseline.txt": f"task.{TASKS[1]}.definition",
        "providers/bm25/server.py": "arm.bm25.provider",
        "harness/prompts/repair.md": "prompt",
        "prereg/demo.yaml": "plan.file",
    }
    for name, identity in changes.items():
        path = project / name
        before = path.read_bytes()
        text = before.rstrip(b"\n")
        path.write_bytes(before + b"\n" if not name.endswith("baseline.txt") else text[: text.rindex(b"\n") + 1])
        done = pairtrial(project, "run", "prereg/demo.yaml")
        assert done.returncode == ExitCode.REFUSED, name
        assert f"  {identity}: frozen as " in done.stderr, (name, done.stderr)
        assert not (project / "runs").exists()
        path.write_bytes(before)


def test_a_lock_that_is_not_committed_is_refused(project: Path) -> None:
    pairtrial(project, "freeze", "prereg/demo.yaml")
    done = pairtrial(project, "run", "prereg/demo.yaml")
    assert done.returncode == ExitCode.REFUSED
    assert "not committed as it stands" in done.stderr
    assert not (project / "runs").exists()


@pytest.mark.slow
def test_a_server_that_exits_at_start_makes_no_zero_anywhere(project: Path) -> None:
    """Its rollouts are invalid, their blocks are left out in all arms and counted."""
    (project / "providers" / "bm25" / "server.py").write_text("raise SystemExit(1)\n")
    register(project)
    done = pairtrial(project, "run", "prereg/demo.yaml")
    assert done.returncode == 0, done.stderr
    score = json.loads(pairtrial(project, "score", "prereg/demo.yaml", "--json").stdout)
    treated = next(arm for arm in score["arms"] if arm["arm"] == "bm25")
    assert treated["invalid"] == {"invalid_environment": 2}
    assert treated["graded"] == treated["resolved"] == 0
    assert score["blocks_complete"] == 0
    assert [item["statuses"]["bm25"] for item in score["excluded"]] == ["invalid_environment"] * 2
    assert score["comparisons"][0]["delta"] is None
    assert score["comparisons"][0]["p"] is None
    assert score["claims"][0]["kind"] == "invalid"
    summary = pairtrial(project, "report", "prereg/demo.yaml").stdout
    assert summary.startswith("Invalid (")
    assert os.environ.get("HOME", "/nowhere") + "/" not in summary


def test_an_amendment_is_made_in_the_open(project: Path) -> None:
    first = register(project)
    plan = project / "prereg" / "demo.yaml"
    plan.write_text(plan.read_text().replace("max_aa_flip_rate: 0.4", "max_aa_flip_rate: 0.3"))
    refused = pairtrial(project, "freeze", "prereg/demo.yaml")
    assert refused.returncode == ExitCode.REFUSED
    assert "frozen already as" in refused.stderr
    done = pairtrial(
        project, "amend", "prereg/demo.yaml", "--reason", "The limit was too generous.", "--bias", "unknown"
    )
    assert done.returncode == 0, done.stderr
    assert "changed: plan.analysis.max_aa_flip_rate: 0.4 → 0.3" in done.stderr
    archived = project / "prereg" / "amended" / f"demo.{first[:12]}.lock.json"
    compared = pairtrial(project, "diff", archived, "prereg/demo.lock.json")
    assert compared.returncode == ExitCode.REFUSED
    assert "plan.analysis.max_aa_flip_rate: 0.4 → 0.3" in compared.stdout
    again = pairtrial(project, "freeze", "prereg/demo.yaml")
    assert again.stdout.strip() == done.stdout.strip()  # freezing keeps the amendments
