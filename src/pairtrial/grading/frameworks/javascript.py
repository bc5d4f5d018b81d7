"""node:test, vitest, jest and mocha: reporters of ours, loaded by the runner from a folder beside the workspace."""

from __future__ import annotations

import json
import random
import re
import secrets
from pathlib import Path
from string import Template

from pairtrial.grading.frameworks.base import Canary, Invocation, Suite
from pairtrial.grading.frameworks.parts import program, two_numbers, word

_ONLY = re.compile(rb"\.only\b|\b(?:fit|fdescribe|fcontext)\b")
"""A file that runs some of its tests only would skip ours."""


class _JavaScript:
    """What all four have in common."""

    name: str
    reporter: str
    """File of the reporter."""
    imports = ""
    """First line of what we write, where names must be imported."""
    test: str
    """Expressions: what declares a test, and what tests assert with beside Node's own ``assert``. Names after a ``$`` are
    made by chance each time."""
    expect = "globalThis.expect"
    asserting = "globalThis.assert"
    suffix = ".test.mjs"
    healthy_exits: frozenset[int] = frozenset({1})

    def file_of(self, test_id: str) -> str | None:
        return test_id.partition("::")[0]

    def arguments(self, suite: Suite, tools: str, canary: str) -> list[str]:
        """The target's command with our reporter (in the folder ``tools``) and canary."""
        raise NotImplementedError

    def invocation(self, suite: Suite) -> Invocation:
        good, bad = word(), word()
        file = f"{self.folder(suite)}{word()}{self.ending(suite)}"
        laid = {file: self.pair(good, bad)}
        canaries = [Canary(f"{file}::{good}", True), Canary(f"{file}::{bad}", False)]
        for name in sorted({item.partition("::")[0] for item in suite.required}):
            text = _text(suite.tree / name)
            if text is not None and not _ONLY.search(text):
                good, bad = _titles(suite.required, name, text)
                laid[name] = text + b"\n" + self.pair(good, bad, chai=b"chai" in text)
                canaries += [Canary(f"{name}::{good}", True), Canary(f"{name}::{bad}", False)]
        options = f'{suite.env.get("NODE_OPTIONS", "")} --require="{suite.tools}/frozen.cjs"'
        key = secrets.token_bytes(32)
        return Invocation(
            argv=tuple(self.arguments(suite, suite.tools, file)),
            env={**suite.env, "NODE_OPTIONS": options.lstrip(), "PAIRTRIAL_PIPES": "{report},{gift}"},
            gift=json.dumps({"key": key.hex()}),
            files=laid,
            canaries=tuple(canaries),
            key=key,
            tools={name: program(name).encode() for name in ("channel.cjs", "frozen.cjs", self.reporter)},
        )

    def pair(self, good: str, bad: str, *, chai: bool = False) -> bytes:
        """A test that must pass and one that must fail, on one line: a compiler of types is told to look away from it."""
        lines = [line.strip() for line in program("decoys.js").splitlines() if not line.startswith("//")]
        names = {"a": word(), "b": word(), "c": word()}
        imports, test, expect, asserting = (
            Template(part).substitute(names) for part in (self.imports, self.test, self.expect, self.asserting)
        )
        text = Template(" ".join(lines)).substitute(
            test=test,
            expect=expect,
            assert_=asserting,
            good=json.dumps(good),
            bad=json.dumps(bad),
            **two_numbers(),
            chai=json.dumps(chai),
            seed=secrets.randbelow(10_000),
        )
        return f"{imports}// @ts-ignore\n{text}\n".encode()

    def ending(self, suite: Suite) -> str:
        """End of the canary file's name."""
        return self.suffix

    def folder(self, suite: Suite) -> str:
        """Folder of the canary file: beside the required tests, where the target's own patterns look."""
        file = suite.required[0].partition("::")[0] if suite.required else ""
        return file.rpartition("/")[0] + "/" if "/" in file else ""


class _Matched(_JavaScript):
    """The runner finds test files by patterns of the target's own, so the canary is called like its neighbours."""

    def ending(self, suite: Suite) -> str:
        name = suite.required[0].partition("::")[0].rpartition("/")[2] if suite.required else ""
        return "." + name.partition(".")[2] if "." in name else self.suffix


class NodeTest(_JavaScript):
    """``node --test``: the reporter runs in the parent, every test file in a process of its own."""

    name = "node-test"
    reporter = "node_test.mjs"
    test = "load('node:test').test"

    def arguments(self, suite: Suite, tools: str, canary: str) -> list[str]:
        command = list(suite.command)
        at = command.index("--test") + 1
        options = [f"--test-reporter={tools}/{self.reporter}", "--test-reporter-destination=stdout"]
        return [*command[:at], *options, *command[at:], canary]


class Vitest(_Matched):
    """vitest 3 and 4: the reporter runs in the main process, the tests in workers."""

    name = "vitest"
    reporter = "vitest.mjs"
    imports = "import { test as $a, expect as $b, assert as $c } from 'vitest';\n"
    test, expect, asserting = "$a", "$b", "$c"

    def arguments(self, suite: Suite, tools: str, canary: str) -> list[str]:
        paths = _paths(suite)
        return [*suite.command, f"--reporter={tools}/{self.reporter}", "--bail=0", *([canary] if paths else [])]


class Jest(_Matched):
    """jest: the reporter runs in the main process, the tests in contexts or workers."""

    name = "jest"
    reporter = "jest.cjs"
    test = "globalThis.test ?? require('@jest/globals').test"
    expect = "(globalThis.expect ?? require('@jest/globals').expect)"
    suffix = ".test.js"

    def arguments(self, suite: Suite, tools: str, canary: str) -> list[str]:
        paths = _paths(suite)
        reporter = f"--reporters={tools}/{self.reporter}"
        return [*suite.command, reporter, "--bail=0", "--ci", *([canary] if paths else [])]


class Mocha(_JavaScript):
    """mocha: reporter and tests share one process."""

    name = "mocha"
    reporter = "mocha.cjs"
    test = "globalThis.it ?? globalThis.test ?? require('mocha').it"
    suffix = ".test.cjs"
    healthy_exits = frozenset(range(1, 256))
    """It exits with the number of failures."""

    def arguments(self, suite: Suite, tools: str, canary: str) -> list[str]:
        return [*suite.command, "--reporter", f"{tools}/{self.reporter}", "--no-bail", "--exit", canary]


def _paths(suite: Suite) -> list[str]:
    """Files and folders that the command names; a filter that must let the canary through."""
    return [item for item in suite.command[2:] if not item.startswith("-") and item != "run"]


def _text(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() and not file.is_symlink() else None


def _titles(required: tuple[str, ...], file: str, text: bytes) -> tuple[str, str]:
    """Two titles made of the words of a file's required tests that stand nowhere in the file."""
    chance = random.SystemRandom()
    titles = [item.partition("::")[2] for item in required if item.partition("::")[0] == file]
    words = sorted({part for title in titles for part in re.findall(r"[A-Za-z]{2,}", title)}) or ["works"]
    found: list[str] = []
    while len(found) < 2:
        title = " ".join(chance.choices(words, k=chance.randint(2, 4)))
        while title.encode() in text or title in found:
            title += " " + chance.choice([*words, str(chance.randint(1, 99))])
        found.append(title)
    return found[0], found[1]
