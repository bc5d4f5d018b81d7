"""What a killed harness leaves is removed at the next start; what belongs to a living one stays."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from pairtrial.core.errors import SandboxError
from pairtrial.sandbox import Sandbox, new_scratch, sweep
from pairtrial.sandbox.cgroups import find_hierarchies
from pairtrial.sandbox.disk import mount_tmpfs
from pairtrial.sandbox.engine import engine
from pairtrial.sandbox.owner import current_owner, make_folder

pytestmark = pytest.mark.anyio
Maker = Callable[..., Awaitable[Sandbox]]
HARNESS = """
import anyio, sys
from pathlib import Path
from pairtrial.sandbox import Limits, SandboxSpec, make_sandbox

async def main():
    limits = Limits(wall_s=600, memory_bytes=200 << 20, pids=50, disk_bytes=20 << 20)
    spec = SandboxSpec(label="cell", scratch=Path({scratch!r}), image={image!r}, network="gateway", limits=limits)
    sandbox = make_sandbox({kind!r}, spec)
    await sandbox.prepare()
    await sandbox.serve_gateway(host_port=1)
    process = await sandbox.start(["sh", "-c", "setsid sleep {mark} & sleep {mark}"],
                                  env={{"PATH": "/usr/bin:/bin"}}, timeout_s=600)
    await process.wait()

