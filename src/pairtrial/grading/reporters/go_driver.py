"""Runs ``go test -json`` and reports every outcome over a pipe.

The tests run in processes of their own, built by go; this driver is not in their reach. What a test prints can look
like a result to Go before 1.20, so a test with two results is reported twice and counts as forged.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from pairtrial.grading.reporters.channel import Channel

OUTCOMES = {"pass": "passed", "fail": "failed", "skip": "skipped"}


def main(config: dict[str, Any], descriptor: int) -> int:
    """Run, translate line by line, say how it ended."""
    os.set_inheritable(descriptor, False)
    channel = Channel(descriptor, bytes.fromhex(config.pop("key")))
    environ = {**os.environ, **config["environ"]}
    command = ["go", "test", "-json", *config["args"]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ) as process:
        bad = 0
        for line in process.stdout or ():
            bad += handle(line, channel)
        code = process.wait()
    channel.say("end", 1 if bad or code else 0)
    return 1 if bad or code else 0


def handle(line: bytes, channel: Channel) -> int:
    """One line; gives 1 where something failed."""
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    if not isinstance(event, dict) or "Action" not in event:
        return plain(line, channel)
    package, test, action = str(event.get("Package", "")), event.get("Test"), event["Action"]
    if action not in OUTCOMES:
        if test is None and event.get("Output"):
            sys.stdout.write(str(event["Output"]))
        return 0
    if test is not None:
        channel.say("r", f"{package}::{test}", OUTCOMES[action])
    elif action == "fail":
        # Also said when a single test failed; harmless, as a test with a record is looked up by its record.
        channel.say("collect", package, "failed")
    return int(action == "fail")


def plain(line: bytes, channel: Channel) -> int:
    """Go 1.19 says outside of the JSON which package could not be built: ``FAIL<tab>package [build failed]``."""
    sys.stdout.buffer.write(line)
    text = line.decode("utf-8", "replace").rstrip("\n")
    if text.startswith("FAIL\t") and text.endswith("]"):
        channel.say("collect", text[len("FAIL\t") :].partition(" [")[0], "failed")
        return 1
    return 0
