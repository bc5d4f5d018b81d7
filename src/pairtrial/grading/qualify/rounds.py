"""Running a suite under every condition, and what the runs say together."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio

from pairtrial.grading.frameworks.base import COUNTS_AS_PASS
from pairtrial.grading.observe import framework_of, run_suite
from pairtrial.grading.qualify.conditions import ASPECTS, SLOWER, Condition
from pairtrial.grading.verdict import Clarity, examine
from pairtrial.sandbox.make import make_sandbox
from pairtrial.sandbox.protocol import Limits, Sandbox, SandboxSpec
from pairtrial.tasks.environment import mounts_of
from pairtrial.tasks.qualification import Fault, Problem
from pairtrial.tasks.workspace import Prepared

SHOWN = 5
"""Ids named in one problem."""


@dataclass(frozen=True, slots=True)
class Where:
    """In which sandboxes runs take place."""

    kind: str
    scratch: Path

    def sandbox(self, prepared: Prepared, label: str, *further: Path) -> Sandbox:
        """A fresh sandbox with the task's environment, not yet prepared."""
        limits = Limits(wall_s=prepared.task.target.tests.timeout_s * SLOWER)
        mounts = mounts_of(prepared.environment, self.scratch, *further)
        return make_sandbox(self.kind, SandboxSpec(label=label, scratch=self.scratch, mounts=mounts, limits=limits))


@dataclass(frozen=True, slots=True)
class Seen:
    """One run of a suite."""

    condition: Condition
    failing: frozenset[str] | None
    """Ids of the baseline that did not plainly pass; None when the run gives no answer."""
    reason: str = ""
    """Why it gives none."""


async def run_once(prepared: Prepared, patch: bytes, where: Where, condition: Condition) -> Seen:
    """One run in a sandbox of its own."""
    sandbox = where.sandbox(prepared, f"qualify {prepared.task.id} {condition.name}")
    framework = framework_of(prepared)
    limit = prepared.task.target.tests.timeout_s * (SLOWER if condition.burners else 1.0)
    try:
        await sandbox.prepare()
        place = await moved(sandbox, condition.folder(), where.scratch)
        vary = partial(condition.vary, framework=framework.name)
        seen = await run_suite(prepared, patch, place, timeout_s=limit, label="work", vary=vary)
    finally:
        with anyio.CancelScope(shield=True):
            await sandbox.destroy()
    finding = examine(seen.run, prepared.task, framework.healthy_exits)
    if finding.clarity is not Clarity.ANSWERS:
        return Seen(condition, None, finding.reason)
    return Seen(condition, frozenset(name for name, found in finding.checks.items() if not COUNTS_AS_PASS[found]))


class _Moved:
    """A sandbox whose workspace lies deeper than it does."""

    def __init__(self, inner: Sandbox, folder: str) -> None:
        self.inner = inner
        self.workspace = f"{inner.workspace}/{folder}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


async def moved(sandbox: Sandbox, folder: str, scratch: Path) -> Sandbox:
    """``sandbox`` with its workspace in ``folder``, which is made for its own user."""
    if not folder:
        return sandbox
    deeper = cast("Sandbox", _Moved(sandbox, folder))
    with tempfile.TemporaryDirectory(dir=scratch) as empty:
        await sandbox.put_tree(Path(empty), deeper.workspace)
    return deeper


async def run_all(
    prepared: Prepared,
    patch: bytes,
    where: Where,
    plan: Sequence[Condition],
    told: Callable[[], None] = lambda: None,
) -> list[Seen]:
    """One run under each condition of ``plan``.

    When a varied run differs from the first one, the aspects are tried one by one, so that the record names the order,
    the clock, the zone, the path or the hash seed.
    """
    runs: list[Seen] = []
    split = False
    for condition in plan:
        seen = await run_once(prepared, patch, where, condition)
        runs.append(seen)
        told()
        if condition.place is not None and seen.failing != runs[0].failing and not split:
            split = True
            runs += [await run_once(prepared, patch, where, alone) for alone in condition.alone()]
    return runs


def as_expected(runs: Sequence[Seen], condition: str, expected: frozenset[str]) -> tuple[int, int]:
    """How many runs under a condition failed exactly ``expected``, and how many there were."""
    chosen = [seen for seen in runs if seen.condition.name == condition]
    return sum(seen.failing == expected for seen in chosen), len(chosen)


def problems_of(runs: Sequence[Seen], expected: frozenset[str], tree: str) -> list[Problem]:
    """What is wrong: first against what is declared, then between the runs."""
    plain = [seen for seen in runs if seen.condition.name == "as-graded"]
    first = plain[0]
    if first.failing is None:
        if all(seen.failing is None for seen in plain):
            return [Problem(fault=Fault.INVALID, text=f"{tree}: the suite gives no answer: {first.reason}")]
        return [Problem(fault=Fault.FLAKY, text=f"{tree}: the suite gives no answer in some runs: {first.reason}")]
    unsteady = _unsteady(runs, first.failing)
    found = _against(first.failing, expected, frozenset(unsteady), tree)
    by_text: dict[str, list[str]] = {}
    for name, conditions in unsteady.items():
        usual = "fails" if name in first.failing else "passes"
        by_text.setdefault(f"{usual} at first, otherwise under {', '.join(conditions)}", []).append(name)
    found += [Problem(fault=Fault.FLAKY, text=f"{tree}: {_some(names)}: {text}") for text, names in by_text.items()]
    for seen in runs:
        if seen.failing is None:
            text = f"{tree}: no answer under {seen.condition.name}: {seen.reason}"
            found.append(Problem(fault=Fault.FLAKY, text=text))
    return found


def _against(failing: frozenset[str], expected: frozenset[str], unsteady: frozenset[str], tree: str) -> list[Problem]:
    wrongly = sorted(failing - expected - unsteady)
    rightly = sorted(expected - failing - unsteady)
    found = []
    if expected and not failing & expected and not wrongly and rightly:
        text = f"{tree}: the defect makes no test fail: it is not noticed, or another copy than the edited one is under test"
        return [Problem(fault=Fault.INVALID, text=text)]
    if rightly:
        text = f"{tree}: {_some(rightly)} in fail_to_pass pass in spite of the defect"
        found.append(Problem(fault=Fault.INVALID, text=text))
    if wrongly:
        which = "fail as well but are not in fail_to_pass" if expected else "of the baseline do not pass"
        found.append(Problem(fault=Fault.INVALID, text=f"{tree}: {_some(wrongly)} {which}"))
    return found


def _unsteady(runs: Sequence[Seen], usual: frozenset[str]) -> dict[str, list[str]]:
    """Ids whose outcome is not always that of the first run, with the conditions under which it differs."""
    found: dict[str, list[str]] = {}
    for seen in runs:
        if seen.failing is None:
            continue
        for name in sorted(seen.failing ^ usual):
            conditions = found.setdefault(name, [])
            if seen.condition.name not in conditions:
                conditions.append(seen.condition.name)
    for conditions in found.values():
        if "varied" in conditions and set(ASPECTS).intersection(conditions):
            conditions.remove("varied")
    return found


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