anyio.run(main)
"""


def groups(pid: int) -> list[str]:
    """Control groups that a process made."""
    found = find_hierarchies()
    parents = set() if found is None else set(found.parents.values())
    return [str(path) for parent in parents for path in parent.glob(f"pairtrial-*.{pid}.*")]


def mounted_below(folder: Path) -> list[str]:
    return [line for line in Path("/proc/mounts").read_text().splitlines() if f" {folder}/" in line]


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "scratch"


def test_nothing_is_left_after_a_kill_and_a_sweep(kind: str, scratch: Path, alive: Callable[[str], list[int]]) -> None:
    mark = f"2{secrets.randbelow(10**6):06}"
    code = HARNESS.format(scratch=str(scratch), kind=kind, mark=mark, image="pairtrial/host:test")
    harness = subprocess.Popen([sys.executable, "-c", code])
    give_up = time.monotonic() + 60
    while len(alive(f"sleep\0{mark}")) < 2 and time.monotonic() < give_up:
        time.sleep(0.05)
    assert len(alive(f"sleep\0{mark}")) >= 2
    assert sweep(scratch).folders == ()  # its owner lives
    assert groups(harness.pid) or kind == "docker"
    harness.send_signal(signal.SIGKILL)
    harness.wait()
    if kind != "docker":  # there the engine keeps it until the sweep
        give_up = time.monotonic() + 10
        while alive(f"sleep\0{mark}") and time.monotonic() < give_up:
            time.sleep(0.05)
        assert alive(f"sleep\0{mark}") == []
    swept = sweep(scratch)
    assert len(swept.folders) == 1 and swept.left == ()
    assert len(swept.containers) == (kind == "docker")
    assert alive(f"sleep\0{mark}") == []
    assert list(scratch.iterdir()) == []
    assert mounted_below(scratch) == []
    assert groups(harness.pid) == []
    assert sweep(scratch).folders == ()


async def test_a_living_sandbox_is_not_swept(new_sandbox: Maker, scratch: Path, env: dict[str, str]) -> None:
    sandbox = await new_sandbox(scratch=scratch)
    assert sweep(scratch).folders == ()
    assert (await sandbox.exec(["true"], env=env, timeout_s=20)).ok


def dead_folder(scratch: Path, **changes: str) -> Path:
    folder = make_folder(scratch, {"label": "x"})
    owner = replace(current_owner(), start="1", **changes)  # type: ignore[arg-type]
    (folder / "owner.json").write_text(json.dumps({"owner": asdict(owner), "labels": {}}))
    return folder


def test_only_the_provably_dead_go(scratch: Path, tmp_path: Path) -> None:
    dead = dead_folder(scratch)
    rebooted = dead_folder(scratch, boot="an earlier one")
    other_machine = dead_folder(scratch, host="another", boot="another")
    other_space = dead_folder(scratch, space="pid:[1]")
    mine = make_folder(scratch, {"label": "x"})
    silent = scratch / "r-0123456789abcdef"
    silent.mkdir()
    foreign = scratch / "somebody-elses"
    foreign.mkdir()
    target = tmp_path / "target"
    target.mkdir()
    (target / "kept").touch()
    (scratch / "r-fedcba9876543210").symlink_to(target)
    swept = sweep(scratch)
    assert set(swept.folders) == {dead.name, rebooted.name}
    assert swept.left == (silent.name,)
    assert {path.name for path in scratch.iterdir()} == {
        other_machine.name, other_space.name, mine.name, silent.name, foreign.name, "r-fedcba9876543210",
    }  # fmt: skip
    assert (target / "kept").exists()


def test_a_folder_whose_maker_died_while_making_it(scratch: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from pairtrial.sandbox import owner\n"
        "Path.rename = lambda *_: os.kill(os.getpid(), 9)\n"
        f"owner.make_folder(Path({str(scratch)!r}), {{}})"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    (left,) = scratch.iterdir()
    assert left.name.startswith("n-")
    (left / "owner.json").unlink()  # even when it died before that was written
    assert sweep(scratch).folders == (left.name,)


def test_a_mount_of_a_dead_owner_is_detached(scratch: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root")
    folder = dead_folder(scratch)
    (folder / "d").mkdir()
    assert mount_tmpfs(folder / "d", 1 << 20)
    (folder / "d" / "f").touch()
    assert sweep(scratch).folders == (folder.name,)
    assert mounted_below(scratch) == []


def test_a_process_that_outlived_everything_is_found_by_its_home(
    scratch: Path, alive: Callable[[str], list[int]]
) -> None:
    folder = dead_folder(scratch)
    mark = f"3{secrets.randbelow(10**6):06}"
    stray = subprocess.Popen(["sleep", mark], env={"HOME": f"{folder}/h"})
    assert sweep(scratch).processes == ("sleep",)
    assert stray.wait(10) == -signal.SIGKILL
    assert alive(mark) == []


def test_a_scratch_folder_that_is_not_there(tmp_path: Path) -> None:
    assert sweep(tmp_path / "never").folders == ()


@pytest.mark.usefixtures("docker_engine")
async def test_containers_of_others_stay(scratch: Path) -> None:
    api = engine().api
    made = [
        api.create_container("pairtrial/host:test", ["true"], labels=labels)["Id"]
        for labels in (
            {},
            {"pairtrial.owner": "not an owner"},
            {"pairtrial.owner": json.dumps(asdict(current_owner()))},
            {"pairtrial.owner": json.dumps(asdict(replace(current_owner(), start="1")))},
        )
    ]
    swept = sweep(scratch)
    left = {item["Id"] for item in api.containers(all=True)}
    for name in made[:3]:
        api.remove_container(name)
    assert len(swept.containers) == 1
    assert left == set(made[:3])


def test_a_new_scratch_folder_removes_those_of_killed_runs(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from pairtrial.sandbox import new_scratch, owner\n"
        f"made = new_scratch(Path({str(tmp_path)!r})); owner.make_folder(made, {{}})\n"
        "if len(sys.argv) > 1: (made / 'somebody-elses').mkdir()\nos.kill(os.getpid(), 9)"
    )
    living = new_scratch(tmp_path)
    subprocess.run([sys.executable, "-c", code], check=False)
    subprocess.run([sys.executable, "-c", code, "more"], check=False)
    (tmp_path / "pairtrial-of-nobody").mkdir()
    (tmp_path / "pairtrial-link").symlink_to(tmp_path)
    made = new_scratch(tmp_path)
    left = {path.name: sorted(inner.name for inner in path.iterdir()) for path in tmp_path.iterdir()}
    del left["pairtrial-link"]
    (kept,) = left.keys() - {living.name, made.name, "pairtrial-of-nobody"}
    assert left == {
        living.name: [".owner.json"],
        made.name: [".owner.json"],
        "pairtrial-of-nobody": [],
        kept: [".owner.json", "somebody-elses"],
    }


def test_a_scratch_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="--scratch"):
        new_scratch(tmp_path / "missing")
