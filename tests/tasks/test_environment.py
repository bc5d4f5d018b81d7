"""Environments that can be made without a registry: the lock is empty, the metadata is ours."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import anyio
import pytest

from pairtrial.core.errors import EnvironmentFault, TaskError
from pairtrial.tasks import Environment, Target, verify_environment
from pairtrial.tasks.environment import build_environment


def run_python(environment: Environment, code: str) -> str:
    done = subprocess.run(
        [environment.python, "-B", "-c", code], capture_output=True, text=True, check=True, env={}, cwd="/"
    )
    return done.stdout.strip()


def test_the_environment_knows_the_target_without_having_it(bare_target: Target, cache: Path, tmp_path: Path) -> None:
    environment = anyio.run(build_environment, bare_target, cache, tmp_path)
    assert run_python(environment, "import importlib.metadata as m; print(m.version('abacus'))") == "1.0"
    code = "import importlib.util as u; print(u.find_spec('abacus'), u.find_spec('pytest'))"
    assert run_python(environment, code) == "None None"
    assert environment.toolchain["packages"] == ["abacus-1.0"]
    assert set(environment.toolchain) == {"python", "implementation", "platform", "packages", "installed", "uv"}
    assert environment.bin == environment.root / "bin"


def test_it_is_built_once(bare_target: Target, cache: Path, tmp_path: Path) -> None:
    first = anyio.run(build_environment, bare_target, cache, tmp_path)
    built = (first.root / "pyvenv.cfg").stat().st_ino
    second = anyio.run(build_environment, bare_target, cache, tmp_path)
    assert second == first
    assert (second.root / "pyvenv.cfg").stat().st_ino == built


def test_many_at_once_build_one(bare_target: Target, cache: Path, tmp_path: Path) -> None:
    found: list[Environment] = []

    async def one() -> None:
        found.append(await build_environment(bare_target, cache, tmp_path))

    async def all_of_them() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(one)

    anyio.run(all_of_them)
    assert found == [found[0]] * 4
    assert [item.name for item in (cache / "environments").iterdir()] == [found[0].root.name]


def test_a_requirement_that_the_lock_lacks_is_refused(bare_target: Target, cache: Path, tmp_path: Path) -> None:
    """What the target says that it requires is held against the lock, extras apart."""
    (tmp_path / "PKG-INFO").write_text(
        "Name: abacus\nRequires-Dist: bead>=2\nRequires-Dist: chalk; extra == 'draw'\n\nRequires-Dist: body\n"
    )
    with pytest.raises(TaskError) as caught:
        anyio.run(build_environment, bare_target, cache, tmp_path)
    assert caught.value.slug == "incomplete-lock"
    assert "bead" in caught.value.message
    assert "chalk" not in caught.value.message
    assert "body" not in caught.value.message
    assert "requirements.lock" in caught.value.message
    assert list((cache / "environments").iterdir()) == []


def test_an_unreachable_index_is_the_machines_fault(
    bare_target: Target, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    lock = "bead==1.0 --hash=sha256:" + "0" * 64
    target = Target(bare_target.document, bare_target.folder, lock, bare_target.baseline)
    with pytest.raises(EnvironmentFault) as caught:
        anyio.run(build_environment, target, cache, None)
    assert caught.value.exit_code == 4
    assert list((cache / "environments").iterdir()) == []


def test_another_lock_is_another_environment(bare_target: Target, cache: Path, tmp_path: Path) -> None:
    other = Target(bare_target.document, bare_target.folder, "# comment\n", bare_target.baseline)
    first = anyio.run(build_environment, bare_target, cache, tmp_path)
    second = anyio.run(build_environment, other, cache, tmp_path)
    assert first.root != second.root
    assert first.digest == second.digest


def test_a_changed_environment_is_noticed(bare_target: Target, cache: Path, tmp_path: Path) -> None:
    environment = anyio.run(build_environment, bare_target, cache, tmp_path)
    anyio.run(verify_environment, environment)
    (site,) = environment.root.glob("lib/python*/site-packages")
    (site / "evil.pth").write_text("import evil\n")
    with pytest.raises(EnvironmentFault, match="have changed"):
        anyio.run(verify_environment, environment)


def test_what_a_killed_builder_left_is_removed(bare_target: Target, cache: Path, tmp_path: Path) -> None:
    first = anyio.run(build_environment, bare_target, cache, tmp_path)
    left = first.root.parent / f".{first.root.name}.abc"
    (left / "environment").mkdir(parents=True)
    (first.root / "pairtrial-environment.json").write_text(json.dumps({"half": 1}))
    again = anyio.run(build_environment, bare_target, cache, tmp_path)
    assert again.root == first.root
    assert again.tree
    assert not left.exists()


def test_its_programs_run_from_another_place(bare_target: Target, cache: Path, tmp_path: Path) -> None:
    environment = anyio.run(build_environment, bare_target, cache, tmp_path)
    moved = tmp_path / "moved"
    environment.root.rename(moved)
    done = subprocess.run(
        [moved / "bin" / "python", "-c", "import sys; print(sys.prefix)"], capture_output=True, env={}
    )
    assert done.stdout.decode().strip() == os.fspath(moved)
