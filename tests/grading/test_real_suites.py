"""Every framework on a real upstream suite: as many tests as it has, each with an id of its own, the same ids twice.

Nothing of the packages is kept; names, versions and hashes are all that stands here.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from grading_cases import Case, make_case, tool_environment

from pairtrial.grading.frameworks.base import Outcome, Run
from pairtrial.grading.observe import run_suite

pytestmark = [pytest.mark.anyio, pytest.mark.registry, pytest.mark.slow, pytest.mark.timeout(900)]
Require = Callable[..., None]


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


SUITES = {
    "unittest": Suite(
        "unittest", "cachetools==8.0.2", "30ac523adfc118b51d2b2e7bad8a0ddb31370dfe2700c7f10ca224f36ccf81e0", 476,
        "tests/test_lru.py::LRUCacheTest::test_lru", args=("discover", "-s", "tests", "-t", "."), pythonpath=("src",),
    ),
    "pytest": Suite(
        "pytest", "sqlparse==0.6.1", "ca722573f848ff2d30e40ea30f53a104b7dea7635ea9285891263eb2c58fb6e7", 537,
        "tests/test_parse.py::test_parse_tokenize", others=3,
    ),
    "vitest": Suite(
        "vitest", "css-what@8.0.0", "1eccce8f4d523832253a082815495f823b8621d0aab6a2eea5853d0d37eb4417", 936,
        "src/parse.spec.ts::x", paths=("src",), packages=("vitest@4.0.18",), programs=("node",),
    ),
    "node-test": Suite(
        "node-test", "find-my-way@9.10.2", "85eba7364db72f208f2cc5f9fa805811fd1b8207d1c75dec2985439a9276bbd5", 563,
        "test/find.test.js::x", paths=("test/",), programs=("node",),
        packages=("proxyquire@2.1.3", "rfdc@1.4.1", "fast-deep-equal@3.1.3", "fast-querystring@1.1.2",
                  "safe-regex2@5.0.0"),
    ),
    "mocha": Suite(
        "mocha", "fraction.js@5.3.4", "27e23d8e5ad285541e13e4befc51d39739354abe1f71a348de08a1c88a54a124", 314,
        "tests/fraction.test.js::x", packages=("mocha@11.8.0",), programs=("node",),
    ),
    "go-test": Suite(
        "go-test", "golang-github-blang-semver-dev", "7687d85fbfd2bc3cbb3f18a15bb111f6aa7621a57ca773f600173d0131e0dbbf",
        74, "github.com/blang/semver::TestString", paths=("./...",), programs=("go",),
    ),
    "cargo-test": Suite(
        "cargo-test", "librust-semver-dev", "bf3719b7aac4b7f16f0d68a7037306dbc1532758fe7a5dea01254e85cecaca8c", 35,
        "semver test:test_version::test_parse", args=("--offline",), programs=("cargo", "rustc", "rustdoc"),
    ),
}  # fmt: skip


@pytest.fixture(params=sorted(SUITES))
def suite(request: pytest.FixtureRequest, require: Require) -> Suite:
    found = SUITES[request.param]
    for name in found.programs[:1]:
        require(name)
    if found.package.startswith(("golang-", "librust-")):
        require("dpkg")
    return found


@pytest.fixture
def tree(suite: Suite, tmp_path: Path) -> Path:
    """The unpacked package, its hash checked."""
    target = tmp_path / "tree"
    download = tmp_path / "download"
    download.mkdir()
    name, _, version = re.split("(==|@)", suite.package + "@")[:3]
    if "==" in suite.package:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", suite.package]
    elif "@" in suite.package:
        command = ["npm", "pack", "--silent", suite.package]
    else:
        command = ["apt-get", "download", suite.package]
    subprocess.run(command, cwd=download, check=True, capture_output=True)
    archive = next(item for item in download.iterdir() if item.is_file())
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == suite.sha256, (name, version)
    if archive.suffix == ".deb":
        subprocess.run(["dpkg", "-x", archive, download / "x"], check=True)
        manifest = next(iter([*download.rglob("go.mod"), *download.rglob("Cargo.toml")]))
        shutil.copytree(manifest.parent, target)
        if manifest.name == "Cargo.toml":
            manifest = target / "Cargo.toml"
            text = manifest.read_text()
            manifest.write_text(re.sub(r"\[dependencies\.serde\][^\[]*", "", text))
    else:
        with tarfile.open(archive) as bundle:
            bundle.extractall(download / "x", filter="data")
        shutil.copytree(next(iter((download / "x").iterdir())), target)
    return target


@pytest.fixture
def case(suite: Suite, tree: Path, tmp_path: Path) -> Case:
    environment = tmp_path / "environment"
    if suite.framework == "pytest":
        environment = Path(sys.prefix)
    else:
        modules = None
        if suite.packages:
            root = tmp_path / "npm"
            root.mkdir()
            (root / "package.json").write_text('{"name": "x", "version": "1.0.0", "private": true}\n')
            command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *suite.packages]
            subprocess.run(command, cwd=root, check=True, capture_output=True)
            modules = root / "node_modules"
        tool_environment(environment, {name: _program(name) for name in suite.programs}, modules)
    files = {path.relative_to(tree).as_posix(): path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    return make_case(
        tmp_path,
        files,
        fail_to_pass=[suite.known],
        pass_to_pass=[],
        args=suite.args if suite.framework != "pytest" else ("-o", "addopts=", "--disable-plugin-autoload"),
        paths=suite.paths,
        pythonpath=suite.pythonpath,
        framework=suite.framework,
        defect_file="nothing.py",
        environment=environment,
    )


def _program(name: str) -> str:
    if name in ("cargo", "rustc", "rustdoc") and shutil.which("rustup"):
        return subprocess.run(["rustup", "which", name], capture_output=True, text=True, check=True).stdout.strip()
    return shutil.which(name) or name


async def _run(case: Case, scratch: Path) -> tuple[Run, bytes]:
    sandbox = case.sandbox(scratch)
    await sandbox.prepare()
    try:
        seen = await run_suite(case.prepared, b"", sandbox, timeout_s=400, label="work")
        return seen.run, seen.log
    finally:
        await sandbox.destroy()


def _theirs(run: Run) -> dict[str, Outcome]:
    ours = {canary.test_id for canary in run.canaries}
    rows = [(name, outcome) for name, outcome in run.tests if name not in ours]
    assert [name for name, count in Counter(name for name, _ in rows).items() if count > 1] == []
    return dict(rows)


async def test_real_suite(suite: Suite, case: Case, tmp_path: Path) -> None:
    (tmp_path / "another place").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "another place")
    first, log = await _run(case, tmp_path / "scratch")
    tests = _theirs(first)
    passed = [name for name, outcome in tests.items() if outcome is Outcome.PASSED]
    assert first.ended and first.chained and first.seal == "whole", log.decode(errors="replace")
    assert (len(passed), len(tests) - len(passed)) == (suite.total, suite.others), log.decode(errors="replace")[-3000:]
    assert not [name for name in tests if name.startswith("/") or str(tmp_path) in name]
    second, _ = await _run(case, tmp_path / "link")
    assert _theirs(second) == tests
