"""node:test, vitest, jest and mocha: reporters of ours, loaded by the runner from a folder beside the workspace."""

from __future__ import annotations

import json
import secrets

from pairtrial.grading.frameworks.base import Canary, Invocation, Suite
from pairtrial.grading.frameworks.parts import program, word

_BODY = """\
{head}
test('{good}', () => {{}});
test('{bad}', () => {{ throw new Error('must fail'); }});
"""


class _JavaScript:
    """What all four have in common."""

    name: str
    reporter: str
    """File of the reporter."""
    head: str
    """First line of the canary file."""
    suffix = ".test.mjs"
    healthy_exits: frozenset[int] = frozenset({1})

    def file_of(self, test_id: str) -> str | None:
        return test_id.partition("::")[0]

    def arguments(self, suite: Suite, reporter: str, canary: str) -> list[str]:
        """The target's command with our reporter and canary."""
        raise NotImplementedError

    def invocation(self, suite: Suite) -> Invocation:
        stem, good, bad = word(), word(), word()
        file = f"{self.folder(suite)}{stem}{self.ending(suite)}"
        key = secrets.token_bytes(32)
        argv = self.arguments(suite, f"{suite.tools}/{self.reporter}", file)
        return Invocation(
            argv=tuple(argv),
            env={**suite.env, "PAIRTRIAL_PIPES": "{report},{gift}"},
            gift=json.dumps({"key": key.hex()}),
            files={file: _BODY.format(head=self.head, good=good, bad=bad).encode()},
            canaries=(Canary(f"{file}::{good}", True), Canary(f"{file}::{bad}", False)),
            key=key,
            tools={name: program(name).encode() for name in ("channel.cjs", self.reporter)},
        )

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
    head = "import test from 'node:test';"

    def arguments(self, suite: Suite, reporter: str, canary: str) -> list[str]:
        command = list(suite.command)
        at = command.index("--test") + 1
        options = [f"--test-reporter={reporter}", "--test-reporter-destination=stdout"]
        return [*command[:at], *options, *command[at:], canary]


class Vitest(_Matched):
    """vitest 3 and 4: the reporter runs in the main process, the tests in workers."""

    name = "vitest"
    reporter = "vitest.mjs"
    head = "import { test } from 'vitest';"

    def arguments(self, suite: Suite, reporter: str, canary: str) -> list[str]:
        paths = _paths(suite)
        return [*suite.command, f"--reporter={reporter}", "--bail=0", *([canary] if paths else [])]


class Jest(_Matched):
    """jest: the reporter runs in the main process, the tests in contexts or workers."""

    name = "jest"
    reporter = "jest.cjs"
    head = "'use strict';"
    suffix = ".test.js"

    def arguments(self, suite: Suite, reporter: str, canary: str) -> list[str]:
        paths = _paths(suite)
        return [*suite.command, f"--reporters={reporter}", "--bail=0", "--ci", *([canary] if paths else [])]


class Mocha(_JavaScript):
    """mocha: reporter and tests share one process."""

    name = "mocha"
    reporter = "mocha.cjs"
    head = "const test = globalThis.it ?? globalThis.test;"
    suffix = ".test.cjs"
    healthy_exits = frozenset(range(1, 256))
    """It exits with the number of failures."""

    def arguments(self, suite: Suite, reporter: str, canary: str) -> list[str]:
        return [*suite.command, "--reporter", reporter, "--no-bail", "--exit", canary]


def _paths(suite: Suite) -> list[str]:
    """Files and folders that the command names; a filter that must let the canary through."""
    return [item for item in suite.command[2:] if not item.startswith("-") and item != "run"]
