"""Runs ``go test -json`` and reports every outcome over a pipe.

The tests run in processes of their own, built by go; this driver is not in their reach. What a test prints can look
like a result to Go before 1.20, so a test with two results is reported twice and counts as forged.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

from pairtrial.grading.reporters.channel import Channel, hide, seated

OUTCOMES = {"pass": "passed", "fail": "failed", "skip": "skipped"}
RESULT = re.compile(r"--- (PASS|FAIL|SKIP): (.+) \(\d+\.\d+s\)\s*\Z")


class Package:
    """What is known of one package while its tests run."""

    def __init__(self) -> None:
        self.running: dict[str, str] = {}
        """Tests without a result; the value is one that Go overlooked because it did not stand at a line's start."""
        self.done: set[str] = set()
        self.ended = False


class Translator:
    """From Go's events to our records."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._packages: dict[str, Package] = {}
        self.bad = 0

    def line(self, line: bytes) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if isinstance(event, dict) and "Action" in event:
            self._event(event)
        else:
            self._plain(line)

    def _event(self, event: dict[str, Any]) -> None:
        name, test, action = str(event.get("Package", "")), event.get("Test"), str(event["Action"])
        package = self._packages.setdefault(name, Package())
        if action == "output":
            self._output(package, test, str(event.get("Output", "")))
        elif action == "run" and test is not None:
            package.running[test] = ""
        elif action in OUTCOMES and test is not None:
            self._result(name, package, test, OUTCOMES[action])
        elif action in OUTCOMES:
            self._end(name, package, action)

    def _output(self, package: Package, test: str | None, text: str) -> None:
        if text == "FAIL\n":
            package.ended = True
        found = RESULT.search(text)
        if found and test in package.running and found[2] == test:
            package.running[str(test)] = OUTCOMES[found[1].lower()]
        if test is None:
            sys.stdout.write(text)

    def _result(self, name: str, package: Package, test: str, outcome: str) -> None:
        if test in package.done:
            # Go gives every test of a package a name of its own, so one of the two was printed by somebody else.
            self._channel.say("patched", [f"{name}::{test} has two results"])
            return
        package.running.pop(test, None)
        package.done.add(test)
        self.bad += outcome == "failed"
        self._channel.say("r", f"{name}::{test}", outcome)

    def _end(self, name: str, package: Package, action: str) -> None:
        for test, seen in list(package.running.items()):
            self._result(name, package, test, seen or "error")
        if action == "fail":
            self.bad += 1
            if not package.ended:  # panic or exit: what came after it did not run
                self._channel.say("collect", name, "failed")

    def _plain(self, line: bytes) -> None:
        """Go 1.19 says outside of the JSON which package could not be built: ``FAIL<tab>package [build failed]``."""
        sys.stdout.buffer.write(line)
        text = line.decode("utf-8", "replace").rstrip("\n")
        if text.startswith("FAIL\t") and text.endswith("]"):
            self._channel.say("collect", text[len("FAIL\t") :].partition(" [")[0], "failed")
            self.bad += 1


def main(config: dict[str, Any], descriptor: int) -> int:
    """Run, translate line by line, say how it ended."""
    os.set_inheritable(descriptor, False)
    hide()
    channel = Channel(descriptor, bytes.fromhex(config.pop("key")))
    translator = Translator(channel)
    start = " ".join(f"'{part}'" for part in seated(config["seat"]))
    command = ["go", "test", "-json", f"-exec={start}", *config["args"]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **config["environ"]}) as process:
        for line in process.stdout or ():
            translator.line(line)
        code = process.wait()
    if code and not translator.bad:  # not even the packages could be listed
        channel.say("collect", "", "failed")
    status = 1 if translator.bad or code else 0
    channel.say("end", status)
    return status
