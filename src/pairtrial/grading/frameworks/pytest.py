"""pytest (unittest classes included), through a plugin of ours."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from pairtrial.grading.frameworks.base import Canary, Invocation, Outcome, Run
from pairtrial.grading.frameworks.channel import checked_lines
from pairtrial.tasks.workspace import Prepared, test_command

BOOT = """\
import json, os, sys
with os.fdopen(int(sys.argv[2]), "rb") as pipe:
    gift = json.load(pipe)
scope = {"__name__": "pairtrial_reporter"}
exec(compile(gift["source"], "<reporter>", "exec"), scope)
sys.exit(scope["main"](gift["config"], int(sys.argv[1])))
"""

OURS = ("--maxfail=0", "--continue-on-collection-errors", "--tb=line", "--color=no", "-p", "no:cacheprovider")
"""Added after the target's own arguments: a failure must not hide the tests behind it."""


def outcome_of(code: str) -> Outcome:
    """Outcome of the reporter's code: one letter each for setup, call and teardown.

    ``p`` passed, ``f`` failed, ``s`` skipped, ``x`` skipped as expected failure, ``X`` passed though expected to fail,
    ``c`` reported as passed after an exception, ``-`` not reached; a final ``r`` says that it ran more than once.
    """
    setup, call, teardown = code[0], code[1], code[2]
    if "c" in code:
        return Outcome.CHANGED
    if code.endswith("r"):
        return Outcome.RERUN
    if setup == "f" or teardown == "f":
        return Outcome.FAILED if call == "f" else Outcome.ERROR
    letter = call if setup == "p" else setup
    return {
        "p": Outcome.PASSED,
        "f": Outcome.FAILED,
        "s": Outcome.SKIPPED,
        "x": Outcome.XFAILED,
        "X": Outcome.XPASSED,
    }.get(letter, Outcome.ERROR)


@cache
def reporter_source(name: str) -> str:
    """Text of a program under ``reporters``."""
    return files("pairtrial.grading.reporters").joinpath(name).read_text(encoding="utf-8")


def canary_case(must_pass: str, must_fail: str, case: str) -> bytes:
    """A unittest class: collected whatever naming the target's settings ask for."""
    return (
        "import unittest\n\n\n"
        f"class {case}(unittest.TestCase):\n"
        f"    def test_{must_pass}(self):\n        self.assertEqual(1 + 1, 2)\n\n"
        f"    def test_{must_fail}(self):\n        self.assertEqual(1 + 1, 3)\n"
    ).encode()


def word() -> str:
    """A random name that is an identifier in every language."""
    return "n" + secrets.token_hex(6)


class Pytest:
    """The framework."""

    name = "pytest"

    def invocation(self, prepared: Prepared, workspace: str, env: Mapping[str, str]) -> Invocation:
        folder, case, good, bad = word(), word().title(), word(), word()
        file = f"{folder}/test_{folder}.py"
        canaries = (Canary(f"{file}::{case}::test_{good}", True), Canary(f"{file}::{case}::test_{bad}", False))
        key = secrets.token_bytes(32)
        outer = {name: value for name, value in env.items() if name != "PYTHONPATH"}
        config = {
            "key": key.hex(),
            "seed": secrets.token_hex(16),
            "args": [*test_command(prepared.task)[3:], *OURS, file],
            "pythonpath": [folder for folder in env.get("PYTHONPATH", "").split(":") if folder],
            "environ": {"PYTHONPATH": env["PYTHONPATH"]} if "PYTHONPATH" in env else {},
            "own": sorted(own_names(prepared)),
            "canary": {"pass": canaries[0].test_id, "fail": canaries[1].test_id},
            "decoy_files": sorted({item.partition("::")[0] for item in prepared.task.fail_to_pass}),
        }
        gift = json.dumps({"source": reporter_source("pytest_reporter.py"), "config": config})
        argv = ("python", "-P", "-c", BOOT, "{report}", "{gift}")
        return Invocation(argv, outer, gift, {file: canary_case(good, bad, case)}, canaries, key)

    def read(self, invocation: Invocation, report: bytes, run: Run) -> Run:
        records, chained = checked_lines(report, invocation.key)
        ids: list[str] = []
        decoys: set[int] = set()
        tests: list[tuple[str, Outcome]] = []
        uncollected: dict[str, str] = {}
        patched: list[str] = []
        for kind, *rest in records:
            if kind == "ids":
                ids += rest[0]
            elif kind == "decoys":
                decoys.update(rest[0])
            elif kind == "collect":
                uncollected[rest[0]] = rest[1]
            elif kind == "t" and 0 <= rest[0] < len(ids):
                tests.append((ids[rest[0]], outcome_of(rest[1])))
            elif kind == "patched":
                patched += rest[0]
            elif kind == "hello":
                run = replace(run, versions=(f"pytest {rest[0]}", f"python {rest[1]}"))
            elif kind == "end":
                run = replace(run, ended=True, status=rest[0])
        canaries = (*invocation.canaries, *(Canary(ids[number], False) for number in sorted(decoys)))
        return replace(
            run,
            chained=chained,
            tests=tuple(tests),
            collected=len(ids),
            uncollected=uncollected,
            canaries=canaries,
            patched=tuple(dict.fromkeys(patched)),
        )


def own_names(prepared: Prepared) -> set[str]:
    """Top names that the target itself provides although the environment has them too (pluggy under pytest)."""
    provided: set[str] = set()
    for folder in prepared.task.target.document.pythonpath:
        root = prepared.defective / folder
        if root.is_dir():
            provided |= {entry.name.removesuffix(".py") for entry in root.iterdir()}
    installed = {entry.name.removesuffix(".py") for site in site_packages(prepared) for entry in site.iterdir()}
    return {name for name in provided & installed if name.isidentifier()}


def site_packages(prepared: Prepared) -> list[Any]:
    """The ``site-packages`` folders of the environment."""
    return sorted(prepared.environment.root.glob("lib/python*/site-packages"))
