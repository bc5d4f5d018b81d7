"""Real packages from the registries for grading tests: fetched, hash-checked, made into a case. Nothing is kept."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from grading_cases import ARGS, Case, make_case, tool_environment
from parts import real_program

from pairtrial.grading.frameworks.base import Outcome, Run
from pairtrial.grading.observe import run_suite


@dataclass(frozen=True)
class Suite:
    """A package, how its suite runs, and what is known of it."""

    framework: str
    package: str
    sha256: str
    total: int
    """Tests that pass."""
    known: str
    """One id, for the decoys and canaries."""
    args: tuple[str, ...] = ()
    paths: tuple[str, ...] = ("tests",)
    packages: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    pythonpath: tuple[str, ...] = (".",)
    others: int = 0
    """Tests that do not plainly pass."""


def fetch(suite: Suite, folder: Path) -> Path:
    """The unpacked package in a new folder, its hash checked."""
    target, download = folder / "tree", folder / "download"
    download.mkdir()
    if "==" in suite.package:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", suite.package]
    elif "@" in suite.package:
        command = ["npm", "pack", "--silent", suite.package]
    else:
        command = ["apt-get", "download", suite.package]
    subprocess.run(command, cwd=download, check=True, capture_output=True)
    archive = next(item for item in download.iterdir() if item.is_file())
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == suite.sha256, suite.package
    if archive.suffix == ".deb":
        subprocess.run(["dpkg", "-x", os.fspath(archive), os.fspath(download / "x")], check=True)
        manifest = next(iter([*download.rglob("go.mod"), *download.rglob("Cargo.toml")]))
        shutil.copytree(manifest.parent, target)
        if manifest.name == "Cargo.toml":
            text = (target / "Cargo.toml").read_text()
            (target / "Cargo.toml").write_text(re.sub(r"\[dependencies\.serde\][^\[]*", "", text))
    else:
        with tarfile.open(archive) as bundle:
            bundle.extractall(download / "x", filter="data")
        shutil.copytree(next(iter((download / "x").iterdir())), target)
    return target


def environment_for(suite: Suite, folder: Path) -> Path:
    """An environment with what the suite needs."""
    place = folder / "environment"
    if suite.framework == "pytest":
        uv = [sys.executable, "-m", "uv"]
        subprocess.run(
            [*uv, "venv", "-q", "--python", sys.executable, os.fspath(place)], check=True, capture_output=True
        )
        packages = ["pytest==9.2.0", *suite.packages]
        command = [*uv, "pip", "install", "-q", "--python", os.fspath(place / "bin" / "python"), *packages]
        subprocess.run(command, check=True, capture_output=True)
        return place
    modules = None
    if suite.packages:
        root = folder / "npm"
        root.mkdir()
        (root / "package.json").write_text('{"name": "x", "version": "1.0.0", "private": true}\n')
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *suite.packages]
        subprocess.run(command, cwd=root, check=True, capture_output=True)
        modules = root / "node_modules"
    return tool_environment(place, {name: real_program(name) for name in suite.programs}, modules)


def case_for(suite: Suite, folder: Path, *, required: list[str] | None = None) -> Case:
    """The package as a case without any work to grade."""
    tree = fetch(suite, folder)
    files = {path.relative_to(tree).as_posix(): path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    return make_case(
        folder,
        files,
        fail_to_pass=[suite.known],
        pass_to_pass=required or [],
        args=suite.args if suite.framework != "pytest" else (*ARGS[:2], *suite.args),
        paths=suite.paths,
        pythonpath=suite.pythonpath,
        framework=suite.framework,
        defect_file="nothing.py",
        environment=environment_for(suite, folder),
    )


async def observe(case: Case, scratch: Path) -> tuple[Run, bytes]:
    """One run of the suite: what the reporter said, and what was printed."""
    sandbox = case.sandbox(scratch)
    await sandbox.prepare()
    try:
        seen = await run_suite(case.prepared, b"", sandbox, timeout_s=400, label="work")
        return seen.run, seen.log
    finally:
        await sandbox.destroy()


def theirs(run: Run) -> dict[str, Outcome]:
    """The target's own tests; fails when two share an id."""
    ours = {canary.test_id for canary in run.canaries}
    rows = [(name, outcome) for name, outcome in run.tests if name not in ours]
    assert [name for name, count in Counter(name for name, _ in rows).items() if count > 1] == []
    return dict(rows)


def relative_to_machine(run: Run, root: Path) -> list[str]:
    """Ids that hold a path of this machine."""
    return [name for name in theirs(run) if name.startswith("/") or os.fspath(root) in name]
