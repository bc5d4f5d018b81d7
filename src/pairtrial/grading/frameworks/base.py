"""What every test framework gives the grader, and the one table that says what an outcome means.

The same table stands in ``docs/grading.md``; a test keeps the two equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol


class Outcome(StrEnum):
    """What one test did, the same words for every framework."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    """Something around the test failed (fixture, hook), not the test itself."""
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    """Expected to fail, and did."""
    XPASSED = "xpassed"
    """Expected to fail, and passed; the framework let it."""
    TODO = "todo"
    CHANGED = "changed"
    """An exception was raised, and something in the process reported a pass."""
    RERUN = "rerun"
    """Ran more than once; a pass of the second draw is not a pass."""
    UNCOLLECTED = "uncollected"
    """Its file could not be collected, so it could not run."""
    MISSING = "missing"
    """No record."""


COUNTS_AS_PASS: Mapping[Outcome, bool] = {outcome: outcome is Outcome.PASSED for outcome in Outcome}
"""For fail_to_pass and pass_to_pass alike: a required test must plainly pass. A task whose gold tree gives a required
id any other outcome is refused when it is qualified."""


@dataclass(frozen=True, slots=True)
class Canary:
    """A test of ours with a known outcome, named by chance for one grading."""

    test_id: str
    must_pass: bool


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the target's whole suite, read from the reporter."""

    label: str
    """``work``, ``control`` (without the work) or ``again``."""
    exit_code: int | None
    signal: int | None
    limit: str | None
    """The limit that ended it (``wall``, ``memory``, ``pids``, ``disk``, ``output``), if one did."""
    seal: str
    """``whole``; ``absent`` (the supervisor was ended before it could seal); ``broken`` (others wrote into it)."""
    chained: bool
    """Every line of the report carries the right tag."""
    ended: bool
    """The reporter reached the end of the session."""
    status: int | None = None
    """Exit status as the runner itself gave it to the reporter."""
    tests: tuple[tuple[str, Outcome], ...] = ()
    """Every test with a record, in the order of the run, our own canaries among them."""
    collected: int = 0
    """How many tests the runner was about to run, our own among them."""
    uncollected: Mapping[str, str] = field(default_factory=dict)
    """Files (or parts) that failed to collect or were skipped as a whole."""
    canaries: tuple[Canary, ...] = ()
    patched: tuple[str, ...] = ()
    """Parts of the runner that were replaced while it ran."""
    versions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Suite:
    """The target's tests as they lie in the grading sandbox."""

    workspace: str
    """Absolute path inside."""
    tools: str
    """Absolute path inside of a new folder beside the workspace, for programs of ours."""
    tree: Path
    """Where the workspace lies on the host."""
    env: Mapping[str, str]
    """Environment of the target's own test command."""
    command: tuple[str, ...]
    """That command."""
    required: tuple[str, ...]
    """The ids of fail_to_pass."""
    own: frozenset[str] = frozenset()
    """Names that the target itself provides although the environment has them too (pluggy under pytest)."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """How to run the suite once."""

    argv: tuple[str, ...]
    """``{report}`` and ``{gift}`` stand for descriptor numbers."""
    env: Mapping[str, str]
    """May hold ``{report}`` and ``{gift}`` too."""
    gift: str
    """Text that the runner's first program reads from its pipe: reporter, settings, secret."""
    files: Mapping[str, bytes]
    """Canary files to lay into the workspace, relative to it."""
    canaries: tuple[Canary, ...]
    key: bytes
    """Secret of this run's report."""
    tools: Mapping[str, bytes] = field(default_factory=dict)
    """Programs of ours to lay into the folder of tools."""


class Framework(Protocol):
    """One test framework."""

    name: str
    healthy_exits: frozenset[int]
    """Exit codes of a run that reached its end. The canary that must fail makes 0 impossible."""

    def invocation(self, suite: Suite) -> Invocation:
        """A new invocation with canaries and secret of its own."""

    def file_of(self, test_id: str) -> str | None:
        """The test's file relative to the workspace, where the id names one."""
