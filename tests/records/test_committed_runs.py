"""What is committed as evidence is re-scored and verified byte by byte, and the README shows nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pairtrial.prereg.lock import load_lock

ROOT = Path(__file__).parents[2]
RUNS = sorted(path.parent for path in (ROOT / "runs").glob("*/*/lock.json") if path.parent.parent.name != "demo")


def pairtrial(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pairtrial", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=110)


def test_there_is_a_committed_run() -> None:
    assert [path.parent.name for path in RUNS] == ["bm25-search"]


@pytest.mark.parametrize("run", RUNS, ids=lambda path: path.parent.name)
def test_scored_again_the_bytes_are_the_same(run: Path) -> None:
    done = pairtrial("score", run, "--check")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("run", RUNS, ids=lambda path: path.parent.name)
def test_every_receipt_file_and_grade_verifies(run: Path) -> None:
    done = pairtrial("verify", run, "--pack", "tasks/core")
    assert done.returncode == 0, done.stderr
    assert re.search(r"\b0 problem\(s\)", done.stdout)


@pytest.mark.parametrize("run", RUNS, ids=lambda path: path.parent.name)
def test_the_readme_shows_this_run_and_is_current(run: Path) -> None:
    done = pairtrial("publish", run, "--readme", "README.md", "--check")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("run", RUNS, ids=lambda path: path.parent.name)
def test_the_lock_of_the_run_is_the_registered_one(run: Path) -> None:
    assert (run / "lock.json").read_bytes() == (ROOT / "prereg" / f"{run.parent.name}.lock.json").read_bytes()


def test_the_demo_is_frozen_as_it_stands() -> None:
    """`make demo` must not refuse to run: its lock is that of today's tasks, provider, agent and grader."""
    from pairtrial.cli.experiment import quick_identities, read_experiment

    path = ROOT / "prereg" / "demo.yaml"
    lock = load_lock(path.with_name("demo.lock.json"))
    today = quick_identities(*read_experiment(path))
    stale = {name for name in today if today[name] != lock.identities.get(name)}
    assert stale == set(), "run: pairtrial freeze --replace prereg/demo.yaml"


def test_no_record_names_this_machine_or_holds_a_key() -> None:
    """Committed text files: no absolute path of a home or a work folder, no token."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    pattern = re.compile(
        rb"(?<![\w.])/(?:home/(?!agent\b)|root/|Users/)[a-z]|sk-[A-Za-z0-9]{20,}|Bearer [A-Za-z0-9]{20,}"
    )
    for name in listed:
        path = ROOT / name
        if name.startswith("tests/") or path.is_symlink() or not path.is_file() or path.suffix in (".png", ".zst"):
            continue
        found = pattern.search(path.read_bytes())
        assert found is None, f"{name}: {found.group()!r}"
