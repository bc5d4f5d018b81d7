"""One real package from the user's index, end to end: fetched, hidden, run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import anyio
import pytest

from pairtrial.tasks import copy_workspace, load_pack, prepare, task_env, test_command
from pairtrial.tasks.workspace import unbroken_tree

CORE = Path(__file__).resolve().parents[2] / "tasks" / "core"
TASK = "toolz-join-unmatched-left"


@pytest.mark.registry
def test_a_real_package_fails_exactly_where_the_defect_is(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    task = load_pack(CORE).task(TASK)
    cache = tmp_path_factory.getbasetemp() / "registry-cache"
    prepared = anyio.run(prepare, task, cache)
    anyio.run(copy_workspace, prepared, tmp_path / "visible")
    anyio.run(unbroken_tree, task, cache, tmp_path / "unbroken")

    def run(tree: Path, *more: str) -> subprocess.CompletedProcess[bytes]:
        argv = [str(prepared.environment.python), *test_command(task)[1:], "-q", *more]
        env = task_env(task, prepared, str(tree))
        return subprocess.run(argv, cwd=tree, env=env, capture_output=True, check=False, timeout=100)

    hidden = [item.partition("::")[2].encode() for item in task.fail_to_pass]
    visible = run(tmp_path / "visible", "--collect-only")
    assert visible.returncode == 0
    assert not any(name in visible.stdout for name in hidden)
    broken = run(prepared.defective, "-rf")
    failed = {line.split()[1].decode() for line in broken.stdout.splitlines() if line.startswith(b"FAILED")}
    assert failed == set(task.fail_to_pass)
    assert run(tmp_path / "unbroken").returncode == 0
    # The edited copy is the only copy: nothing else provides the package.
    where = subprocess.run(
        [prepared.environment.python, "-c", "import toolz; print(toolz.__file__)"],
        env=task_env(task, prepared, str(tmp_path / "visible")),
        cwd="/",
        capture_output=True,
        check=True,
    )
    assert where.stdout.decode().strip() == str(tmp_path / "visible" / "toolz" / "__init__.py")
