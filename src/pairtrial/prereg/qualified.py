"""The gate before freezing: every task is qualified or excepted in writing, and no provider gives a task away."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pairtrial.core.canonical import digest_json, walk_tree
from pairtrial.prereg.plan import Plan
from pairtrial.providers import Provider
from pairtrial.tasks import Task
from pairtrial.tasks.leaks import leaks_in
from pairtrial.tasks.qualification import Qualification, why_unqualified

IGNORED = ("__pycache__", ".git")
MAX_TEXT = 8 << 20
"""A file of a provider larger than this is looked at up to here."""
SHOWN = 20


def qualification_problems(
    path: Path, plan: Plan, tasks: Mapping[str, Task], found: Mapping[str, Qualification]
) -> list[str]:
    """One line for every task that is neither qualified nor excepted in the plan."""
    problems = []
    for name, task in tasks.items():
        why = why_unqualified(task, found.get(name))
        if why is not None and name not in plan.tasks.exceptions:
            problems.append(
                f"{path}: tasks.ids: {name} {why}; run `pairtrial tasks qualify {task.folder.parent} --task {name}`, "
                f"leave it out, or say why it is used all the same under tasks.exceptions"
            )
    return problems


def qualification_notes(
    plan: Plan, tasks: Mapping[str, Task], found: Mapping[str, Qualification], grader: str, runtime: str
) -> list[str]:
    """What the author should know: exceptions, needless ones, and qualifications by another grader or runtime."""
    notes = []
    for name, reason in sorted(plan.tasks.exceptions.items()):
        why = why_unqualified(tasks[name], found.get(name))
        if why is None:
            notes.append(f"tasks.exceptions: {name} is qualified; the exception is needless")
        else:
            notes.append(f"{name} {why}; registered exception: {reason}")
    older = [name for name in tasks if name in found and found[name].grader != grader]
    if older:
        notes.append(
            f"{len(older)} of {len(tasks)} tasks were qualified with another version of the grader, first {older[0]}"
        )
    other = [name for name in tasks if name in found and found[name].runtime != runtime]
    if other:
        notes.append(
            f"{len(other)} of {len(tasks)} tasks were read through with another runtime of the agents, first {other[0]}"
        )
    return notes


def qualification_identities(
    plan: Plan, tasks: Mapping[str, Task], found: Mapping[str, Qualification]
) -> dict[str, str]:
    """What the lock holds of every task's qualification; an exception with its reason."""
    table = {}
    for name in tasks:
        entry = found.get(name)
        digest = entry.digest if entry else "none"
        if name in plan.tasks.exceptions:
            digest = digest_json({"exception": plan.tasks.exceptions[name], "found": digest})
        table[f"task.{name}.qualification"] = digest
    return table


def leak_problems(
    path: Path, tasks: Mapping[str, Task], found: Mapping[str, Qualification], providers: Mapping[str, Provider]
) -> list[str]:
    """One line for every line of a provider's files that gives a task away."""
    pairs = [(task, found.get(name)) for name, task in tasks.items()]
    problems: list[str] = []
    for arm, provider in providers.items():
        folder = Path(provider.folder)
        for entry in walk_tree(folder, exclude=IGNORED):
            if entry.kind != "file":
                continue
            with entry.source.open("rb") as handle:
                data = handle.read(MAX_TEXT)
            problems += [f"{path}: arm {arm!r}: {leak}" for leak in leaks_in(f"{folder}/{entry.path}", data, pairs)]
        for name, data in provider.context.items():
            if not (folder / provider.config.context_files.get(name, name)).is_file():
                problems += [f"{path}: arm {arm!r}: context file {leak}" for leak in leaks_in(name, data, pairs)]
    if len(problems) > SHOWN:
        problems = [*problems[:SHOWN], f"{path}: and {len(problems) - SHOWN} more lines like these"]
    return problems
