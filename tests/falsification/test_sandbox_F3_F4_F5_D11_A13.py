"""Faults of isolation that publish a false result, each committed on purpose, in every backend of this machine.

F3 hostile trees and output, F4 what is left behind, F5 what the agent can reach, D11 what parallel rollouts share,
A13 a weaker sandbox in place of the registered one.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from pairtrial.core.errors import SandboxError, SandboxUnavailableError
from pairtrial.core.status import Status
from pairtrial.sandbox import Isolation, Limits, Mount, Sandbox, SandboxSpec, make_sandbox, new_scratch, sweep
from pairtrial.sandbox.engine import forget_engines
from pairtrial.tasks import Environment, mounts_of

pytestmark = pytest.mark.anyio
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
IMAGE = "pairtrial/host:test"
Box = Callable[..., Awaitable[Sandbox]]


@pytest.fixture(params=["local", "bubblewrap", "docker"])
def kind(request: pytest.FixtureRequest, require: Callable[..., None]) -> str:
    if request.param != "local":
        require(request.param)
    if request.param == "docker":
        request.getfixturevalue("docker_engine")
    return str(request.param)


@pytest.fixture
async def box(kind: str, tmp_path: Path) -> AsyncIterator[Box]:
    made: list[Sandbox] = []

    async def make(**changes: Any) -> Sandbox:
        spec = SandboxSpec(label="cell", scratch=tmp_path / "s", image=IMAGE if kind == "docker" else None)
        sandbox = make_sandbox(kind, replace(spec, **{"limits": Limits(wall_s=60), **changes}))
        made.append(sandbox)
        await sandbox.prepare()
        return sandbox

    yield make
    for sandbox in made:
        await sandbox.destroy()


async def sh(sandbox: Sandbox, script: str, timeout_s: float = 30, **options: Any) -> Any:
    return await sandbox.exec(["sh", "-c", script], env=ENV, timeout_s=timeout_s, **options)


def processes(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return [pid for pid in found if pid != os.getpid()]


# ---- F3: hostile trees and output ----------------------------------------------------------------------------------
@pytest.mark.parametrize("target", ["{w}/../../escape", "/etc/escape", "{w}/a/../../../escape", "{w}/nul\0"])
async def test_F3_a_path_that_climbs_out_is_refused(box: Box, target: str) -> None:
    sandbox = await box()
    place = target.replace("{w}", sandbox.workspace)
    with pytest.raises(SandboxError):
        await sandbox.put_file(place, b"x")
    with pytest.raises(SandboxError):
        await sandbox.put_tree(Path(__file__).parent, place)
    with pytest.raises(SandboxError):
        sandbox.host_path(place)
    assert not Path("/etc/escape").exists()


async def test_F3_our_writes_do_not_follow_links_that_the_agent_planted(box: Box, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "grade").write_text("unresolved")
    sandbox = await box()
    assert (await sh(sandbox, f"ln -s {victim} tests; ln -s {victim}/grade ~/mcp.json")).ok
    with pytest.raises(SandboxError):
        await sandbox.put_file(f"{sandbox.workspace}/tests/grade", b"resolved")
    await sandbox.put_file(f"{sandbox.home}/mcp.json", b"{}")
    assert (victim / "grade").read_text() == "unresolved"


async def test_F3_special_files_huge_files_and_deep_trees_are_bounded(box: Box, tmp_path: Path) -> None:
    sandbox = await box()
    assert (await sh(sandbox, "mkfifo pipe; ln -s /dev/zero endless; dd if=/dev/null of=sparse bs=1 seek=1T 2>&1")).ok
    with anyio.fail_after(20):
        with pytest.raises(SandboxError, match="more than"):
            await sandbox.get_tree(sandbox.workspace, tmp_path / "one", max_bytes=1 << 20)
        assert (await sh(sandbox, "rm sparse; mkdir -p $(printf 'd/%.0s' $(seq 300))")).ok
        with pytest.raises(SandboxError, match="deep"):
            await sandbox.get_tree(sandbox.workspace, tmp_path / "two", max_bytes=1 << 20)
        assert (await sh(sandbox, "rm -r d")).ok
        assert await sandbox.get_tree(sandbox.workspace, tmp_path / "three", max_bytes=1 << 20) == ("pipe",)
    assert (tmp_path / "three" / "endless").is_symlink()


async def test_F3_a_line_of_100_mb_and_bytes_that_are_no_text(box: Box) -> None:
    sandbox = await box()
    lines: list[bytes] = []
    script = "head -c 100000000 /dev/zero | tr '\\0' x; printf '\\n\\377\\000end\\n'"
    result = await sh(sandbox, script, 60, on_stdout=lines.append, output_cap=1 << 20)
    assert result.exit_code == 0 and result.truncated and len(result.stdout) == 1 << 20
    assert len(lines) == 2 and lines[1] == b"\xff\x00end"


# ---- F4: nothing left ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "escape",
    [
        "setsid sleep {m} &",
        "nohup setsid sh -c 'trap \"\" TERM HUP; sleep {m}' >/dev/null 2>&1 &",
        "( ( setsid sleep {m} & ) & ); ",
        "env -i /bin/sh -c 'cd /; exec setsid sleep {m} <&- >&- 2>&-' &",
    ],
)
async def test_F4_no_process_survives_its_command(box: Box, escape: str) -> None:
    sandbox = await box()
    mark = f"{secrets.randbelow(10**8):08}"
    result = await sh(sandbox, escape.format(m=mark) + " sleep 0.2; exit 0")
    assert result.exit_code == 0
    assert processes(mark) == []


async def test_F4_a_process_that_writes_after_the_end_changes_nothing(box: Box) -> None:
    sandbox = await box()
    result = await sh(sandbox, "(trap '' TERM; sleep 1.5; echo resolved > verdict) & sleep 600", 0.4)
    assert result.timed_out and result.limit == "wall"
    await anyio.sleep(2)
    assert not sandbox.host_path(f"{sandbox.workspace}/verdict").exists()


HARNESS = """
import anyio, sys
from pathlib import Path
from pairtrial.sandbox import SandboxSpec, make_sandbox, new_scratch

