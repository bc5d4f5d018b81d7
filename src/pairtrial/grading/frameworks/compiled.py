"""go test and cargo test: a driver of ours runs the tool; the tests are processes of their own."""

from __future__ import annotations

import re
import secrets
import tomllib
from pathlib import Path, PurePosixPath
from string import Template
from typing import Any, NamedTuple

from pairtrial.grading.frameworks.base import Canary, Invocation, Suite
from pairtrial.grading.frameworks.parts import program, two_numbers, word
from pairtrial.grading.frameworks.python import BOOT, gift_for, without_path

_PACKAGE = re.compile(rb"^package[ \t]+(\w+)", re.MULTILINE)
_MODULE = re.compile(rb"^module[ \t]+\"?([^\s\"]+)", re.MULTILINE)


class _Compiled:
    """What both have in common."""

    name: str
    driver: str
    healthy_exits = frozenset({1})
    argv = ("python", "-P", "-c", BOOT, "{report}", "{gift}")

    def file_of(self, test_id: str) -> str | None:
        return None

    def canaries(self, suite: Suite, seat: str) -> tuple[dict[str, bytes], tuple[Canary, ...]]:
        """Files to lay, and what they must give. The one that must pass asks whether its process is still where the
        driver started it, which it finds in the variable ``seat``."""
        raise NotImplementedError

    def settings(self, suite: Suite) -> dict[str, Any]:
        """What the driver reads."""
        return {"args": list(suite.command[2:])}

    def invocation(self, suite: Suite) -> Invocation:
        key, seat = secrets.token_bytes(32), word().upper()
        laid, canaries = self.canaries(suite, seat)
        config = {"key": key.hex(), "environ": {}, "seat": seat, **self.settings(suite)}
        gift = gift_for(self.driver, config)
        return Invocation(self.argv, without_path(suite.env), gift, laid, canaries, key)


class GoTest(_Compiled):
    """``go test``: an id is the import path of the package, ``::`` and the test's name with its subtests."""

    name = "go-test"
    driver = "go_driver"

    def canaries(self, suite: Suite, seat: str) -> tuple[dict[str, bytes], tuple[Canary, ...]]:
        """Two tests in every package with a required test: one process each, and a forger may own only one of them."""
        module = _MODULE.search((suite.tree / "go.mod").read_bytes())
        root = module[1].decode() if module else ""
        laid: dict[str, bytes] = {}
        canaries: list[Canary] = []
        for package in sorted({item.partition("::")[0] for item in suite.required}):
            folder = package.removeprefix(root).strip("/")
            good, bad = word().title(), word().title()
            names = {name: word() for name in ("os", "strconv", "testing", "seat")}
            text = Template(program("canary.go")).substitute(
                names, package=_package_clause(suite.tree / folder), good=good, bad=bad, variable=seat, **two_numbers()
            )
            laid[f"{folder}/zz_{word()}_test.go".lstrip("/")] = text.encode()
            canaries += [Canary(f"{package}::Test{good}", True), Canary(f"{package}::Test{bad}", False)]
        return laid, tuple(canaries)


class CargoTest(_Compiled):
    """``cargo test``: an id is package, kind and name of the target, ``::`` and the test's path."""

    name = "cargo-test"
    driver = "cargo_driver"

    def settings(self, suite: Suite) -> dict[str, Any]:
        arguments = list(suite.command[2:])
        return {"args": [item for item in arguments if item != "--no-doc"], "doctests": "--no-doc" not in arguments}

    def canaries(self, suite: Suite, seat: str) -> tuple[dict[str, bytes], tuple[Canary, ...]]:
        """Two tests at the end of every binary with a required test, where they see what its own tests see; for
        documentation tests, an integration test in the package, because they are no binary that could be asked."""
        crates = _crates(suite.tree)
        laid: dict[str, bytes] = {}
        canaries: list[Canary] = []
        for target in sorted({item.partition("::")[0] for item in suite.required}):
            package, _, binary = target.partition(" ")
            if package not in crates:
                continue
            good, bad, file = word(), word(), word()
            names = {"std": word(), "good": good, "bad": bad, "variable": seat}
            text = Template(program("canary.rs")).substitute(names, **two_numbers()).encode()
            root = crates[package].root(binary)
            if root is None:
                laid[f"{crates[package].folder}tests/{file}.rs"] = text
                target = f"{package} test:{file}"
            else:
                laid[root] = (suite.tree / root).read_bytes() + b"\n" + text
            canaries += [Canary(f"{target}::{name}", name == good) for name in (good, bad)]
        return laid, tuple(canaries)


def _package_clause(folder: Path) -> str:
    for file in sorted(folder.glob("*_test.go")):
        if found := _PACKAGE.search(file.read_bytes()):
            return found[1].decode()
    return folder.name


class _Crate(NamedTuple):
    """A package of a cargo workspace."""

    tree: Path
    folder: str
    """Relative to the workspace, with a final slash unless empty."""
    manifest: dict[str, Any]

    def root(self, target: str) -> str | None:
        """Root file, relative to the workspace, of a binary such as ``lib:name`` or ``test:name``; None if it has none.

        As cargo finds it (the Cargo book, "Cargo Targets"): ``path`` in the manifest, else the usual places.
        """
        kind, _, name = target.partition(":")
        if kind == "lib":
            table = self.manifest.get("lib", {})
            places = [table["path"]] if "path" in table else ["src/lib.rs"]
        else:
            rows = [row for row in self.manifest.get(kind, []) if row.get("name") == name and "path" in row]
            base = {"bin": "src/bin", "test": "tests", "example": "examples", "bench": "benches"}.get(kind, "")
            usual = [f"{base}/{name}.rs", f"{base}/{name}/main.rs", *(["src/main.rs"] if kind == "bin" else [])]
            places = [row["path"] for row in rows] or (usual if base else [])
        for place in places:
            path = PurePosixPath(self.folder) / place
            if ".." not in path.parts and (self.tree / path).is_file() and not (self.tree / path).is_symlink():
                return path.as_posix()
        return None


def _crates(tree: Path) -> dict[str, _Crate]:
    """Every package of the workspace, by name."""
    found: dict[str, _Crate] = {}
    for file in sorted(tree.rglob("Cargo.toml")):
        if "target" in file.relative_to(tree).parts:
            continue
        try:
            manifest = tomllib.loads(file.read_text(encoding="utf-8", errors="replace"))
            name = str(manifest["package"]["name"])
        except (tomllib.TOMLDecodeError, KeyError, TypeError):
            continue
        folder = file.parent.relative_to(tree).as_posix()
        found[name] = _Crate(tree, "" if folder == "." else folder + "/", manifest)
    return found
