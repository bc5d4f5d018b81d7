"""pytest and unittest: reporters of ours in the process of the tests, loaded before anything of the workspace."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from pairtrial.grading.frameworks.base import Canary, Invocation, Suite
from pairtrial.grading.frameworks.parts import program, word

BOOT = """\
import json, os, sys, types
with os.fdopen(int(sys.argv[2]), "rb") as pipe:
    gift = json.load(pipe)
for name, source in gift["modules"]:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, "<" + name + ">", "exec"), vars(module))
for name, source in gift["modules"]:
    del sys.modules[name]
sys.exit(module.main(gift["config"], int(sys.argv[1])))
"""
"""The modules are there by name only while they are read; code under test does not find them with an import."""

PYTEST_ARGUMENTS = (
    "--maxfail=0",
    "--continue-on-collection-errors",
    "--tb=line",
    "--color=no",
    "-p",
    "no:cacheprovider",
)
"""Added after the target's own arguments: a failure must not hide the tests behind it."""


def gift_for(reporter: str, config: Mapping[str, Any]) -> str:
    """What the first program reads: channel, reporter, settings."""
    package = "pairtrial.grading.reporters"
    modules = [[f"{package}.{name}", program(f"{name}.py")] for name in ("channel", "written", reporter)]
    return json.dumps({"modules": modules, "config": dict(config)})


def python_settings(suite: Suite, key: bytes) -> dict[str, Any]:
    """Settings that every Python reporter reads."""
    path = suite.env.get("PYTHONPATH")
    return {
        "key": key.hex(),
        "seed": secrets.token_hex(16),
        "pythonpath": [folder for folder in (path or "").split(":") if folder],
        "environ": {"PYTHONPATH": path} if path is not None else {},
        "own": sorted(suite.own),
        "decoy_files": sorted({item.partition("::")[0] for item in suite.required}),
    }


def without_path(env: Mapping[str, str]) -> dict[str, str]:
    """The environment before the workspace may be imported from."""
    return {name: value for name, value in env.items() if name != "PYTHONPATH"}


def canary_case(must_pass: str, must_fail: str, case: str) -> bytes:
    """A unittest class: collected whatever naming the target's settings ask for."""
    return (
        "import unittest\n\n\n"
        f"class {case}(unittest.TestCase):\n"
        f"    def test_{must_pass}(self):\n        self.assertEqual(1 + 1, 2)\n\n"
        f"    def test_{must_fail}(self):\n        self.assertEqual(1 + 1, 3)\n"
    ).encode()


class _Python:
    """What both have in common."""

    healthy_exits = frozenset({1})
    argv = ("python", "-P", "-c", BOOT, "{report}", "{gift}")

    def file_of(self, test_id: str) -> str | None:
        return test_id.partition("::")[0]


class Pytest(_Python):
    """pytest, unittest classes included."""

    name = "pytest"

    def invocation(self, suite: Suite) -> Invocation:
        folder, case, good, bad = word(), word().title(), word(), word()
        file = f"{folder}/test_{folder}.py"
        canaries = (Canary(f"{file}::{case}::test_{good}", True), Canary(f"{file}::{case}::test_{bad}", False))
        key = secrets.token_bytes(32)
        config = {
            **python_settings(suite, key),
            "args": [*_after(suite.command, "pytest"), *PYTEST_ARGUMENTS, file],
            "canary": {"pass": canaries[0].test_id, "fail": canaries[1].test_id},
        }
        gift = gift_for("pytest_reporter", config)
        laid = {file: canary_case(good, bad, case)}
        return Invocation(self.argv, without_path(suite.env), gift, laid, canaries, key)


class Unittest(_Python):
    """``python -m unittest``."""

    name = "unittest"

    def invocation(self, suite: Suite) -> Invocation:
        folder, case, good, bad = word(), word().title(), word(), word()
        file = f"{folder}/test_{folder}.py"
        canaries = (Canary(f"{file}::{case}::test_{good}", True), Canary(f"{file}::{case}::test_{bad}", False))
        key = secrets.token_bytes(32)
        config = {
            **python_settings(suite, key),
            "args": list(_after(suite.command, "unittest")),
            "canary": {"file": file, "case": case, "pass": f"test_{good}", "fail": f"test_{bad}"},
        }
        gift = gift_for("unittest_reporter", config)
        laid = {file: canary_case(good, bad, case)}
        return Invocation(self.argv, without_path(suite.env), gift, laid, canaries, key)


def _after(command: Sequence[str], runner: str) -> Sequence[str]:
    """What follows ``-m runner``."""
    return command[command.index(runner) + 1 :]