async def main():
    sandbox = make_sandbox({kind!r}, SandboxSpec(label="x", scratch=new_scratch(Path({base!r})), image={image!r}))
    await sandbox.prepare()
    await sandbox.exec(["sh", "-c", "setsid sleep {mark} & sleep {mark}"], env={{"PATH": "/bin"}}, timeout_s=600)

anyio.run(main)
"""


def test_F4_nothing_is_left_after_the_harness_is_killed_and_started_again(kind: str, tmp_path: Path) -> None:
    mark = f"{secrets.randbelow(10**8):08}"
    code = HARNESS.format(kind=kind, base=str(tmp_path), image=IMAGE, mark=mark)
    harness = subprocess.Popen([sys.executable, "-c", code])
    give_up = time.monotonic() + 60
    while len(processes(f"sleep\0{mark}")) < 2 and time.monotonic() < give_up:
        time.sleep(0.05)
    assert len(processes(f"sleep\0{mark}")) >= 2
    harness.send_signal(signal.SIGKILL)
    harness.wait()
    scratch = new_scratch(tmp_path)
    give_up = time.monotonic() + 10
    while processes(mark) and time.monotonic() < give_up:
        time.sleep(0.05)
    assert processes(mark) == []
    assert list(tmp_path.iterdir()) == [scratch]
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    assert sweep(scratch).folders == ()


async def test_F4_destroy_leaves_no_folder_whatever_the_agent_made(box: Box) -> None:
    sandbox = await box()
    base = sandbox.host_path(sandbox.workspace).parent
    script = "mkdir -p $(printf 'd/%.0s' $(seq 900)); mkdir locked; touch locked/f; chmod 000 locked; chmod 000 $HOME"
    assert (await sh(sandbox, script)).ok
    await sandbox.destroy()
    assert not base.exists() and list(base.parent.iterdir()) == []


# ---- F5: reach -----------------------------------------------------------------------------------------------------
@pytest.fixture
def service() -> Iterator[int]:
    """A server of the host, on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


@pytest.fixture
def python(kind: str) -> str:
    return sys.executable if kind == "local" else "/usr/bin/python3"


