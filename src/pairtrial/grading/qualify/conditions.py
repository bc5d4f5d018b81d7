"""Under which conditions a suite is run, and how each is made.

A condition changes the command (`Invocation`) that the framework gives, never the grader: what is judged stays what will
be judged. Seeds, clocks and zones are constants, so two qualifications vary the same things.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pairtrial.core.canonical import digest_json, sha256_hex
from pairtrial.grading.frameworks.base import Invocation, Suite

BURNERS = 1
"""Busy processes on the core of the suite: it gets half of it, and of that the third in which it is not stopped."""
SLOWER = 8.0
"""How much longer a suite may take under load."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Another place and time."""

    clock: str
    """Local time at which the suite believes to start."""
    zone: str
    locale: str
    folder: str
    """Where below the workspace the tree lies."""
    hash_seed: str
    shuffle: int
    """Seed of the order of the tests."""


ELSEWHERE = (
    Elsewhere("2028-02-29 23:59:58", "America/Los_Angeles", "C", "moved", "1", 1000),
    Elsewhere("2031-12-31 23:59:57", "Asia/Kathmandu", "POSIX", "a/longer/way/down/tree", "2", 1001),
    Elsewhere("2027-03-28 01:59:55", "Europe/Berlin", "tr_TR.UTF-8", "x", "3", 1002),
    Elsewhere("2024-11-03 00:30:00", "Pacific/Kiritimati", "de_DE.UTF-8", "0-tree", "4", 1003),
)
"""A leap day, the end of a year and the start of summer time, each a few seconds before midnight or the change."""
ASPECTS = ("order", "clock", "zone", "path", "hash-seed")


@dataclass(frozen=True, slots=True)
class Condition:
    """One way to run a suite."""

    name: str
    place: Elsewhere | None = None
    aspects: tuple[str, ...] = ASPECTS
    """Which parts of ``place`` are used."""
    burners: int = 0

    def alone(self) -> tuple[Condition, ...]:
        """The same with one aspect at a time, to find which one it is."""
        return tuple(replace(self, name=aspect, aspects=(aspect,)) for aspect in self.aspects) if self.place else ()

    def folder(self) -> str:
        """Where the tree lies below the workspace; empty for the workspace itself."""
        return self.place.folder if self.place and "path" in self.aspects else ""

    def vary(self, invocation: Invocation, suite: Suite, framework: str) -> Invocation:
        """The command under this condition."""
        env = dict(invocation.env)
        if self.place is not None:
            env |= _environment(self.place, self.aspects)
        changed = replace(invocation, env=env)
        if self.place is not None and "order" in self.aspects:
            changed = _shuffled(changed, suite, framework, self.place.shuffle)
        library = None if framework in OWN_CLOCK else clock_library()
        if self.place is not None and "clock" in self.aspects and library:
            # For the runner alone: the sandbox's own programs must not be loaded with the library. The monotonic clock is
            # shifted as well; where it is not, waits of threads fail with EINVAL.
            shift = ("env", f"LD_PRELOAD={library}", f"FAKETIME=@{self.place.clock}")
            changed = replace(changed, argv=(*shift, *changed.argv))
        if self.burners:
            prefix = ("python", "-I", "-S", "-c", source("load.py"), str(self.burners))
            changed = replace(changed, argv=(*prefix, *changed.argv))
        return changed


