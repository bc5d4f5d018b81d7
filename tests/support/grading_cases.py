"""Small targets of our own for grading tests: files in, grade out, no registry.

The environment is the one that runs these tests; the target is two functions, one of them broken.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pairtrial.core.canonical import tree_digest
from pairtrial.grading import Grade, Work, capture, grade
from pairtrial.sandbox import Limits, Mount, Sandbox, SandboxSpec, make_sandbox
from pairtrial.tasks.environment import Environment
from pairtrial.tasks.model import TargetDocument, TaskDocument
from pairtrial.tasks.pack import Target, Task
from pairtrial.tasks.workspace import Prepared

BROKEN = "def add(a, b):\n    return a - b\n\n\ndef mul(a, b):\n    return a * b\n"
FIXED = BROKEN.replace("a - b", "a + b")
TESTS = """\
from calc import add, mul


def test_add():
    assert add(1, 2) == 3


def test_mul():
    assert mul(2, 3) == 6


class TestMore:
    def test_mul(self):
        assert mul(0, 3) == 0
"""
ADD = "tests/test_calc.py::test_add"
MUL = "tests/test_calc.py::test_mul"
MORE = "tests/test_calc.py::TestMore::test_mul"
ARGS = ("-o", "addopts=", "--disable-plugin-autoload")
FILES = {"calc.py": BROKEN, "tests/test_calc.py": TESTS, "pyproject.toml": '[tool.pytest.ini_options]\naddopts = ""\n'}


def write(root: Path, files: Mapping[str, str | bytes | None]) -> None:
    """Write files below ``root``; None removes one."""
    for name, content in files.items():
        path = root / name
        if content is None:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


@dataclass(frozen=True)
class Case:
    """One prepared task in a folder of the test."""

    root: Path
    prepared: Prepared

    def work(self, files: Mapping[str, str | bytes | None]) -> Work:
        """What an agent that writes ``files`` leaves behind."""
        workspace = self.root / "agent"
        if workspace.exists():
            shutil.rmtree(workspace)
        shutil.copytree(self.prepared.visible, workspace, symlinks=True)
        write(workspace, files)
        return capture(self.prepared.visible, workspace)

    async def grade(
        self,
        work: Work | Mapping[str, str | bytes | None],
        *,
        timeout_s: float = 60.0,
        scratch: Path | None = None,
        kind: str = "local",
        limits: Limits | None = None,
    ) -> Grade:
        """Grade it in a fresh sandbox."""
        sandbox = self.sandbox(scratch, kind, limits)
        await sandbox.prepare()
        try:
            done = work if isinstance(work, Work) else self.work(work)
            return await grade(self.prepared, done.patch, sandbox, timeout_s=timeout_s)
        finally:
            await sandbox.destroy()

    def sandbox(self, scratch: Path | None = None, kind: str = "local", limits: Limits | None = None) -> Sandbox:
        """A fresh sandbox, not yet prepared; it sees the environment and its interpreter."""
        folders = dict.fromkeys((str(self.prepared.environment.root), sys.prefix, sys.base_prefix))
        spec = SandboxSpec(
            label="test",
            scratch=scratch or self.root / "scratch",
            mounts=tuple(Mount(Path(folder), folder) for folder in folders),
            limits=limits or Limits(wall_s=300.0),
        )
        return make_sandbox(kind, spec)

    def without_hidden(self, files: Mapping[str, str | bytes | None]) -> Case:
        """The same with another visible tree, as the hiding of tests makes it."""
        visible = self.root / "visible-changed"
        shutil.copytree(self.prepared.defective, visible, symlinks=True)
        write(visible, files)
        return replace(self, prepared=replace(self.prepared, visible=visible))


def tool_environment(root: Path, programs: Mapping[str, str], modules: Path | None = None) -> Path:
    """An environment with a few programs on its PATH and, for JavaScript, packages."""
    (root / "bin").mkdir(parents=True)
    for name, place in {"python": os.path.realpath(sys.executable), **programs}.items():
        (root / "bin" / name).symlink_to(place)
    if modules is not None:
        (root / "node_modules").symlink_to(modules)
    return root


def make_case(
    root: Path,
    files: Mapping[str, str | bytes | None] | None = None,
    *,
    fail_to_pass: Sequence[str] = (ADD,),
    pass_to_pass: Iterable[str] = (MUL, MORE),
    args: Sequence[str] = ARGS,
    paths: Sequence[str] = ("tests",),
    pythonpath: Sequence[str] = (".",),
    framework: str = "pytest",
    defect_file: str = "calc.py",
    protected: Sequence[str] = (),
    environment: Path | None = None,
) -> Case:
    """A case from the files of its defective tree (our own, with defaults)."""
    target = TargetDocument.model_validate(
        {
            "schema": "pairtrial.target.v1",
            "id": "calc",
            "source": {"kind": "local", "path": "tree", "tree": "0" * 64},
            "license": "MIT",
            "environment": {"lock": "requirements.lock"},
            "pythonpath": list(pythonpath),
            "tests": {"framework": framework, "args": list(args), "paths": list(paths)},
            "protected": list(protected),
            "baseline": "baseline.txt",
        },
        strict=False,
    )
    task = TaskDocument.model_validate(
        {
            "schema": "pairtrial.task.v1",
            "id": "calc-add",
            "title": "Adding",
            "target": "calc",
            "category": "operand",
            "prompt": "prompt.md",
            "defect": [{"file": defect_file, "line": 2, "column": 13, "old": "+", "new": "-"}],
            "fail_to_pass": list(fail_to_pass),
        },
        strict=False,
    )
    defective = root / "defective"
    write(defective, FILES if files is None else files)
    baseline = (*fail_to_pass, *pass_to_pass)
    prepared = Prepared(
        task=Task(task, root, "Adding is wrong.", Target(target, root, "", baseline)),
        visible=defective,
        visible_digest="",
        git_digest="",
        defective=defective,
        defective_digest=tree_digest(defective),
        commit="",
        environment=Environment(environment or Path(sys.prefix), "", {}, ""),
    )
    return Case(root, prepared)
