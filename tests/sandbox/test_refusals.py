"""What is not there is said, by kind of error, and nothing weaker is taken in its place."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

from pairtrial.core.errors import ExitCode, SandboxError, SandboxUnavailableError
from pairtrial.sandbox import Isolation, Limits, Sandbox, SandboxSpec, make_sandbox
from pairtrial.sandbox.disk import mount_tmpfs, unmount_below
from pairtrial.sandbox.docker import DockerSandbox
from pairtrial.sandbox.engine import Engine, engine, forget_engines, speaking

pytestmark = pytest.mark.anyio
Maker = Callable[..., Awaitable[Sandbox]]
Env = dict[str, str]
IMAGE = "pairtrial/host:test"


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("local", Isolation.NAMESPACES),
        ("local", Isolation.CONTAINER),
        ("bubblewrap", Isolation.CONTAINER),
    ],
)
def test_a_weaker_sandbox_is_refused(kind: str, wanted: Isolation, spec: SandboxSpec) -> None:
    with pytest.raises(SandboxUnavailableError, match=wanted.value) as caught:
        make_sandbox(kind, spec, wanted=wanted)
    assert caught.value.slug == "weaker-isolation" and caught.value.exit_code is ExitCode.ENVIRONMENT


def test_an_equal_or_stronger_one_is_given(spec: SandboxSpec) -> None:
    assert make_sandbox("local", spec, wanted=Isolation.NONE).isolation is Isolation.NONE
    docker = make_sandbox("docker", replace(spec, image="x"), wanted=Isolation.NAMESPACES)
    assert docker.isolation is Isolation.CONTAINER


def test_an_unknown_kind_is_named(spec: SandboxSpec) -> None:
    with pytest.raises(SandboxUnavailableError, match="podman"):
        make_sandbox("podman", spec)


def test_bubblewrap_that_is_missing_is_not_replaced(spec: SandboxSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxUnavailableError, match="install the package bubblewrap"):
        make_sandbox("bubblewrap", spec)


async def test_bubblewrap_that_does_not_work_is_said_before_any_command(
    spec: SandboxSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "bin" / "bwrap"
    broken.parent.mkdir()
    broken.write_text(
        '#!/bin/sh\ncase "$*" in *--help*) echo "--perms --size --userns FD";; *) echo no >&2; exit 1;; esac\n'
    )
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken.parent}:/usr/bin:/bin")
    sandbox = make_sandbox("bubblewrap", spec)
    with pytest.raises(SandboxUnavailableError, match="cannot be used here: no"):
        await sandbox.prepare()
    assert list(spec.scratch.iterdir()) == []


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    yield
    forget_engines()


@pytest.mark.usefixtures("no_engine")
async def test_a_dead_engine_is_said_and_nothing_is_left(spec: SandboxSpec) -> None:
    sandbox = make_sandbox("docker", replace(spec, image="x"))
    with pytest.raises(SandboxUnavailableError, match="no Docker engine answers") as caught:
        await sandbox.prepare()
    assert caught.value.slug == "no-engine"
    assert not spec.scratch.exists()


async def test_an_engine_elsewhere_is_refused(spec: SandboxSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    with pytest.raises(SandboxUnavailableError, match="only an engine on this machine"):
        await make_sandbox("docker", replace(spec, image="x")).prepare()


def test_docker_without_an_image_is_refused(spec: SandboxSpec) -> None:
    with pytest.raises(SandboxUnavailableError, match="image"):
        make_sandbox("docker", spec)


@pytest.mark.usefixtures("docker_engine")
async def test_a_missing_image_is_named_and_never_pulled(spec: SandboxSpec) -> None:
    for name in ("pairtrial/never:1", "sha256:" + "0" * 64):
        with pytest.raises(SandboxUnavailableError, match="not on this machine") as caught:
            await make_sandbox("docker", replace(spec, image=name)).prepare()
        assert caught.value.slug == "no-image"
    assert not spec.scratch.exists()


@pytest.mark.usefixtures("docker_engine")
async def test_an_image_can_be_pinned_by_its_id(spec: SandboxSpec, env: Env) -> None:
    name = str(engine().api.inspect_image(IMAGE)["Id"])
    sandbox = make_sandbox("docker", replace(spec, image=name))
    await sandbox.prepare()
    assert sandbox.facts["image_id"] == name and name.startswith("sha256:")
    assert (await sandbox.exec(["true"], env=env, timeout_s=20)).ok
    await sandbox.destroy()


@pytest.fixture
def restart_engine(
    docker_engine: Path, engine_tools: SimpleNamespace, image_script: Path
) -> Iterator[Callable[[], None]]:
    """An engine of its own that the test may restart; DOCKER_HOST names it."""
    root = Path(tempfile.mkdtemp(prefix="en2-"))
    processes = [engine_tools.start(root)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", f"unix://{root}/sock")
        engine_tools.wait(root, processes[0])
        subprocess.run([sys.executable, str(image_script), "--tag", IMAGE], check=True, stdout=subprocess.DEVNULL)

        def restart() -> None:
            processes[-1].terminate()
            processes[-1].wait(30)
            processes.append(engine_tools.start(root))
            engine_tools.wait(root, processes[-1])

        yield restart
        forget_engines()
    engine_tools.stop(root, processes[-1])


async def test_an_engine_restarted_in_the_middle_is_a_lost_sandbox(
    restart_engine: Callable[[], None], spec: SandboxSpec, env: Env
) -> None:
    sandbox = make_sandbox("docker", replace(spec, image=IMAGE))
    await sandbox.prepare()
    running = await sandbox.start(["sleep", "600"], env=env, timeout_s=600)
    slugs = []

    async def wait() -> None:
        try:
            await running.wait()
        except SandboxError as fault:
            slugs.append(fault.slug)

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.to_thread.run_sync(restart_engine)
    assert slugs in (["container-lost"], ["engine-lost"])
    with pytest.raises(SandboxError):
        await sandbox.exec(["true"], env=env, timeout_s=20)
    await sandbox.destroy()
    await sandbox.destroy()
    assert list(spec.scratch.iterdir()) == []
    again = make_sandbox("docker", replace(spec, image=IMAGE))
    await again.prepare()
    assert (await again.exec(["true"], env=env, timeout_s=20)).ok
    await again.destroy()


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the SDK forgets the socket of a refused connection
async def test_an_engine_that_is_gone_at_the_end_keeps_the_container_and_not_the_folders(
    docker_engine: Path, spec: SandboxSpec
) -> None:
    sandbox = DockerSandbox(replace(spec, image=IMAGE))
    await sandbox.prepare()
    name = sandbox.custody.container
    place = docker_engine / "sock"
    place.rename(docker_engine / "hidden")
    try:
        with pytest.raises(SandboxError) as caught:
            await sandbox.destroy()
    finally:
        (docker_engine / "hidden").rename(place)
    assert caught.value.slug == "engine-lost"
    del caught
    gc.collect()
    assert list(spec.scratch.iterdir()) == []
    engine().api.remove_container(name, force=True)


async def test_a_container_removed_from_outside_is_a_lost_sandbox(
    docker_engine: Path, spec: SandboxSpec, env: Env
) -> None:
    sandbox = make_sandbox("docker", replace(spec, image=IMAGE))
    await sandbox.prepare()
    running = await sandbox.start(["sleep", "600"], env=env, timeout_s=600)
    api = engine().api
    for item in api.containers(filters={"label": "pairtrial.owner"}):
        api.remove_container(item["Id"], force=True)
    with pytest.raises(SandboxError) as caught:
        await running.wait()
    assert caught.value.slug == "container-lost"
    await sandbox.destroy()
    assert list(spec.scratch.iterdir()) == []


@pytest.mark.usefixtures("docker_engine")
async def test_an_engine_whose_processes_we_cannot_see_is_started_anew_to_end_them(
    spec: SandboxSpec, env: Env, alive: Callable[[str], list[int]]
) -> None:
    """As with an engine in a virtual machine: no control group in sight, so no signal can be sent."""
    sandbox = DockerSandbox(replace(spec, image=IMAGE))
    await sandbox.prepare()
    sandbox.custody.inmates.folders.clear()
    late = await sandbox.exec(
        ["sh", "-c", "trap '' TERM; sleep 765432 & sleep 765432; sleep 9"], env=env, timeout_s=0.5
    )
    assert late.timed_out and alive("sleep\0765432") == []
    sandbox.custody.inmates.folders.clear()
    left = await sandbox.exec(["sh", "-c", "setsid sleep 765433 & exit 3"], env=env, timeout_s=30)
    assert left.exit_code == 3 and "sleep" in left.survivors and alive("sleep\0765433") == []
    assert (await sandbox.exec(["true"], env=env, timeout_s=20)).ok
    await sandbox.destroy()


def test_errors_of_the_engine_become_ours() -> None:
    from docker import errors
    from requests.exceptions import ConnectionError as Refused

    cases = [
        (errors.ImageNotFound("x"), "no-image"),
        (errors.NotFound("x", explanation="No such container"), "container-lost"),
        (errors.APIError("x", explanation="write /x: no space left on device"), "disk-full"),
        (errors.APIError("x", explanation="invalid mount"), "engine-refused"),
        (Refused("refused"), "engine-lost"),
        (ConnectionResetError("reset"), "engine-lost"),
    ]
    for raised, slug in cases:
        with pytest.raises(SandboxError) as caught, speaking("trying"):
            raise raised
        assert caught.value.slug == slug and str(caught.value).startswith("trying")
        assert caught.value.exit_code is ExitCode.ENVIRONMENT


def test_an_engine_that_answers_nonsense(tmp_path: Path) -> None:
    import socket
    import threading

    place = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place)
        server.listen()

        def answer(text: bytes) -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(text)

        for text, slug in (
            (b'HTTP/1.1 409 Conflict\r\n\r\n{"message": "container is paused"}', "exec-failed"),
            (b"", "engine-lost"),
        ):
            thread = threading.Thread(target=answer, args=(text,))
            thread.start()
            with pytest.raises(SandboxError) as caught:
                Engine(None, place, "1.41", "", "1", "", ()).attach("x")
            thread.join()
            assert caught.value.slug == slug
    with pytest.raises(SandboxError, match="gone"):
        Engine(None, place + "-", "1.41", "", "1", "", ()).attach("x")


async def test_a_full_scratch_disk_is_our_fault_and_leaves_nothing(
    new_sandbox: Maker, tmp_path: Path, env: Env
) -> None:
    if os.geteuid():
        pytest.skip("needs root")
    scratch, source = tmp_path / "small", tmp_path / "source"
    scratch.mkdir()
    source.mkdir()
    (source / "big").write_bytes(bytes(4 << 20))
    assert mount_tmpfs(scratch, 1 << 20)
    try:
        sandbox = await new_sandbox(scratch=scratch, limits=Limits(wall_s=20))
        with pytest.raises(SandboxError, match="No space left"):
            await sandbox.put_tree(source, sandbox.workspace)
        with pytest.raises(SandboxError, match="No space left"):
            await sandbox.put_file(f"{sandbox.home}/f", bytes(4 << 20))
        await sandbox.destroy()
        assert list(scratch.iterdir()) == []
    finally:
        unmount_below(scratch)


def test_scratch_that_cannot_be_made(kind: str, spec: SandboxSpec, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    given = replace(spec, scratch=tmp_path / "file" / "below", image=IMAGE)

    async def run() -> None:
        await make_sandbox(kind, given).prepare()

    with pytest.raises(SandboxError, match="--scratch"):
        anyio.run(run)


def test_no_silent_pull_anywhere() -> None:
    """The SDK's convenience calls pull a missing image by themselves."""
    source = Path(__file__).resolve().parents[2] / "src" / "pairtrial" / "sandbox"
    text = "".join(path.read_text() for path in source.glob("*.py"))
    for call in ("containers.run", "images.pull", "api.pull", "images.get"):
        assert call not in text
