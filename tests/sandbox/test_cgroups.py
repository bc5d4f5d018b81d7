"""Control groups of both versions, on folders that stand for the kernel's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pairtrial.core.errors import SandboxError
from pairtrial.sandbox import Limits
from pairtrial.sandbox.cgroups import Counters, Group, Hierarchies, find_hierarchies, group_name, sweep_groups
from pairtrial.sandbox.container import Inmates

LIMITS = Limits(wall_s=1, memory_bytes=1000, pids=7, cpus=1.5)


def kernel(proc: Path, mounts: list[str], own: list[str]) -> Path:
    (proc / "self").mkdir(parents=True)
    (proc / "mounts").write_text("".join(line + "\n" for line in mounts))
    (proc / "self" / "cgroup").write_text("".join(line + "\n" for line in own))
    return proc


@pytest.fixture
def v2(tmp_path: Path) -> Hierarchies:
    place = tmp_path / "cg"
    group = place / "user" / "session"
    group.mkdir(parents=True)
    for folder in (group, group.parent, place):
        (folder / "cgroup.procs").touch()
        (folder / "cgroup.subtree_control").touch()
    proc = kernel(tmp_path / "proc", [f"cgroup2 {place} cgroup2 rw 0 0", "x /y ext4 rw 0 0"], ["0::/user/session"])
    found = find_hierarchies(proc)
    assert found is not None
    return found


def test_version_2_writes_its_own_names(v2: Hierarchies) -> None:
    group = Group(v2, "name")
    group.make(LIMITS, extra_memory=24, extra_pids=3)
    (folder,) = map(Path, group.folders)
    assert folder.name == "pairtrial-name"
    written = {path.name: path.read_text() for path in folder.iterdir()}
    assert written == {"memory.max": "1024", "memory.swap.max": "0", "pids.max": "10", "cpu.max": "150000 100000"}


def test_version_2_counts(v2: Hierarchies) -> None:
    group = Group(v2, "name")
    group.make(Limits(wall_s=1))
    folder = Path(group.folders[0])
    assert group.counters() == Counters(0, 0)
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 2\noom_kill 3\n")
    (folder / "pids.events").write_text("max 4\n")
    assert group.counters() == Counters(oom_kills=3, pids_refused=4)


def test_version_2_asks_for_controllers_and_takes_the_parent_where_ours_refuses(tmp_path: Path) -> None:
    place = tmp_path / "cg"
    ours = place / "app" / "scope"
    ours.mkdir(parents=True)
    for folder in (ours, ours.parent):
        (folder / "cgroup.procs").touch()
    (ours / "cgroup.subtree_control").mkdir()  # stands for EBUSY: it holds processes
    (ours.parent / "cgroup.subtree_control").touch()
    proc = kernel(tmp_path / "proc", [f"cgroup2 {place} cgroup2 rw 0 0"], ["0::/app/scope"])
    found = find_hierarchies(proc)
    assert found is not None and found.version == 2
    assert set(found.parents.values()) == {ours.parent}
    assert (ours.parent / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"


def test_version_1_writes_its_own_names(tmp_path: Path) -> None:
    for name in ("memory", "pids", "cpu"):
        (tmp_path / name).mkdir()
    mounts = [f"cgroup {tmp_path}/{name} cgroup rw,{name} 0 0" for name in ("memory", "pids", "cpu")]
    own = ["1:cpu,cpuacct:/", "2:memory:/", "3:pids:/gone/elsewhere"]
    found = find_hierarchies(kernel(tmp_path / "proc", mounts, own))
    assert found is not None and found.version == 1
    group = Group(found, "name")
    group.make(LIMITS)
    written = {
        f"{Path(folder).parent.name}/{path.name}": path.read_text()
        for folder in group.folders
        for path in Path(folder).iterdir()
    }
    assert written == {
        "memory/memory.limit_in_bytes": "1000",
        "memory/memory.memsw.limit_in_bytes": "1000",
        "pids/pids.max": "7",
        "cpu/cpu.cfs_period_us": "100000",
        "cpu/cpu.cfs_quota_us": "150000",
    }
    (tmp_path / "memory" / "pairtrial-name" / "memory.oom_control").write_text("under_oom 0\noom_kill 2\n")
    assert group.counters().oom_kills == 2


def test_no_groups_where_none_are_mounted(tmp_path: Path) -> None:
    assert find_hierarchies(kernel(tmp_path / "a", ["x / ext4 rw 0 0"], ["0::/"])) is None
    assert find_hierarchies(tmp_path / "not-there") is None


def test_a_limit_that_cannot_be_set_is_an_error_and_leaves_no_group(v2: Hierarchies, tmp_path: Path) -> None:
    parent = v2.parents["pids"]
    (parent / "pairtrial-name").mkdir()
    (parent / "pairtrial-name" / "memory.max").mkdir()
    with pytest.raises(SandboxError, match="control group"):
        Group(v2, "name").make(LIMITS)


def test_only_groups_of_the_dead_are_swept(v2: Hierarchies) -> None:
    parent = v2.parents["pids"]
    ended = subprocess.Popen(["true"])
    ended.wait()
    alive = group_name("r-1")
    _, _, start, space = alive.split(".")
    dead = f"r-2.{ended.pid}.{start}.{space}"
    elsewhere = f"r-3.{ended.pid}.{start}.1"
    for name in (alive, dead, elsewhere, "r-4", "r.5.x.y"):
        (parent / f"pairtrial-{name}").mkdir()
    assert sweep_groups(v2) == [dead]
    assert {path.name for path in parent.glob("pairtrial-*")} == {
        f"pairtrial-{name}" for name in (alive, elsewhere, "r-4", "r.5.x.y")
    }


def container(tmp_path: Path, version: int) -> Inmates:
    """A container whose first process is 10 (user 61001), with a sleeper 11 and commands 12 to 14."""
    root, proc = tmp_path / "cg", tmp_path / "proc"
    place = root / "docker" / "x" if version == 2 else root / "pids" / "docker" / "x"
    place.mkdir(parents=True)
    if version == 2:
        (place / "pids.max").touch()
    else:
        (root / "memory" / "docker" / "x").mkdir(parents=True)
    (place / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in (10, 11, 12, 13, 14, 15)))
    for pid, parent, user, state in (
        (10, 1, 61001, "S"), (11, 10, 61001, "S"), (12, 1, 61000, "S"), (13, 12, 61000, "R"), (14, 10, 61000, "S"),
        (15, 12, 61000, "Z"),
    ):  # fmt: skip
        (proc / str(pid)).mkdir(parents=True)
        (proc / str(pid) / "status").write_text(
            f"Name:\tx\nState:\t{state} (x)\nUid:\t{user}\t{user}\t{user}\t{user}\n"
        )
        (proc / str(pid) / "stat").write_text(f"{pid} (a b) c) {state} {parent} 1 1")
        (proc / str(pid) / "comm").write_text(f"name{pid}\n")
    lines = ["0::/docker/x"] if version == 2 else ["5:pids:/docker/x", "4:memory:/docker/x", "0::/"]
    (proc / "10" / "cgroup").write_text("\n".join(lines) + "\n")
    return Inmates(10, root, proc)


@pytest.mark.parametrize("version", [1, 2])
def test_commands_of_a_container_are_told_from_its_own_processes(tmp_path: Path, version: int) -> None:
    inmates = container(tmp_path, version)
    assert inmates.visible and inmates.version == version
    assert inmates.commands() == [12, 13, 14]
    assert sorted(inmates.below(12)) == [12, 13]
    assert inmates.name(13) == "name13" and inmates.name(999) == "?"


def test_counters_of_a_container_in_version_2(tmp_path: Path) -> None:
    inmates = container(tmp_path, 2)
    (tmp_path / "cg" / "docker" / "x" / "memory.events").write_text("oom_kill 1\n")
    assert inmates.counters() == Counters(oom_kills=1, pids_refused=0)


def test_a_container_that_cannot_be_seen(tmp_path: Path) -> None:
    inmates = Inmates(os.getpid(), tmp_path, tmp_path)
    assert not inmates.visible and inmates.commands() == [] and inmates.counters() == Counters()
