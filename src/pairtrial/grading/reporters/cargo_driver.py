"""Builds the tests of a cargo workspace, runs each test binary by itself and reports every outcome over a pipe.

``cargo test`` mixes the lines of all binaries without saying whose they are; run one by one, each result belongs to
one package and target. The tests run in processes of their own; this driver is not in their reach.
"""

# ruff: noqa: PTH109

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pairtrial.grading.reporters.channel import Channel, hide, seated

JSON_OUTPUT = ("-Z", "unstable-options", "--format", "json", "--show-output")
OUTCOMES = {"ok": "passed", "failed": "failed", "ignored": "skipped"}
DOC_LINE = re.compile(r" \(line \d+\)")


class Binary(NamedTuple):
    """One test binary."""

    package: str
    target: str
    path: str
    folder: str


def main(config: dict[str, Any], descriptor: int) -> int:
    """Build, run, say how it ended."""
    os.set_inheritable(descriptor, False)
    hide()
    channel = Channel(descriptor, bytes.fromhex(config.pop("key")))
    environ = {**os.environ, **config["environ"]}
    arguments = list(config["args"])
    binaries, built = build(arguments, environ, channel)
    bad = 0 if built else 1
    shared = libraries(environ)
    for binary in binaries:
        # Only where the tests run: at build time this variable changes what some build scripts do.
        own = {**environ, "RUSTC_BOOTSTRAP": "1", "CARGO_MANIFEST_DIR": binary.folder}
        places = [os.path.dirname(binary.path), *shared, environ.get("LD_LIBRARY_PATH", "")]  # noqa: PTH120
        own["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, places))
        name = f"{binary.package} {binary.target}"
        bad += run([*seated(config["seat"]), binary.path, *JSON_OUTPUT], name, own, binary.folder, channel)
    if built and config["doctests"]:
        for package in doctested(arguments, environ):
            command = ["cargo", "test", "--doc", "--package", package, *arguments, "--", *JSON_OUTPUT]
            own = {**environ, "RUSTC_BOOTSTRAP": "1"}
            bad += run(command, f"{package} doc", own, os.getcwd(), channel)
    channel.say("end", 1 if bad else 0)
    return 1 if bad else 0


def build(arguments: list[str], environ: dict[str, str], channel: Channel) -> tuple[list[Binary], bool]:
    """All test binaries, in cargo's order, and whether everything could be built."""
    command = ["cargo", "test", "--no-run", "--message-format=json", *arguments]
    binaries: list[Binary] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ) as process:
        for message in messages(process.stdout or ()):
            if message.get("reason") == "compiler-message" and message["message"].get("level") == "error":
                sys.stdout.write(str(message["message"].get("rendered") or ""))
                channel.say("collect", place(message), "failed")
            elif message.get("executable") and message.get("profile", {}).get("test"):
                package, _, target = place(message).partition(" ")
                folder = os.path.dirname(message["manifest_path"])  # noqa: PTH120
                binaries.append(Binary(package, target, message["executable"], folder))
        code = process.wait()
    if code:
        # Cargo stops at the first target that cannot be built, so nothing of the workspace has run.
        channel.say("collect", "", "failed")
    return binaries, code == 0


def libraries(environ: dict[str, str]) -> list[str]:
    """Where Rust's own shared libraries are; the tests of a crate of macros are linked with them."""
    command = ["rustc", "--print", "target-libdir"]
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environ, check=False, text=True)
    return done.stdout.split("\n")[:1]


def place(message: dict[str, Any]) -> str:
    """Package and target of a message: ``semver lib:semver``, ``semver test:test_version``."""
    kinds = message["target"]["kind"]
    kind = "lib" if any(item in kinds for item in ("lib", "rlib", "proc-macro", "cdylib", "dylib")) else kinds[0]
    return f"{package_name(message['package_id'])} {kind}:{message['target']['name']}"


def package_name(identity: str) -> str:
    """``path+file:///x/name#0.1.0``, ``path+file:///x#name@0.1.0`` and the older ``name 0.1.0 (path)``."""
    if "#" not in identity:
        return identity.partition(" ")[0]
    head, _, tail = identity.partition("#")
    return tail.partition("@")[0] if "@" in tail else head.rstrip("/").rpartition("/")[2]


def messages(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if isinstance(message, dict):
            yield message


def doctested(arguments: list[str], environ: dict[str, str]) -> list[str]:
    """Packages of the workspace with a library, whose documentation holds tests."""
    offline = [item for item in arguments if item in ("--offline", "--locked", "--frozen")]
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", *offline]
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environ, check=False)
    try:
        packages = json.loads(done.stdout)["packages"]
    except (ValueError, KeyError):
        return []
    return [
        item["name"]
        for item in packages
        if any(target.get("doctest") and "lib" in target["kind"] for target in item["targets"])
    ]


def run(command: list[str], name: str, environ: dict[str, str], folder: str, channel: Channel) -> int:
    """One test binary; gives how much of it failed."""
    started: set[Any] = set()
    rows: list[tuple[str, str]] = []
    done: set[Any] = set()
    whole = False
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ, cwd=folder) as process:
        for event in messages(process.stdout or ()):
            if event.get("type") == "suite":
                whole = event.get("event") in ("ok", "failed")
            elif event.get("type") == "test" and event.get("event") == "started":
                started.add(event.get("name"))
            elif event.get("type") == "test":
                if event.get("name") in done:
                    channel.say("patched", [f"{name}::{event.get('name')} has two results"])
                    continue
                outcome = OUTCOMES.get(str(event.get("event")), "failed")
                done.add(event.get("name"))
                rows.append((str(event.get("name")), outcome))
                if outcome == "failed":
                    sys.stdout.write(str(event.get("stdout") or "")[-2000:])
        code = process.wait()
    for test, outcome in numbered(rows):
        channel.say("r", f"{name}::{test}", outcome)
    if not whole or code not in (0, 101):
        channel.say("collect", name, "failed")
        for test in sorted(started - done):
            channel.say("r", f"{name}::{test}", "error")
    return sum(outcome == "failed" for _, outcome in rows) + (not whole or code != 0)


def numbered(rows: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """A doctest's name holds its line, which moves with every edit above it: its order in the item takes its place."""
    seen: Counter[str] = Counter()

    def line(row: tuple[str, str]) -> int:
        found = DOC_LINE.search(row[0])
        return int(re.sub(r"\D", "", found[0])) if found else 0

    for test, outcome in sorted(rows, key=line):
        if DOC_LINE.search(test):
            test = DOC_LINE.sub("", test)
            seen[test] += 1
            test = f"{test} #{seen[test]}"
        yield test, outcome
