"""The process helper by itself: bounds, loss of its own helpers, death of the harness."""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from pairtrial.core.errors import SandboxError
from pairtrial.sandbox import host_env, process, run, run_blocking
from pairtrial.sandbox.launch import Launch
from pairtrial.sandbox.streams import LINE_BYTES, Capture

pytestmark = pytest.mark.anyio
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_print_of_200_mb_stays_within_bounds() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await run(["head", "-c", "200000000", "/dev/zero"], env=ENV, timeout_s=60, output_cap=1 << 20)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert result.exit_code == 0 and result.truncated and len(result.stdout) == 1 << 20
    assert grown < 50_000


async def test_a_line_of_50_mb_reaches_the_reader_cut_and_the_next_one_whole() -> None:
    lines: list[bytes] = []
    script = "head -c 50000000 /dev/zero | tr '\\0' x; echo; echo next"
    result = await run(["sh", "-c", script], env=ENV, timeout_s=60, on_stdout=lines.append, output_cap=1000)
    assert [len(line) for line in lines] == [LINE_BYTES, 4] and lines[1] == b"next"
    assert result.truncated


async def test_many_lines_beyond_the_cap_still_reach_the_reader() -> None:
    count = 0

    def see(_: bytes) -> None:
        nonlocal count
        count += 1

    result = await run(["seq", "300000"], env=ENV, timeout_s=60, on_stdout=see, output_cap=100)
    assert count == 300_000 and len(result.stdout) == 100 and result.truncated


@pytest.mark.parametrize("pieces", [[b"a\nb", b"c\n", b"\nd"], [b"a\nbc\n\nd"], [b"a", b"\n", b"bc", b"\n\n", b"d"]])
def test_lines_do_not_depend_on_how_the_pipe_cuts(pieces: list[bytes]) -> None:
    capture = Capture(5, lines=True)
    for piece in pieces:
        capture.feed(piece)
    capture.finish()
    assert list(capture.lines or ()) == [b"a", b"bc", b"", b"d"]
    assert bytes(capture.kept) == b"a\nbc\n" and capture.truncated


async def test_a_keeper_killed_from_inside_is_noted_and_loses_nobody(alive: Callable[[str], list[int]]) -> None:
    mark = f"5{secrets.randbelow(10**6):06}"
    result = await run(["sh", "-c", f"sleep {mark} & kill -9 $PPID; sleep 5"], env=ENV, timeout_s=20)
    assert (result.exit_code, result.signal) == (None, signal.SIGKILL)
    assert "killed from inside" in result.note
    for pid in alive(mark):  # no sandbox folder here to know them by
        os.kill(pid, signal.SIGKILL)


async def test_term_and_group_kill_do_not_reach_the_harness() -> None:
    result = await run(["sh", "-c", "kill -TERM $PPID; kill -TERM 0; sleep 5"], env=ENV, timeout_s=20)
    assert result.signal == signal.SIGTERM and not result.timed_out
    assert (await run(["true"], env=ENV, timeout_s=20)).ok


async def test_a_killed_spawner_is_replaced_and_running_commands_go_on() -> None:
    running = await process.start(Launch(("cat",), ENV), timeout_s=30)
    pid = await running.started()
    assert pid is not None
    os.kill(parent_of(parent_of(pid)), signal.SIGKILL)
    assert (await run(["true"], env=ENV, timeout_s=20)).ok
    await running.send(b"still here\n")
    await running.close_stdin()
    assert (await running.wait()).stdout == b"still here\n"