async def test_F5_network_files_other_rollouts_and_credentials(
    box: Box, kind: str, python: str, service: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One agent tries everything. Without isolation it succeeds, and the record must say that there was none."""
    secret = f"key-{secrets.token_hex(12)}"
    monkeypatch.setenv("ANTHROPIC_API_KEY", secret)
    holder = subprocess.Popen(["sleep", "60"], env={"KEY": secret})
    (tmp_path / "key").write_text(secret)
    other, sandbox = await box(), await box()
    await other.put_file(f"{other.home}/notes", b"of another rollout")
    code = f"""
import glob, json, os, socket
found = {{}}
try:
    socket.create_connection(('127.0.0.1', {service}), 2); found['service'] = True
except OSError: found['service'] = False
try:
    socket.create_connection(('192.0.2.1', 9), 0.5); found['route'] = True
except OSError as fault: found['route'] = fault.errno != 101
def read(path):
    try: return open(path, errors='replace').read()
    except OSError: return ''
found['file'] = read({str(tmp_path / "key")!r})
found['other'] = read({str(other.host_path(other.home) / "notes")!r})
found['processes'] = any({secret!r} in read(path) for path in glob.glob('/proc/*/environ'))
found['own'] = {secret!r} in str(dict(os.environ))
print(json.dumps(found))
"""
    result = await sandbox.exec([python, "-c", code], env=ENV, timeout_s=30)
    holder.kill()
    holder.wait()
    found = json.loads(result.stdout)
    assert found["own"] is False  # in no backend
    if kind == "local":
        assert found["service"] and found["file"] == secret and found["processes"]
        assert sandbox.facts["isolation"] == "none" and "not isolated" in sandbox.facts["network"]
        return
    assert found == {"service": False, "route": False, "file": "", "other": "", "processes": False, "own": False}
    assert sandbox.facts["isolation"] in ("namespaces", "container") and sandbox.facts["network"] == "none"


async def test_F5_the_agent_cannot_change_what_it_was_given_to_read(box: Box, kind: str, tmp_path: Path) -> None:
    if kind == "local":
        pytest.skip("nothing is isolated, and the record says so")
    cache = tmp_path / "cache"
    (cache / "env").mkdir(parents=True)
    (cache / "env" / "grader.py").write_text("honest")
    (cache / "answers").write_text("the fix")
    sandbox = await box(mounts=(Mount(cache / "env", str(cache / "env")),))
    place = str(cache)
    result = await sh(sandbox, f"cat {place}/env/grader.py; echo forged > {place}/env/grader.py; cat {place}/answers")
    assert result.stdout == b"honest" and result.exit_code != 0
    assert (cache / "env" / "grader.py").read_text() == "honest"


async def test_F5_the_agent_cannot_end_the_harness_or_its_own_sandbox(box: Box, kind: str) -> None:
    sandbox = await box()
    scripts = ["kill -TERM 0", "kill -9 $PPID; sleep 1"] + ([] if kind == "local" else ["kill -9 -1; sleep 1"])
    for script in scripts:
        result = await sh(sandbox, script)
        assert not result.timed_out and result.limit is None
    assert (await sh(sandbox, "exit 0")).ok


# ---- D11: parallel rollouts ----------------------------------------------------------------------------------------
async def test_D11_two_arms_of_one_task_at_once_share_nothing(box: Box, kind: str, python: str) -> None:
    """The same names, the same caches, the same port, at the same moment."""
    code = """
import os, pathlib, socket, sys, time
me = sys.argv[1]
places = [pathlib.Path(os.environ['HOME'], '.cache'), pathlib.Path(os.environ['TMPDIR']), pathlib.Path()]
if sys.argv[2] == 'isolated': places.append(pathlib.Path('/dev/shm'))
for place in places:
    place.mkdir(exist_ok=True)
    with open(place / 'same-name', 'x') as handle: handle.write(me)
port = 7707 if sys.argv[2] == 'isolated' else 0
server = socket.create_server(('127.0.0.1', port))
time.sleep(1)
print(me, sorted(path.name for place in places for path in place.iterdir()), {(p / 'same-name').read_text() for p in places})
"""
    isolated = "open" if kind == "local" else "isolated"
    words = len(("home", "tmp", "work")) + (kind != "local")
    seen: dict[str, str] = {}

    async def arm(name: str) -> None:
        sandbox = await box(label="task/r1")
        result = await sandbox.exec([python, "-c", code, name, isolated], env=ENV, timeout_s=30)
        assert result.ok, result.stderr
        seen[name] = result.stdout.decode()

    async with anyio.create_task_group() as group:
        for name in ("control", "treat"):
            group.start_soon(arm, name)
    for name, text in seen.items():
        assert text == f"{name} {['same-name'] * words} {{'{name}'}}\n"


async def test_D11_what_one_rollout_wrote_the_next_does_not_find(box: Box) -> None:
    first = await box()
    assert (await sh(first, "echo x > ~/memory; echo x > $TMPDIR/memory; echo x > memory")).ok
    await first.destroy()
    second = await box()
    result = await sh(second, "ls -A . ~ $TMPDIR | grep -c memory")
    assert result.stdout == b"0\n"


# ---- A13: fallback -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("wanted", [Isolation.NAMESPACES, Isolation.CONTAINER])
def test_A13_local_is_never_taken_for_an_isolating_sandbox(wanted: Isolation, tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailableError, match=wanted.value):
        make_sandbox("local", SandboxSpec(label="x", scratch=tmp_path), wanted=wanted)


class Beside(Environment):
    """An environment whose interpreter is installed where other programs put packages, too."""

    @property
    def base(self) -> Path:
        return self.root.parent / "installation"


async def test_F5_packages_beside_the_interpreter(box: Box, kind: str, tmp_path: Path) -> None:
    """Another release of the target, installed for a program of this machine, is not there to be read."""
    installation = tmp_path / "installation"
    for name in (
        "lib/python3.11/site-packages/click/parser.py",
        "lib/python3/dist-packages/click.py",
        "lib/python3.11/os.py",
    ):
        (installation / name).parent.mkdir(parents=True, exist_ok=True)
        (installation / name).write_text("unbroken")
    (installation / "lib64").symlink_to("lib")
    (tmp_path / "environment").mkdir()
    environment = Beside(tmp_path / "environment", "e" * 64, {}, "")
    (tmp_path / "s").mkdir(exist_ok=True)
    sandbox = await box(mounts=mounts_of(environment, tmp_path / "s"))
    found = await sandbox.exec(["find", "-L", str(installation), "-type", "f"], env=ENV, timeout_s=30)
    names = sorted(Path(line).name for line in found.stdout.decode().splitlines())
    if kind == "local":  # shows all of this machine, and says so in every receipt
        assert names == ["click.py", "click.py", "os.py", "os.py", "parser.py", "parser.py"]
    else:
        assert names == ["os.py", "os.py"], found.stderr


async def test_A13_a_missing_bubblewrap_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailableError):
        make_sandbox("bubblewrap", SandboxSpec(label="x", scratch=tmp_path / "s"))


async def test_A13_a_missing_engine_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    sandbox = make_sandbox("docker", SandboxSpec(label="x", scratch=tmp_path / "s", image="x"))
    with pytest.raises(SandboxUnavailableError):
        await sandbox.prepare()
    with pytest.raises(SandboxError):
        await sandbox.exec(["touch", str(tmp_path / "ran-on-the-host")], env=ENV, timeout_s=5)
    assert not (tmp_path / "ran-on-the-host").exists()
    forget_engines()


@pytest.mark.usefixtures("docker_engine")
async def test_A13_a_missing_image_is_an_error_and_no_pull(tmp_path: Path) -> None:
    began = time.monotonic()
    sandbox = make_sandbox("docker", SandboxSpec(label="x", scratch=tmp_path / "s", image="pairtrial/none:1"))
    with pytest.raises(SandboxUnavailableError, match="never pulls"):
        await sandbox.prepare()
    assert time.monotonic() - began < 5


async def test_A13_a_rollout_whose_sandbox_fails_is_lost_and_not_graded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the harness: nothing runs on the host instead, and the status is no grade."""
    from factories import make_plan
    from rollout_cases import REPAIR, TASK, make_laboratory

    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    plan = make_plan(tasks={"pack": "pack", "ids": [TASK]}, sandbox={"kind": "docker", "image": "x"})
    receipt, _ = await make_laboratory(tmp_path, REPAIR, plan=plan).attempt()
    assert receipt.status is Status.SANDBOX_LOST and receipt.grade is None
    assert receipt.status.is_infrastructure and not receipt.status.is_graded
    assert "no Docker engine" in str(receipt.reason)
    forget_engines()
