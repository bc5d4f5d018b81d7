"""What every backend must do; the same tests run for each."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from pairtrial.core.errors import SandboxError
from pairtrial.sandbox import Limits, Mount, Sandbox, SandboxSpec

pytestmark = pytest.mark.anyio
Env = dict[str, str]
Maker = Callable[..., Awaitable[Sandbox]]


async def test_a_command_gives_its_output_and_its_code(sandbox: Sandbox, env: Env) -> None:
    result = await sandbox.exec(["sh", "-c", "echo out; echo err >&2; exit 3"], env=env, timeout_s=20)
    assert (result.exit_code, result.signal, result.stdout, result.stderr) == (3, None, b"out\n", b"err\n")
    assert not result.timed_out and not result.truncated and not result.oom and result.limit is None
    assert 0 < result.duration_s < 20
    assert not result.ok


async def test_success_is_ok(sandbox: Sandbox, env: Env) -> None:
    assert (await sandbox.exec(["true"], env=env, timeout_s=20)).ok


async def test_a_missing_program_is_a_result_127(sandbox: Sandbox, env: Env) -> None:
    result = await sandbox.exec(["no-such-program"], env=env, timeout_s=20)
    assert (result.exit_code, result.signal) == (127, None)
    assert b"no-such-program" in result.stderr


async def test_the_environment_is_exactly_what_is_given(
    sandbox: Sandbox, env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIRTRIAL_TEST_SECRET", "leaked")
    result = await sandbox.exec(["env", "-0"], env={**env, "GIVEN": "a b\nc"}, timeout_s=20)
    seen = dict(item.split("=", 1) for item in result.stdout.decode().rstrip("\0").split("\0"))
    assert seen == {**env, "GIVEN": "a b\nc", "HOME": sandbox.home, "TMPDIR": sandbox.tmp}


async def test_commands_start_in_the_workspace_or_where_asked(sandbox: Sandbox, env: Env) -> None:
    assert (await sandbox.exec(["pwd"], env=env, timeout_s=20)).stdout.decode().strip() == sandbox.workspace
    there = await sandbox.exec(["pwd"], env=env, timeout_s=20, cwd=sandbox.home)
    assert there.stdout.decode().strip() == sandbox.home


async def test_workspace_home_and_tmp_are_writable_and_seen_on_the_host(sandbox: Sandbox, env: Env) -> None:
    script = 'echo w > "$0/f"; echo h > "$HOME/f"; echo t > "$TMPDIR/f"'
    assert (await sandbox.exec(["sh", "-c", script, sandbox.workspace], env=env, timeout_s=20)).ok
    for inside, text in ((sandbox.workspace, "w\n"), (sandbox.home, "h\n"), (sandbox.tmp, "t\n")):
        assert sandbox.host_path(inside + "/f").read_text() == text


async def test_stdin_larger_than_any_pipe_does_not_deadlock(sandbox: Sandbox, env: Env) -> None:
    data = os.urandom(3_000_000)
    result = await sandbox.exec(["cat"], env=env, stdin=data, timeout_s=30)
    assert result.ok and result.stdout == data


async def test_a_command_that_ignores_stdin_is_no_error(sandbox: Sandbox, env: Env) -> None:
    assert (await sandbox.exec(["true"], env=env, stdin=b"x" * 3_000_000, timeout_s=20)).ok


async def test_without_stdin_the_command_sees_the_end_at_once(sandbox: Sandbox, env: Env) -> None:
    assert (await sandbox.exec(["cat"], env=env, timeout_s=20)).ok


async def test_output_is_bytes(sandbox: Sandbox, env: Env) -> None:
    result = await sandbox.exec(["printf", r"\377\000\342\202"], env=env, timeout_s=20)
    assert result.stdout == b"\xff\x00\xe2\x82"


async def test_a_character_across_a_pipe_border_is_kept(sandbox: Sandbox, env: Env) -> None:
    data = b"a" * 65535 + "𝄞".encode() + b"\n"
    lines: list[bytes] = []
    result = await sandbox.exec(["cat"], env=env, stdin=data, timeout_s=20, on_stdout=lines.append)
    assert result.stdout == data and lines == [data[:-1]]


async def test_lines_arrive_while_the_command_runs(sandbox: Sandbox, env: Env) -> None:
    arrivals: list[tuple[bytes, float]] = []
    began = time.monotonic()
    result = await sandbox.exec(
        ["sh", "-c", "echo one; sleep 1; echo two; printf three"],
        env=env,
        timeout_s=20,
        on_stdout=lambda line: arrivals.append((line, time.monotonic() - began)),
    )
    assert [line for line, _ in arrivals] == [b"one", b"two", b"three"]
    assert arrivals[1][1] - arrivals[0][1] > 0.7
    assert result.stdout == b"one\ntwo\nthree"


async def test_output_over_the_cap_is_dropped_and_said(sandbox: Sandbox, env: Env) -> None:
    result = await sandbox.exec(["head", "-c", "300000", "/dev/zero"], env=env, timeout_s=20, output_cap=1000)
    assert result.exit_code == 0
    assert result.stdout == b"\0" * 1000 and result.truncated


async def test_output_just_at_the_cap_is_whole(sandbox: Sandbox, env: Env) -> None:
    result = await sandbox.exec(["head", "-c", "1000", "/dev/zero"], env=env, timeout_s=20, output_cap=1000)
    assert len(result.stdout) == 1000 and not result.truncated


async def test_a_signal_and_a_code_are_told_apart(sandbox: Sandbox, env: Env) -> None:
    own = await sandbox.exec(["sh", "-c", "exit 137"], env=env, timeout_s=20)
    killed = await sandbox.exec(["sh", "-c", "kill -9 $$"], env=env, timeout_s=20)
    assert (own.exit_code, own.signal) == (137, None)
    assert (killed.exit_code, killed.signal) == (None, signal.SIGKILL)


async def test_the_deadline_ends_the_whole_tree(sandbox: Sandbox, env: Env, alive: Callable[[str], list[int]]) -> None:
    mark = f"9{secrets.randbelow(10**6):06}"
    script = f"trap '' TERM; setsid sh -c \"trap '' TERM; sleep {mark}\" & sleep {mark}; sleep {mark}"
    result = await sandbox.exec(["sh", "-c", script], env=env, timeout_s=0.5)
    assert result.timed_out and result.limit == "wall" and not result.ok
    assert 0.5 <= result.duration_s < 15
    assert alive(mark) == []
    assert (await sandbox.exec(["true"], env=env, timeout_s=20)).ok


async def test_the_wall_limit_of_the_sandbox_holds_whatever_a_call_asks(new_sandbox: Maker, env: Env) -> None:
    sandbox = await new_sandbox(limits=Limits(wall_s=0.4))
    result = await sandbox.exec(["sleep", "30"], env=env, timeout_s=500)
    assert result.timed_out and result.duration_s < 15


async def test_what_outlives_the_command_is_killed(
    sandbox: Sandbox, env: Env, alive: Callable[[str], list[int]]
) -> None:
    mark = f"8{secrets.randbelow(10**6):06}"
    script = f"(setsid setsid sleep {mark} >/dev/null 2>&1 &) ; nohup sleep {mark} >/dev/null 2>&1 & exit 0"
    result = await sandbox.exec(["sh", "-c", script], env=env, timeout_s=20)
    assert result.exit_code == 0 and result.duration_s < 10
    assert alive(mark) == []


async def test_a_background_child_that_holds_stdout_does_not_hold_us(sandbox: Sandbox, env: Env) -> None:
    result = await sandbox.exec(["sh", "-c", "sleep 600 & echo done"], env=env, timeout_s=30)
    assert result.stdout == b"done\n" and result.duration_s < 10


async def test_an_interactive_process_answers_line_by_line(sandbox: Sandbox, env: Env) -> None:
    process = await sandbox.start(["cat"], env=env, timeout_s=30)
    got = []
    await process.send(b"one\n")
    async for line in process:
        got.append(line)
        if len(got) == 2:
            await process.close_stdin()
        else:
            await process.send(b"two\n")
    result = await process.wait()
    assert got == [b"one", b"two"] and result.ok


async def test_an_interactive_process_can_be_killed(sandbox: Sandbox, env: Env) -> None:
    process = await sandbox.start(["sleep", "600"], env=env, timeout_s=600)
    await process.kill()
    result = await process.wait()
    assert result.signal == signal.SIGKILL and result.exit_code is None and not result.timed_out
    assert result.duration_s < 4


async def test_kill_ends_everything_and_leaves_the_sandbox_usable(
    sandbox: Sandbox, env: Env, alive: Callable[[str], list[int]]
) -> None:
    mark = f"7{secrets.randbelow(10**6):06}"
    process = await sandbox.start(["sh", "-c", f"setsid sleep {mark} & wait; wait"], env=env, timeout_s=600)
    with anyio.fail_after(10):
        while not alive(f"sleep\0{mark}"):
            await anyio.sleep(0.02)
    await sandbox.kill()
    assert alive(mark) == []
    assert (await process.wait()).signal == signal.SIGKILL
    assert (await sandbox.exec(["true"], env=env, timeout_s=20)).ok


async def test_a_cancelled_call_leaves_nothing_alive(
    sandbox: Sandbox, env: Env, alive: Callable[[str], list[int]]
) -> None:
    mark = f"6{secrets.randbelow(10**6):06}"
    with anyio.move_on_after(0.4):
        await sandbox.exec(["sh", "-c", f"setsid sleep {mark} & sleep {mark}"], env=env, timeout_s=600)
    assert alive(mark) == []


async def test_destroy_leaves_nothing_in_scratch_and_may_be_repeated(
    sandbox: Sandbox, spec: SandboxSpec, env: Env
) -> None:
    script = "mkdir -p a/b && touch a/b/f && chmod 000 a/b a && ln -s /etc here && mkfifo pipe"
    assert (await sandbox.exec(["sh", "-c", script], env=env, timeout_s=20)).ok
    await sandbox.destroy()
    await sandbox.destroy()
    assert list(spec.scratch.iterdir()) == []
    with pytest.raises(SandboxError):
        await sandbox.exec(["true"], env=env, timeout_s=5)


async def test_trees_go_in_and_come_back(sandbox: Sandbox, tmp_path: Path, env: Env) -> None:
    source = tmp_path / "source"
    (source / "d").mkdir(parents=True)
    (source / "d" / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "d" / "run.sh").chmod(0o755)
    (source / "bytes").write_bytes(os.urandom(200_000))
    (source / "link").symlink_to("d/run.sh")
    await sandbox.put_tree(source, sandbox.workspace)
    assert (await sandbox.exec(["./link"], env=env, timeout_s=20)).stdout == b"ran\n"
    assert (await sandbox.exec(["sh", "-c", "echo more > d/more; mkfifo p"], env=env, timeout_s=20)).ok
    left_out = await sandbox.get_tree(sandbox.workspace, tmp_path / "back", max_bytes=10_000_000)
    assert left_out == ("p",)
    assert (tmp_path / "back" / "bytes").read_bytes() == (source / "bytes").read_bytes()
    assert (tmp_path / "back" / "d" / "more").read_text() == "more\n"
    assert (tmp_path / "back" / "link").readlink() == Path("d/run.sh")
    assert os.access(tmp_path / "back" / "d" / "run.sh", os.X_OK)


async def test_files_are_put_and_can_be_changed_by_the_command(sandbox: Sandbox, env: Env) -> None:
    await sandbox.put_file(f"{sandbox.home}/.config/tool/c.json", b"{}")
    await sandbox.put_file(f"{sandbox.home}/go", b"#!/bin/sh\necho went\n", executable=True)
    script = '"$HOME/go" && echo changed >> "$HOME/.config/tool/c.json" && cat "$HOME/.config/tool/c.json"'
    result = await sandbox.exec(["sh", "-c", script], env=env, timeout_s=20)
    assert result.stdout == b"went\n{}changed\n"


async def test_paths_have_one_length_and_say_nothing_about_the_cell(new_sandbox: Maker, isolating: bool) -> None:
    one = await new_sandbox(label="task/control/1")
    two = await new_sandbox(label="task/a-much-longer-arm/1")
    for a, b in ((one.workspace, two.workspace), (one.home, two.home), (one.tmp, two.tmp)):
        assert len(a) == len(b) and "arm" not in b
        assert (a == b) == isolating
    assert one.host_path(one.workspace) != two.host_path(two.workspace)


async def test_two_at_once_share_nothing(new_sandbox: Maker, env: Env) -> None:
    results: dict[int, tuple[bytes, bytes]] = {}
    script = (
        'for d in "$PWD" "$HOME" "$TMPDIR"; do echo "$0" > "$d/who"; done; sleep 0.5; '
        'cat "$PWD/who" "$HOME/who" "$TMPDIR/who"; ls "$PWD" "$HOME" "$TMPDIR" | sort -u | tr "\\n" " "'
    )

    async def one(index: int) -> None:
        sandbox = await new_sandbox(label="same/cell/agent")
        result = await sandbox.exec(["sh", "-c", script, str(index)], env=env, timeout_s=30)
        results[index] = (result.stdout, result.stderr)

    async with anyio.create_task_group() as group:
        for index in range(4):
            group.start_soon(one, index)
    for index, (out, _) in results.items():
        assert out.startswith(f"{index}\n{index}\n{index}\n".encode())
        assert out.count(b"who") == 1


async def test_one_sandbox_runs_two_commands_at_once(sandbox: Sandbox, env: Env) -> None:
    long = await sandbox.start(["sh", "-c", "read line; echo got $line"], env=env, timeout_s=30)
    assert (await sandbox.exec(["true"], env=env, timeout_s=20)).ok
    await long.send(b"word\n")
    assert (await long.wait()).stdout == b"got word\n"


async def test_facts_name_the_isolation(sandbox: Sandbox) -> None:
    assert sandbox.facts["isolation"] == sandbox.isolation.value
    assert sandbox.facts["sandbox"] == sandbox.kind


@pytest.mark.parametrize("bad", ["relative", "/etc/passwd", "{workspace}/../../x", "{workspace}/a\0b"])
async def test_paths_outside_are_refused(sandbox: Sandbox, bad: str) -> None:
    path = bad.replace("{workspace}", sandbox.workspace)
    with pytest.raises(SandboxError):
        sandbox.host_path(path)
    with pytest.raises(SandboxError):
        await sandbox.put_file(path, b"x")


async def test_a_missing_mount_is_refused_before_anything_runs(new_sandbox: Maker, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(SandboxError, match="gone"):
        await new_sandbox(mounts=(Mount(gone, str(gone)),))
