"""Commands that mean harm: what each isolation stops. One test an attack; without isolation the reach is shown too."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import anyio
import pytest

from pairtrial.core.errors import SandboxError
from pairtrial.sandbox import Limits, Mount, Sandbox

pytestmark = pytest.mark.anyio
Env = dict[str, str]
Maker = Callable[..., Awaitable[Sandbox]]


@pytest.fixture
def only_isolating(isolating: bool) -> None:
    if not isolating:
        pytest.skip("the local sandbox isolates nothing, and says so")


@pytest.fixture
def listener() -> Iterator[int]:
    """A service of the host on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_greet, args=(server,), daemon=True)
        thread.start()
        yield int(server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def _greet(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            connection.sendall(b"hello")


async def python_in(sandbox: Sandbox, python: str, code: str, env: Env, timeout_s: float = 30) -> bytes:
    result = await sandbox.exec([python, "-c", code], env=env, timeout_s=timeout_s)
    return result.stdout + result.stderr


async def test_fork_bomb_is_held_by_its_limit_and_killed(
    new_sandbox: Maker, env: Env, python: str, alive: Callable[[str], list[int]]
) -> None:
    sandbox = await new_sandbox(limits=Limits(wall_s=4, pids=60))
    mark = f"bomb{secrets.token_hex(4)}"
    code = f"# {mark}\nimport os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    result = await sandbox.exec([python, "-S", "-c", code], env=env, timeout_s=60)
    assert result.timed_out and result.limit == "wall"
    assert alive(mark) == []
    assert (await sandbox.exec(["true"], env=env, timeout_s=20)).ok


async def test_reaching_the_process_limit_is_said(new_sandbox: Maker, env: Env, python: str) -> None:
    sandbox = await new_sandbox(limits=Limits(wall_s=60, pids=40))
    code = (
        "import os, time\nmade = 0\ntry:\n  while made < 500:\n    if os.fork() == 0:\n"
        "      time.sleep(60); os._exit(0)\n    made += 1\nfinally: print(made)"
    )
    result = await sandbox.exec([python, "-S", "-c", code], env=env, timeout_s=40)
    assert result.exit_code == 1 and result.limit == "pids"
    assert 36 <= int(result.stdout) <= 41


async def test_filling_the_disk_ends_at_the_limit(new_sandbox: Maker, env: Env, python: str) -> None:
    sandbox = await new_sandbox(limits=Limits(wall_s=60, disk_bytes=30 << 20))
    result = await sandbox.exec(["head", "-c", "200000000", "/dev/zero"], env=env, timeout_s=30, output_cap=10)
    assert result.ok and result.limit is None
    fill = "for place in '.', '/tmp':\n  try:\n    with open(place + '/big', 'wb') as f:\n"
    fill += "      for _ in range(100): f.write(bytes(1 << 20)); f.flush()\n  except OSError as e: print(e.errno)"
    result = await sandbox.exec([python, "-c", fill.replace("/tmp", sandbox.tmp)], env=env, timeout_s=30)
    assert result.limit == "disk"
    used = sum(sandbox.host_path(f"{place}/big").stat().st_size for place in (sandbox.workspace, sandbox.tmp))
    assert used <= 30 << 20
    assert result.stdout == b"28\n28\n"  # ENOSPC, not a crash of ours


async def test_print_of_200_mb_is_cut_and_the_end_is_seen(sandbox: Sandbox, env: Env) -> None:
    script = "head -c 200000000 /dev/zero; echo gone >&2; exit 7"
    result = await sandbox.exec(["sh", "-c", script], env=env, timeout_s=60, output_cap=1 << 20)
    assert (result.exit_code, result.stderr, result.truncated) == (7, b"gone\n", True)
    assert len(result.stdout) == 1 << 20


async def test_stderr_of_200_mb_is_cut_and_the_code_is_kept(sandbox: Sandbox, env: Env) -> None:
    script = "head -c 200000000 /dev/zero >&2; exit 7"
    result = await sandbox.exec(["sh", "-c", script], env=env, timeout_s=60, output_cap=1 << 20)
    assert result.exit_code == 7 and result.truncated and result.stderr == bytes(1 << 20)


@pytest.mark.usefixtures("only_isolating")
async def test_proc_shows_no_process_of_the_host(sandbox: Sandbox, env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = f"secret-{secrets.token_hex(8)}"
    holder = subprocess.Popen(["sleep", "60"], env={"KEY": secret})
    try:
        script = (
            "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; ls -d /proc/[0-9]* | wc -l"
        )
        result = await sandbox.exec(["sh", "-c", script], env=env, timeout_s=30)
    finally:
        holder.kill()
        holder.wait()
    assert secret.encode() not in result.stdout
    assert str(sandbox.host_path(sandbox.workspace)).encode() not in result.stdout
    assert int(result.stdout.split()[-1]) < 12
    first = await sandbox.exec(["cat", "/proc/1/environ"], env=env, timeout_s=20)
    assert first.stdout == b""


@pytest.mark.parametrize("path", ["/etc/shadow", "/root/.profile", "/proc/1/root/etc/shadow", "/dev/vda", "/dev/mem"])
@pytest.mark.usefixtures("only_isolating")
async def test_files_of_the_host_cannot_be_read(sandbox: Sandbox, env: Env, path: str) -> None:
    result = await sandbox.exec(["cat", path], env=env, timeout_s=20)
    assert result.exit_code != 0 and result.stdout == b""


@pytest.mark.usefixtures("only_isolating")
async def test_other_rollouts_cannot_be_seen(new_sandbox: Maker, env: Env) -> None:
    one, two = await new_sandbox(), await new_sandbox()
    await one.put_file(f"{one.home}/key", b"one's own")
    place = one.host_path(one.home)
    result = await two.exec(["sh", "-c", f"cat {place}/key; ls {place.parents[1]}; cat ~/key"], env=env, timeout_s=20)
    assert result.stdout == b""


@pytest.mark.usefixtures("only_isolating")
async def test_a_mount_shows_itself_and_not_its_neighbours_and_cannot_be_written(
    new_sandbox: Maker, tmp_path: Path, env: Env
) -> None:
    shared = tmp_path / "cache"
    for name in ("mine", "other"):
        (shared / name).mkdir(parents=True)
        (shared / name / "f").write_text(name)
    (shared / "mine").chmod(0o755)
    sandbox = await new_sandbox(mounts=(Mount(shared / "mine", "/opt/cache/mine"),))
    script = "cat /opt/cache/mine/f; ls /opt/cache; echo x > /opt/cache/mine/f || echo refused; echo x > /opt/cache/g"
    result = await sandbox.exec(["sh", "-c", script], env=env, timeout_s=20)
    assert result.stdout == b"minemine\nrefused\n"
    assert (shared / "mine" / "f").read_text() == "mine"


@pytest.mark.usefixtures("only_isolating")
async def test_only_workspace_home_and_tmp_can_be_written(sandbox: Sandbox, env: Env) -> None:
    script = "for d in / /usr /usr/bin /etc /dev /proc /proc/sys/kernel /run /home /var /opt /sys; do "
    script += (
        "touch $d/x 2>/dev/null && echo $d; done; for d in . ~ $TMPDIR /dev/shm; do touch $d/x || echo not $d; done"
    )
    result = await sandbox.exec(["sh", "-c", script], env=env, timeout_s=20)
    assert result.stdout == b""


@pytest.mark.usefixtures("only_isolating")
async def test_the_command_has_no_power(sandbox: Sandbox, env: Env) -> None:
    script = "id -u; grep -E '^(CapEff|CapPrm|NoNewPrivs)' /proc/self/status | tr -d ' \\t'"
    result = await sandbox.exec(["sh", "-c", script], env=env, timeout_s=20)
    assert result.stdout.split() == [b"61000", b"CapPrm:0000000000000000", b"CapEff:0000000000000000", b"NoNewPrivs:1"]
    assert sandbox.host_path(sandbox.workspace).stat().st_uid == 61000


@pytest.mark.usefixtures("only_isolating")
async def test_no_new_user_namespace(sandbox: Sandbox, env: Env, python: str) -> None:
    code = "import ctypes; print(ctypes.CDLL(None, use_errno=True).unshare(0x10000000), ctypes.get_errno() != 0)"
    assert b"-1 " in await python_in(sandbox, python, code, env)


async def test_dialling_a_service_of_the_host(
    sandbox: Sandbox, env: Env, python: str, listener: int, isolating: bool
) -> None:
    code = f"import socket; print(socket.create_connection(('127.0.0.1', {listener}), 3).recv(5))"
    said = await python_in(sandbox, python, code, env)
    assert (b"Connection refused" in said) if isolating else (b"hello" in said)
    assert sandbox.facts["network"] == ("none" if isolating else "open (not isolated)")


@pytest.mark.usefixtures("only_isolating")
async def test_dialling_out(sandbox: Sandbox, env: Env, python: str) -> None:
    code = "import socket\nfor a in ('192.0.2.1', '8.8.8.8'):\n  try: socket.create_connection((a, 53), 3)\n"
    code += "  except OSError as e: print(e.strerror)\ntry: socket.getaddrinfo('example.com', 80)\n"
    code += "except OSError: print('no name')"
    said = await python_in(sandbox, python, code, env)
    assert said == b"Network is unreachable\nNetwork is unreachable\nno name\n"


@pytest.mark.usefixtures("only_isolating")
async def test_abstract_sockets_of_the_host_are_out_of_reach(sandbox: Sandbox, env: Env, python: str) -> None:
    name = f"\0pairtrial-{secrets.token_hex(6)}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        code = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({name!r}); print('in')"
        assert b"Connection refused" in await python_in(sandbox, python, code, env)


@pytest.mark.usefixtures("only_isolating")
async def test_killing_everything_in_sight(sandbox: Sandbox, env: Env) -> None:
    for script in ("kill -9 -1; sleep 5", "kill -9 $PPID; sleep 5", "kill -TERM 0; sleep 5", "kill -9 1; exit 3"):
        result = await sandbox.exec(["sh", "-c", script], env=env, timeout_s=20)
        assert not result.timed_out and result.limit is None
        if script.startswith("kill -9 1"):
            assert result.exit_code == 3
    assert (await sandbox.exec(["true"], env=env, timeout_s=20)).ok


async def test_killing_parents_without_isolation(sandbox: Sandbox, env: Env, isolating: bool) -> None:
    if isolating:
        pytest.skip("covered above")
    result = await sandbox.exec(["sh", "-c", "kill -TERM -- -0; kill -TERM $PPID; exit 3"], env=env, timeout_s=20)
    assert result.signal in (None, signal.SIGTERM) and not result.timed_out
    result = await sandbox.exec(["sh", "-c", "sleep 543210 & kill -9 $PPID; sleep 543210"], env=env, timeout_s=20)
    assert result.signal == signal.SIGKILL and "from inside" in result.note and "sleep" in result.survivors
    assert (await sandbox.exec(["true"], env=env, timeout_s=20)).ok


async def test_an_orphan_that_hides_its_tracks_dies_all_the_same(
    sandbox: Sandbox, env: Env, python: str, alive: Callable[[str], list[int]]
) -> None:
    """Forked twice, in a session of its own, without environment, in another folder, under another name."""
    mark = f"{secrets.randbelow(10**8):08}"
    code = (
        "import os\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n    os.chdir('/')\n"
        f"    for n in range(3): os.close(n)\n    os.execve('/usr/bin/sleep', ['kworker', '{mark}'], {{}})\n  os._exit(0)\n"
        "import time; time.sleep(0.3)"
    )
    result = await sandbox.exec([python, "-S", "-c", code], env=env, timeout_s=20)
    assert result.exit_code == 0
    assert alive(mark) == []


async def test_a_late_writer_is_gone_and_named(sandbox: Sandbox, env: Env, isolating: bool) -> None:
    """A grandchild that ignores TERM and writes into the workspace after the end."""
    late = "trap '' TERM; sleep 2; echo late > late"
    script = f'setsid sh -c "{late}" & sleep 600'
    result = await sandbox.exec(["sh", "-c", script], env=env, timeout_s=0.5)
    assert result.timed_out
    if sandbox.kind != "bubblewrap":  # there the kernel ends a namespace before anyone can look
        assert "sh" in result.survivors or "sleep" in result.survivors
    await anyio.sleep(2.5)
    assert not sandbox.host_path(sandbox.workspace + "/late").exists()


async def test_links_planted_on_the_way_of_our_own_writes(sandbox: Sandbox, tmp_path: Path, env: Env) -> None:
    host = tmp_path / "host"
    host.mkdir()
    (host / "kept").write_text("kept")
    script = f"ln -s {host} d; ln -s {host}/kept f; ln -s {host} ~/.config; ln -s {host}/kept ~/mcp.json"
    assert (await sandbox.exec(["sh", "-c", script], env=env, timeout_s=20)).ok
    with pytest.raises(SandboxError, match="link"):
        await sandbox.put_file(f"{sandbox.workspace}/d/new", b"x")
    with pytest.raises(SandboxError, match="link"):
        await sandbox.put_file(f"{sandbox.home}/.config/new", b"x")
    await sandbox.put_file(f"{sandbox.workspace}/f", b"new")
    await sandbox.put_file(f"{sandbox.home}/mcp.json", b"new")
    source = tmp_path / "source"
    (source / "d").mkdir(parents=True)
    (source / "d" / "inner").write_text("x")
    with pytest.raises(SandboxError):
        await sandbox.put_tree(source, sandbox.workspace)
    assert {path.name: path.read_text() for path in host.iterdir()} == {"kept": "kept"}
    assert sandbox.host_path(f"{sandbox.workspace}/f").read_text() == "new"


async def test_links_are_not_followed_when_the_work_is_fetched(sandbox: Sandbox, tmp_path: Path, env: Env) -> None:
    (tmp_path / "secret").write_text("secret")
    script = f"ln -s {tmp_path}/secret a; ln -s {tmp_path} b; ln -s /etc/passwd c; mkdir sub; ln -s .. sub/up"
    assert (await sandbox.exec(["sh", "-c", script], env=env, timeout_s=20)).ok
    await sandbox.get_tree(sandbox.workspace, tmp_path / "out", max_bytes=1000)
    assert all(path.is_symlink() for path in (tmp_path / "out").iterdir() if path.name != "sub")
    assert (tmp_path / "out" / "sub" / "up").readlink() == Path("..")
    await sandbox.exec(["sh", "-c", f"rm -rf sub; ln -s {tmp_path} sub"], env=env, timeout_s=20)
    with pytest.raises(SandboxError):
        await sandbox.get_tree(f"{sandbox.workspace}/sub", tmp_path / "out2", max_bytes=1000)


async def test_a_tree_too_large_to_fetch_is_refused(sandbox: Sandbox, tmp_path: Path, env: Env) -> None:
    assert (
        await sandbox.exec(
            ["sh", "-c", "truncate -s 1T big || dd if=/dev/null of=big bs=1 seek=1T"], env=env, timeout_s=20
        )
    ).ok
    with pytest.raises(SandboxError, match="more than"):
        await sandbox.get_tree(sandbox.workspace, tmp_path / "out", max_bytes=1 << 20)


async def test_a_very_deep_tree_is_removed(sandbox: Sandbox, env: Env, python: str) -> None:
    code = "import os\nfor _ in range(3000):\n  os.mkdir('d' * 30); os.chdir('d' * 30)\nopen('f', 'w')"
    assert (await sandbox.exec([python, "-S", "-c", code], env=env, timeout_s=30)).ok
    base = sandbox.host_path(sandbox.workspace).parent
    await sandbox.destroy()
    assert not base.exists()


async def test_names_and_output_that_are_not_text(sandbox: Sandbox, env: Env, tmp_path: Path) -> None:
    script = "printf x > \"$(printf '\\377\\n\\033[31m')\"; printf '\\377\\000\\033[2J'"
    result = await sandbox.exec(["sh", "-c", script], env=env, timeout_s=20)
    assert result.stdout == b"\xff\x00\x1b[2J"
    await sandbox.get_tree(sandbox.workspace, tmp_path / "out", max_bytes=1000)
    assert [os.fsencode(path.name) for path in (tmp_path / "out").iterdir()] == [b"\xff\n\x1b[31m"]


def test_the_harness_python_is_what_the_local_sandbox_runs(python: str, kind: str) -> None:
    assert (python == sys.executable) == (kind == "local")
