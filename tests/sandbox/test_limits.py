"""Limits are outcomes: which one fired is in the record, and no kill is taken for another."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from pairtrial.core.errors import SandboxUnavailableError
from pairtrial.sandbox import ExecResult, Limits, Sandbox, SandboxSpec
from pairtrial.sandbox.local import LocalSandbox

pytestmark = pytest.mark.anyio
Env = dict[str, str]
Maker = Callable[..., Awaitable[Sandbox]]
EAT = "x = bytearray(400 << 20)"


def record(result: ExecResult) -> tuple[object, ...]:
    return result.exit_code, result.signal, result.limit, result.oom, result.timed_out


@pytest.fixture
async def limited(new_sandbox: Maker) -> Sandbox:
    return await new_sandbox(limits=Limits(wall_s=60, memory_bytes=150 << 20))


async def test_four_kills_four_records(
    limited: Sandbox, env: Env, python: str, alive: Callable[[str], list[int]]
) -> None:
    own = await limited.exec(["sh", "-c", "exit 137"], env=env, timeout_s=20)
    memory = await limited.exec([python, "-S", "-c", EAT], env=env, timeout_s=30)
    late = await limited.exec(["sleep", "60"], env=env, timeout_s=0.3)
    mark = f"1{secrets.randbelow(10**6):06}"
    running = await limited.start(["sleep", mark], env=env, timeout_s=60)
    with anyio.fail_after(20):
        while not (found := [pid for pid in alive(f"sleep\0{mark}") if is_sleep(pid)]):
            await anyio.sleep(0.02)
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    outside = await running.wait()
    assert record(own) == (137, None, None, False, False)
    assert record(memory) == (None, 9, "memory", True, False)
    assert record(late)[1:] == (15, "wall", False, True)
    assert record(outside) == (None, 9, None, False, False)


def is_sleep(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/comm") as handle:  # noqa: PTH123
            return handle.read().strip() == "sleep"
    except OSError:
        return False


async def test_a_child_killed_for_memory_is_said_though_the_command_goes_on(
    limited: Sandbox, env: Env, python: str
) -> None:
    result = await limited.exec(["sh", "-c", f"{python} -S -c '{EAT}'; exit 0"], env=env, timeout_s=30)
    assert record(result) == (0, None, "memory", True, False)
    after = await limited.exec(["true"], env=env, timeout_s=20)
    assert record(after) == (0, None, None, False, False)


async def test_memory_within_the_limit_is_given(limited: Sandbox, env: Env, python: str) -> None:
    result = await limited.exec([python, "-S", "-c", "x = bytearray(100 << 20)"], env=env, timeout_s=30)
    assert result.ok and result.limit is None


async def test_each_limit_is_named_with_the_seconds_used(new_sandbox: Maker, env: Env) -> None:
    sandbox = await new_sandbox()
    for allowed in (0.3, 0.9):
        result = await sandbox.exec(["sleep", "30"], env=env, timeout_s=allowed)
        assert result.limit == "wall" and allowed <= result.duration_s < allowed + 2


async def test_term_comes_first_and_gives_time_to_write(sandbox: Sandbox, env: Env) -> None:
    script = "trap 'echo saved > saved; exit 5' TERM; sleep 60 & wait"
    result = await sandbox.exec(["sh", "-c", script], env=env, timeout_s=0.5)
    assert result.timed_out
    assert sandbox.host_path(f"{sandbox.workspace}/saved").read_text() == "saved\n"
    assert result.exit_code == 5


async def test_cpu_is_limited(new_sandbox: Maker, env: Env, python: str) -> None:
    sandbox = await new_sandbox(limits=Limits(wall_s=60, cpus=0.5))
    code = (
        "import time\nbegan = time.monotonic()\nwhile time.monotonic() - began < 2: pass\n"
        "print(time.process_time() / (time.monotonic() - began))"
    )
    result = await sandbox.exec([python, "-S", "-c", code], env=env, timeout_s=30)
    assert 0.05 < float(result.stdout) < 0.65


async def test_facts_say_how_each_limit_is_kept(new_sandbox: Maker) -> None:
    sandbox = await new_sandbox(limits=Limits(wall_s=9, memory_bytes=100 << 20, pids=50, cpus=1, disk_bytes=10 << 20))
    for name, value in (("memory", "104857600"), ("pids", "50"), ("cpu", "1"), ("disk", "10485760")):
        assert sandbox.facts[f"limit_{name}"].startswith(value)


class Groupless(LocalSandbox):
    """A machine on which no control group can be made."""

    def hierarchies(self) -> None:
        return None


@pytest.mark.parametrize(("limits", "names"), [({"pids": 50}, "pids"), ({"cpus": 1.0, "pids": 50}, "pids, cpu")])
async def test_a_limit_that_would_not_be_kept_is_refused(tmp_path: Path, limits: dict[str, Any], names: str) -> None:
    """A13: what the plan registered is in force or the rollout does not start."""
    sandbox = Groupless(SandboxSpec(label="x", scratch=tmp_path, limits=Limits(wall_s=9, **limits)))
    with pytest.raises(SandboxUnavailableError, match=f"a limit of {names} needs a control group"):
        await sandbox.prepare()
    await sandbox.destroy()
    assert list(tmp_path.iterdir()) == []


async def test_memory_without_a_control_group_is_kept_for_each_process(tmp_path: Path) -> None:
    sandbox = Groupless(SandboxSpec(label="x", scratch=tmp_path, limits=Limits(wall_s=9, memory_bytes=1 << 30)))
    await sandbox.prepare()
    assert sandbox.facts["limit_memory"] == "1073741824 (rlimit, each process by itself)"
    await sandbox.destroy()
