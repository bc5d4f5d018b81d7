"""go test and cargo test: a driver of ours runs the tool; the tests are processes of their own."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Any

from pairtrial.grading.frameworks.base import Canary, Invocation, Suite
from pairtrial.grading.frameworks.parts import word
from pairtrial.grading.frameworks.python import BOOT, gift_for, without_path

_PACKAGE = re.compile(rb"^package[ \t]+(\w+)", re.MULTILINE)
_MODULE = re.compile(rb"^module[ \t]+\"?([^\s\"]+)", re.MULTILINE)
_CRATE = re.compile(r"^\s*\[package\].*?^\s*name\s*=\s*\"([^\"]+)\"", re.MULTILINE | re.DOTALL)


class _Compiled:
    """What both have in common."""

    name: str
    driver: str
    healthy_exits = frozenset({1})
    argv = ("python", "-P", "-c", BOOT, "{report}", "{gift}")

    def file_of(self, test_id: str) -> str | None:
        return None

    def canaries(self, suite: Suite) -> tuple[dict[str, bytes], tuple[Canary, ...]]:
        """Files to lay, and what they must give."""
        raise NotImplementedError

    def settings(self, suite: Suite) -> dict[str, Any]:
        """What the driver reads."""
        return {"args": list(suite.command[2:])}

    def invocation(self, suite: Suite) -> Invocation:
        key = secrets.token_bytes(32)
        laid, canaries = self.canaries(suite)
        config = {"key": key.hex(), "environ": {}, **self.settings(suite)}
        gift = gift_for(self.driver, config)
        return Invocation(self.argv, without_path(suite.env), gift, laid, canaries, key)


class GoTest(_Compiled):
    """``go test``: an id is the import path of the package, ``::`` and the test's name with its subtests."""

    name = "go-test"
    driver = "go_driver"

    def canaries(self, suite: Suite) -> tuple[dict[str, bytes], tuple[Canary, ...]]:
        """Two tests in every package with a required test: one process each, and a forger may own only one of them."""
        module = _MODULE.search((suite.tree / "go.mod").read_bytes())
        root = module[1].decode() if module else ""
        laid: dict[str, bytes] = {}
        canaries: list[Canary] = []
        for package in sorted({item.partition("::")[0] for item in suite.required}):
            folder = package.removeprefix(root).strip("/")
            clause = _package_clause(suite.tree / folder)
            stem, good, bad = word(), word().title(), word().title()
            text = (
                f'package {clause}\n\nimport "testing"\n\n'
                f"func Test{good}(t *testing.T) {{}}\n\n"
                f'func Test{bad}(t *testing.T) {{ t.Fatal("must fail") }}\n'
            )
            laid[f"{folder}/zz_{stem}_test.go".lstrip("/")] = text.encode()
            canaries += [Canary(f"{package}::Test{good}", True), Canary(f"{package}::Test{bad}", False)]
        return laid, tuple(canaries)


class CargoTest(_Compiled):
    """``cargo test``: an id is package, kind and name of the target, ``::`` and the test's path."""

    name = "cargo-test"
    driver = "cargo_driver"

    def settings(self, suite: Suite) -> dict[str, Any]:
        arguments = list(suite.command[2:])
        return {"args": [item for item in arguments if item != "--no-doc"], "doctests": "--no-doc" not in arguments}

    def canaries(self, suite: Suite) -> tuple[dict[str, bytes], tuple[Canary, ...]]:
        """An integration test in every package with a required test."""
        crates = _crates(suite.tree)
        laid: dict[str, bytes] = {}
        canaries: list[Canary] = []
        for package in sorted({item.partition(" ")[0] for item in suite.required}):
            if package not in crates:
                continue
            stem, good, bad = word(), word(), word()
            text = f'#[test]\nfn {good}() {{}}\n\n#[test]\nfn {bad}() {{\n    panic!("must fail");\n}}\n'
            laid[f"{crates[package]}tests/{stem}.rs"] = text.encode()
            name = f"{package} test:{stem}"
            canaries += [Canary(f"{name}::{good}", True), Canary(f"{name}::{bad}", False)]
        return laid, tuple(canaries)


def _package_clause(folder: Path) -> str:
    for file in sorted(folder.glob("*_test.go")):
        if found := _PACKAGE.search(file.read_bytes()):
            return found[1].decode()
    return folder.name


def _crates(tree: Path) -> dict[str, str]:
    """Folder of every package of the workspace, by name."""
    found: dict[str, str] = {}
    for manifest in sorted(tree.rglob("Cargo.toml")):
        name = _CRATE.search(manifest.read_text(encoding="utf-8", errors="replace"))
        if name and "target" not in manifest.relative_to(tree).parts:
            folder = manifest.parent.relative_to(tree).as_posix()
            found[name[1]] = "" if folder == "." else folder + "/"
    return found
