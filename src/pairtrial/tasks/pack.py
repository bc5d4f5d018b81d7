"""Loading a pack: every document, everything that it refers to, every problem at once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from packaging.utils import canonicalize_name

from pairtrial.core.canonical import digest_json, sha256_hex
from pairtrial.core.errors import TaskError
from pairtrial.core.model import load_yaml
from pairtrial.tasks.locks import read_lock
from pairtrial.tasks.model import (
    Category,
    Framework,
    PackDocument,
    Source,
    Span,
    TargetDocument,
    TaskDocument,
    TestsSpec,
    Toolchain,
)
from pairtrial.tasks.npm_lock import read_npm_lock

MAX_TEXT_BYTES = 32 << 20
"""A lock, baseline or prompt larger than this is refused."""


@dataclass(frozen=True)
class Target:
    """A target with what its document refers to."""

    document: TargetDocument
    folder: Path
    """Where ``target.yaml`` lies."""
    lock: str
    """Text of the dependency lock."""
    baseline: tuple[str, ...]
    """Ids that pass on the unbroken tree, in file order."""

    @property
    def id(self) -> str:
        """Name of the target."""
        return self.document.id

    @property
    def source(self) -> Source:
        """Where its tree comes from."""
        return self.document.source

    @property
    def tests(self) -> TestsSpec:
        """How its tests are run."""
        return self.document.tests

    @property
    def name(self) -> str | None:
        """Name of its distribution, when it has one."""
        return self.document.source.name

    @property
    def version(self) -> str | None:
        """Version of its distribution, when it has one."""
        return self.document.source.version

    @cached_property
    def digest(self) -> str:
        """Of everything that defines the target."""
        return digest_json(
            {
                "document": self.document.model_dump(mode="json", by_alias=True),
                "lock": sha256_hex(self.lock.encode()),
                "baseline": sha256_hex("\n".join(self.baseline).encode()),
            }
        )


@dataclass(frozen=True)
class Task:
    """One task, whole: its document, its prompt and its target."""

    document: TaskDocument
    folder: Path
    """Where ``task.yaml`` lies."""
    prompt: str
    target: Target

    @property
    def id(self) -> str:
        """Name of the task."""
        return self.document.id

    @property
    def title(self) -> str:
        """One line about it."""
        return self.document.title

    @property
    def category(self) -> Category:
        """Kind of its defect."""
        return self.document.category

    @property
    def defect(self) -> tuple[Span, ...]:
        """Our edits to the unbroken tree."""
        return self.document.defect

    @property
    def fail_to_pass(self) -> tuple[str, ...]:
        """Ids that the defect breaks."""
        return self.document.fail_to_pass

    @cached_property
    def pass_to_pass(self) -> tuple[str, ...]:
        """All other ids of the baseline, in its order."""
        broken = frozenset(self.fail_to_pass)
        return tuple(item for item in self.target.baseline if item not in broken)

    @cached_property
    def digest(self) -> str:
        """Of everything that defines the task: documents, prompt, lock and baseline."""
        return digest_json(
            {
                "document": self.document.model_dump(mode="json", by_alias=True),
                "prompt": sha256_hex(self.prompt.encode()),
                "target": self.target.digest,
            }
        )


@dataclass(frozen=True)
class Pack:
    """An ordered collection of tasks."""

    id: str
    title: str
    folder: Path
    tasks: tuple[Task, ...]

    def task(self, name: str) -> Task:
        """The task called ``name``."""
        for item in self.tasks:
            if item.id == name:
                return item
        known = ", ".join(item.id for item in self.tasks)
        raise TaskError(f"{self.folder}: no task {name!r}", hint=f"one of: {known}", slug="unknown-task")

    @cached_property
    def digest(self) -> str:
        """Of all its tasks, in order."""
        return digest_json({"id": self.id, "tasks": [item.digest for item in self.tasks]})


@dataclass
class _Loader:
    """Collects problems while the pack is read, so that the author sees all of them at once."""

    root: Path
    problems: list[str] = field(default_factory=list)
    targets: dict[str, Target | None] = field(default_factory=dict)
    needs_baseline: bool = True

    def text(self, path: Path) -> str | None:
        try:
            if path.stat().st_size > MAX_TEXT_BYTES:
                self.problems.append(f"{path}: larger than {MAX_TEXT_BYTES >> 20} MiB")
                return None
            return path.read_bytes().decode("utf-8")
        except FileNotFoundError:
            self.problems.append(f"{path}: no such file")
        except UnicodeDecodeError as fault:
            self.problems.append(f"{path}: not UTF-8 (byte {fault.start})")
        except OSError as fault:
            self.problems.append(f"{path}: cannot be read ({fault.strerror})")
        return None

    def target(self, name: str) -> Target | None:
        if name not in self.targets:
            self.targets[name] = self._target(name)
        return self.targets[name]

    def _target(self, name: str) -> Target | None:
        return self.read_target(self.root / "targets" / name)

    def read_target(self, folder: Path) -> Target | None:
        path, name = folder / "target.yaml", folder.name
        try:
            document = load_yaml(path, TargetDocument, TaskError)
        except TaskError as fault:
            self.problems.append(fault.message)
            return None
        if document.id != name:
            self.problems.append(f"{path}: id: is {document.id!r}, but the folder is called {name!r}")
        pinned = document.environment.lock
        lock = self.text(path.parent / pinned) if pinned is not None else ""
        baseline = self.text(path.parent / document.baseline) if self.needs_baseline else ""
        if lock is None or baseline is None:
            return None
        ids = read_ids(baseline)
        target = Target(document, path.parent, lock, ids)
        self.problems.extend(_target_problems(target, self.needs_baseline))
        return target

    def task(self, name: str) -> Task | None:
        path = self.root / name / "task.yaml"
        try:
            document = load_yaml(path, TaskDocument, TaskError)
        except TaskError as fault:
            self.problems.append(fault.message)
            return None
        if document.id != name:
            self.problems.append(f"{path}: id: is {document.id!r}, but the folder is called {name!r}")
        prompt = self.text(path.parent / document.prompt)
        target = self.target(document.target)
        if prompt is None or target is None:
            return None
        if not prompt.strip():
            self.problems.append(f"{path.parent / document.prompt}: empty; the agent would be told nothing")
        self.problems.extend(f"{path}: {line}" for line in _task_problems(document, target))
        return Task(document, path.parent, prompt, target)


def read_ids(text: str) -> tuple[str, ...]:
    """The ids of a baseline; one that a line cannot hold stands there as a JSON string."""
    return tuple(json.loads(line) if line.startswith('"') else line for line in text.split("\n") if line)


def written_id(test_id: str) -> str:
    """An id as a baseline holds it."""
    odd = "\n" in test_id or "\r" in test_id or test_id.startswith('"')
    return json.dumps(test_id) if odd else test_id


def load_pack(path: Path) -> Pack:
    """Read the pack in folder ``path`` (or its ``pack.yaml``); `TaskError` lists every problem, one on a line."""
    root = path.parent if path.name == "pack.yaml" else path
    document = load_yaml(root / "pack.yaml", PackDocument, TaskError)
    loader = _Loader(root)
    loader.problems.extend(
        f"{root / 'pack.yaml'}: tasks: {name!r} is listed twice" for name in _repeated(document.tasks)
    )
    tasks = [loader.task(name) for name in dict.fromkeys(document.tasks)]
    if loader.problems:
        raise TaskError("\n".join(loader.problems), slug="invalid-pack")
    return Pack(document.id, document.title, root, tuple(item for item in tasks if item is not None))


def load_target(folder: Path) -> Target:
    """One target without its baseline, which may not exist yet; `TaskError` lists every problem."""
    loader = _Loader(folder.parent.parent, needs_baseline=False)
    target = loader.read_target(folder.resolve())
    if target is None or loader.problems:
        raise TaskError("\n".join(loader.problems), slug="invalid-target")
    return target


def _repeated(items: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    return list(dict.fromkeys(item for item in items if item in seen or seen.add(item)))  # type: ignore[func-returns-value]


_TOOLCHAIN = {
    Framework.PYTEST: Toolchain.PYTHON,
    Framework.UNITTEST: Toolchain.PYTHON,
    Framework.GO_TEST: Toolchain.GO,
    Framework.CARGO_TEST: Toolchain.RUST,
}
"""Kind of environment that a framework needs; the others need node."""


def _target_problems(target: Target, needs_baseline: bool) -> list[str]:
    document = target.document
    wanted = _TOOLCHAIN.get(document.tests.framework, Toolchain.NODE)
    if document.environment.kind is not wanted:
        where = target.folder / "target.yaml"
        return [f"{where}: environment.kind: {document.tests.framework.value} needs {wanted.value}"]
    problems = _lock_problems(target)
    listing = target.folder / target.document.baseline
    if not target.baseline and needs_baseline:
        problems.append(f"{listing}: no test ids")
    problems.extend(f"{listing}: {item!r} is listed twice" for item in _repeated(target.baseline)[:5])
    return problems


def _lock_problems(target: Target) -> list[str]:
    where = target.folder / str(target.document.environment.lock)
    if target.document.environment.kind is Toolchain.NODE:
        packages, faults = read_npm_lock(target.lock)
        names = {package.name for package in packages}
        itself = target.name in names
        problems = [f"{where}: {line}" for line in faults]
        hint = "leave it out of the lock"
    elif target.document.environment.kind is Toolchain.PYTHON:
        pins, faults = read_lock(target.lock)
        problems = [f"{where}: {line}" for line in faults]
        listed = [pin.name for pin in pins]
        names = set(listed)
        problems.extend(f"{where}: {name} is pinned twice" for name in _repeated(listed))
        itself = target.name is not None and canonicalize_name(target.name) in names
        hint = f"compile the lock with --no-emit-package {target.name}"
        if target.tests.framework is Framework.PYTEST and "pytest" not in names:
            problems.append(f"{where}: does not pin pytest, which the tests need")
    else:
        return []
    if itself:
        # Otherwise the unbroken package lies in the environment, readable for every agent.
        problems.append(f"{where}: pins the target {target.name} itself; {hint}")
    return problems


def _task_problems(document: TaskDocument, target: Target) -> list[str]:
    known = frozenset(target.baseline)
    problems = [f"fail_to_pass: {item!r} is listed twice" for item in _repeated(document.fail_to_pass)]
    problems.extend(
        f"fail_to_pass: {item!r} is not in the baseline of {target.id}; ids are compared exactly"
        for item in document.fail_to_pass
        if item not in known
    )
    places = [(span.file, span.line, span.column) for span in document.defect]
    if len(set(places)) != len(places):
        problems.append("defect: two spans start at the same place")
    return problems
