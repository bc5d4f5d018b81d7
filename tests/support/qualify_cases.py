"""Small tasks of our own for qualification: a pack on disk, its trees prepared, the environment the one of these tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from pairtrial.core.canonical import tree_digest
from pairtrial.core.errors import SandboxUnavailableError
from pairtrial.grading.qualify.rounds import Where
from pairtrial.sandbox import Limits, SandboxSpec, make_sandbox
from pairtrial.tasks import Pack, Prepared, load_pack, prepare_trees
from pairtrial.tasks.environment import Environment

CODE = '''\
"""Counting beads."""


def clamp(value, low, high):
    """Keep a value between two bounds."""
    if value < low:
        return low
    chosen_bound = high if value > high else value
    return chosen_bound


def count(beads):
    return len(beads)
'''
TESTS = """\
from abacus import clamp, count


def test_the_upper_bound_of_an_abacus_is_kept():
    outermost_bead_position = clamp(7331, 1, 9)
    assert outermost_bead_position == 9, "beads must not leave the wire"


def test_inside():
    assert clamp(5, 1, 9) == 5


def test_count():
    assert count([1, 2]) == 2
"""
HIDDEN = "tests/test_abacus.py::test_the_upper_bound_of_an_abacus_is_kept"
BASELINE = (HIDDEN, "tests/test_abacus.py::test_inside", "tests/test_abacus.py::test_count")
PROMPT = (
    "Too large a value is not limited.\n\n```python\nfrom abacus import clamp\n\nassert clamp(10, 1, 9) == 9\n```\n"
)
DEFECT = {"file": "src/abacus.py", "scope": "clamp", "line": 8, "column": 19, "old": "high if", "new": "value if"}
LOCK = "pytest==9.2.0 \\\n    --hash=sha256:" + "0" * 64 + "\n"


@dataclass
class TaskFolder:
    """A pack with one task, which a test can change before it is prepared."""

    root: Path
    files: dict[str, str] = field(default_factory=lambda: {"src/abacus.py": CODE, "tests/test_abacus.py": TESTS})
    baseline: tuple[str, ...] = BASELINE
    prompt: str = PROMPT
    target: dict[str, Any] = field(default_factory=dict)
    task: dict[str, Any] = field(default_factory=dict)

    def load(self) -> Pack:
        target = self.root / "targets" / "abacus"
        for name, text in self.files.items():
            path = target / "source" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        folder = self.root / "abacus-clamp"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "prompt.md").write_text(self.prompt)
        (target / "requirements.lock").write_text(LOCK)
        (target / "baseline.txt").write_text("".join(f"{item}\n" for item in self.baseline))
        document = {
            "schema": "pairtrial.target.v1",
            "id": "abacus",
            "source": {"kind": "local", "path": "source", "tree": tree_digest(target / "source")},
            "license": "MIT",
            "environment": {"lock": "requirements.lock"},
            "pythonpath": ["src"],
            "tests": {
                "framework": "pytest",
                "args": ["-p", "no:cacheprovider", "-o", "addopts=", "--disable-plugin-autoload"],
                "paths": ["tests"],
                "timeout_s": 30,
            },
            "baseline": "baseline.txt",
        }
        task = {
            "schema": "pairtrial.task.v1",
            "id": "abacus-clamp",
            "title": "Clamp does not clamp",
            "target": "abacus",
            "category": "condition",
            "prompt": "prompt.md",
            "defect": [DEFECT],
            "fail_to_pass": [HIDDEN],
        }
        pack = {"schema": "pairtrial.pack.v1", "id": "mine", "title": "Mine", "tasks": ["abacus-clamp"]}
        (target / "target.yaml").write_text(yaml.safe_dump({**document, **self.target}))
        (folder / "task.yaml").write_text(yaml.safe_dump({**task, **self.task}))
        (self.root / "pack.yaml").write_text(yaml.safe_dump(pack))
        return load_pack(self.root)

    async def prepare(self) -> Prepared:
        """The trees, with the interpreter of these tests as environment."""
        trees = await prepare_trees(self.load().tasks[0], self.root / "cache")
        environment = Environment(Path(sys.prefix), "e" * 64, {}, "")
        return Prepared(**{item.name: getattr(trees, item.name) for item in fields(trees)}, environment=environment)


def sealed(prepared: Prepared, visible: Path) -> Prepared:
    """The same with a changed visible tree, as if it had been prepared that way."""
    return replace(
        prepared,
        visible=visible,
        visible_digest=tree_digest(visible, exclude=(".git",)),
        git_digest=tree_digest(visible / ".git"),
    )


def git(folder: Path, *arguments: str, stdin: str | None = None) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True, input=stdin
    )
    return done.stdout.strip()


async def isolating(scratch: Path) -> Where:
    """The sandbox for the agent that reads everything: bubblewrap where it works."""
    scratch.mkdir(exist_ok=True)
    try:
        sandbox = make_sandbox("bubblewrap", SandboxSpec(label="t", scratch=scratch, limits=Limits(wall_s=30.0)))
        await sandbox.prepare()
        await sandbox.destroy()
    except SandboxUnavailableError:
        return Where("local", scratch)
    return Where("bubblewrap", scratch)


def changed(text: str, replacements: Mapping[str, str]) -> str:
    for old, new in replacements.items():
        assert old in text, old
        text = text.replace(old, new)
    return text