def plan_of(repeat: int) -> tuple[Condition, ...]:
    """All runs of one tree: as graded and with everything varied ``repeat`` times each, under load a third of that.

    What is varied is varied at once. Only when such a run differs are the aspects tried one by one (`Condition.alone`).
    """
    return (
        *(Condition("as-graded") for _ in range(repeat)),
        *(Condition("varied", place=ELSEWHERE[number % len(ELSEWHERE)]) for number in range(repeat)),
        *(Condition("load", burners=BURNERS) for _ in range(max(1, repeat // 3))),
    )


def conditions_digest(repeat: int) -> str:
    """Of everything that is varied, and how."""
    programs = {name: sha256_hex(source(name).encode()) for name in ("load.py", "pytest_shuffle.py")}
    table: list[dict[str, Any]] = [
        {
            "name": item.name,
            "place": item.place and {name: getattr(item.place, name) for name in Elsewhere.__slots__},
            "burners": item.burners,
        }
        for item in plan_of(repeat)
    ]
    return digest_json({"plan": table, "programs": programs, "clock": clock_library() is not None})


PROGRAMS = "pairtrial.grading.qualify.programs"


@cache
def source(name: str) -> str:
    """Text of a program."""
    return files(PROGRAMS).joinpath(name).read_text(encoding="utf-8")


@cache
def clock_library() -> str | None:
    """The preloaded library that shifts the clock, when this machine has it."""
    if not sys.platform.startswith("linux"):
        return None
    for pattern in ("*/faketime/libfaketimeMT.so.1", "faketime/libfaketimeMT.so.1"):
        for root in ("/usr/lib", "/usr/lib64"):
            for found in sorted(Path(root).glob(pattern)):
                return str(found)
    return None


OWN_CLOCK = {
    "go-test": "time zone only (go asks the kernel itself)",
    "cargo-test": "time zone only (cargo compares times of files and hangs)",
}
"""Frameworks for which the clock cannot be shifted by a library."""


def clock_method(framework: str) -> str:
    """How another clock is made for a framework, in words for the record."""
    if framework in OWN_CLOCK:
        return OWN_CLOCK[framework]
    return "libfaketime" if clock_library() else "a time zone nearly a day ahead (libfaketime is not installed)"


def _environment(place: Elsewhere, aspects: tuple[str, ...]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    if "zone" in aspects:
        found |= {"TZ": place.zone, "LC_ALL": place.locale, "LANG": place.locale}
    if "hash-seed" in aspects:
        found["PYTHONHASHSEED"] = place.hash_seed
    if "clock" in aspects and clock_library() is None:
        found["TZ"] = "<AHEAD>-23:59"
    return found


SHUFFLE_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "vitest": ("--sequence.shuffle.tests", "--sequence.shuffle.files", "--sequence.seed={seed}"),
    "jest": ("--randomize", "--seed={seed}"),
}
NOT_SHUFFLED = {
    "mocha": "mocha runs in no order but its own",
    "node-test": "node:test runs in no order but its own",
    "unittest": "unittest runs in no order but its own",
}
"""Runners whose order cannot be changed from outside; their runs are all in file order, and the record says so."""


def _shuffled(invocation: Invocation, suite: Suite, framework: str, seed: int) -> Invocation:
    env = {**invocation.env}
    if framework == "pytest":
        gift = json.loads(invocation.gift)
        gift["config"]["pythonpath"] = [*gift["config"]["pythonpath"], suite.tools]
        gift["config"]["args"] = ["-p", "pairtrial_shuffle", *gift["config"]["args"]]
        tools = {**invocation.tools, "pairtrial_shuffle.py": source("pytest_shuffle.py").encode()}
        env["PAIRTRIAL_SHUFFLE"] = str(seed)
        return replace(invocation, gift=json.dumps(gift), tools=tools, env=env)
    if framework == "go-test":
        gift = json.loads(invocation.gift)
        gift["config"]["args"] = [f"-shuffle={seed}", *gift["config"]["args"]]
        return replace(invocation, gift=json.dumps(gift))
    if framework == "cargo-test":
        return replace(invocation, env={**env, "RUST_TEST_SHUFFLE_SEED": str(seed)})
    options = tuple(item.format(seed=seed) for item in SHUFFLE_OPTIONS.get(framework, ()))
    return replace(invocation, argv=(*invocation.argv, *options))


def note_of(condition: str, framework: str) -> str:
    """What a condition could not vary for a framework; empty when it varied all."""
    if condition == "varied":
        return NOT_SHUFFLED.get(framework, "")
    return ""