HARNESS = """
import anyio, sys
from pairtrial.sandbox import run
anyio.run(lambda: run(["sh", "-c", "trap '' TERM HUP; setsid sleep {mark} & sleep {mark}"],
                      env={{"PATH": "/usr/bin:/bin"}}, timeout_s=600))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_harness_that_is_killed_leaves_no_process(number: int, alive: Callable[[str], list[int]]) -> None:
    mark = f"4{secrets.randbelow(10**6):06}"
    harness = subprocess.Popen([sys.executable, "-c", HARNESS.format(mark=mark)], stderr=subprocess.DEVNULL)
    try:
        give_up = time.monotonic() + 20
        while len(alive(f"sleep\0{mark}")) < 2 and time.monotonic() < give_up:
            time.sleep(0.02)
        assert len(alive(f"sleep\0{mark}")) == 2
        harness.send_signal(number)
        harness.wait(20)
        give_up = time.monotonic() + 10
        while alive(f"sleep\0{mark}") and time.monotonic() < give_up:
            time.sleep(0.02)
        assert alive(f"sleep\0{mark}") == []
    finally:
        harness.kill()
        harness.wait()


async def test_an_error_in_the_line_reader_ends_the_command(alive: Callable[[str], list[int]]) -> None:
    mark = f"3{secrets.randbelow(10**6):06}"

    def fail(_: bytes) -> None:
        raise ValueError("reader")

    with pytest.raises(ValueError, match="reader"):
        await run(["sh", "-c", f"echo x; sleep {mark}"], env=ENV, timeout_s=60, on_stdout=fail)
    assert alive(mark) == []


async def test_a_process_says_that_it_has_not_ended() -> None:
    running = await process.start(Launch(("cat",), ENV), timeout_s=30)
    with pytest.raises(SandboxError):
        _ = running.result
    await running.kill()
    assert running.ended


async def test_arguments_and_names_that_are_not_utf8() -> None:
    name = os.fsdecode(b"\xff\xfe")
    result = await run(["printf", "%s", name], env={**ENV, "X": name}, timeout_s=20)
    assert result.stdout == b"\xff\xfe"


async def test_too_many_arguments_is_a_result_126() -> None:
    result = await run(["true", "x" * 300_000], env=ENV, timeout_s=20)
    assert result.exit_code == 126 and b"cannot start" in result.stderr


async def test_a_folder_that_is_gone_is_a_result(tmp_path: Path) -> None:
    result = await run(["true"], env=ENV, cwd=tmp_path / "gone", timeout_s=20)
    assert result.exit_code == 127


async def test_no_descriptor_is_leaked_to_the_command_or_kept_here() -> None:
    await run(["true"], env=ENV, timeout_s=20)
    before = len(list(Path("/proc/self/fd").iterdir()))
    result = await run(["ls", "/proc/self/fd"], env=ENV, timeout_s=20)
    assert result.stdout.split() == [b"0", b"1", b"2", b"3"]  # 3 is the folder that ls reads
    assert len(list(Path("/proc/self/fd").iterdir())) == before


async def test_forty_at_once() -> None:
    results: list[bytes] = []

    async def one(index: int) -> None:
        results.append((await run(["echo", str(index)], env=ENV, timeout_s=30)).stdout)

    async with anyio.create_task_group() as group:
        for index in range(40):
            group.start_soon(one, index)
    assert sorted(int(text) for text in results) == list(range(40))


async def test_a_fork_bomb_of_moderate_size_is_stopped_by_the_deadline(alive: Callable[[str], list[int]]) -> None:
    mark = f"pt{secrets.token_hex(4)}"
    bomb = f"import os, time; name = '{mark}'; n = 0\nwhile n < 9: n += 1; os.fork()\ntime.sleep(600)"
    result = await run([sys.executable, "-S", "-c", bomb], env=ENV, timeout_s=3)
    assert result.timed_out
    assert alive(mark) == []


def test_blocking_form_and_host_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIRTRIAL_TEST_SECRET", "leaked")
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", "/certificates.pem")  # without it npm trusts no registry behind a proxy
    result = run_blocking(["env"], env=host_env(EXTRA="1"), timeout_s=20)
    assert b"EXTRA=1" in result.stdout and b"leaked" not in result.stdout
    assert b"NODE_EXTRA_CA_CERTS=/certificates.pem" in result.stdout


def test_importing_prints_nothing_and_starts_nothing() -> None:
    script = "import pairtrial.sandbox, pairtrial.sandbox._client as c, sys; sys.exit(c._current is not None)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
