"""One sandbox of each kind for the conformance suite."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pairtrial.sandbox import Limits, Sandbox, SandboxSpec, make_sandbox
from pairtrial.sandbox.engine import forget_engines, ping

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
IMAGE = "pairtrial/host:test"
ROOT = Path(__file__).resolve().parents[2]
SandboxMaker = Callable[..., Awaitable[Sandbox]]


@pytest.fixture
def env() -> dict[str, str]:
    return dict(ENV)


@pytest.fixture
def spec(tmp_path: Path) -> SandboxSpec:
    return SandboxSpec(label="test/cell/agent", scratch=tmp_path / "scratch", limits=Limits(wall_s=60.0))


def start_engine(root: Path) -> subprocess.Popen[bytes]:
    """A private engine with folders of its own, which leaves the network of this machine alone."""
    own = [f"--host=unix://{root}/sock", "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"]
    with (root / "log").open("ab") as log:
        return subprocess.Popen(
            ["dockerd", f"--data-root={root}/data", f"--exec-root={root}/run", f"--pidfile={root}/pid", *own],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def wait_for_engine(root: Path, process: subprocess.Popen[bytes]) -> None:
    """Until it answers."""
    for _ in range(600):
        if process.poll() is not None:
            pytest.fail("dockerd ended: " + (root / "log").read_text()[-2000:])
        with contextlib.suppress(OSError):
            ping(f"{root}/sock")
            return
        time.sleep(0.05)
    pytest.fail("dockerd does not answer")


def stop_engine(root: Path, process: subprocess.Popen[bytes]) -> None:
    """End it and remove its folders."""
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    subprocess.run(["umount", "-l", str(root / "data")], stderr=subprocess.DEVNULL, check=False)
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def docker_engine(require: Callable[..., None]) -> Iterator[Path]:
    """A private engine for the session, with an image made from files of this machine."""
    require("docker")
    require("docker", os.geteuid() == 0, "a private engine needs root")
    root = Path(tempfile.mkdtemp(prefix="eng-"))  # short: the name of a socket has at most 107 bytes
    process = start_engine(root)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_HOST", f"unix://{root}/sock")
            wait_for_engine(root, process)
            build = ROOT / "sandbox" / "images" / "host" / "build.py"
            subprocess.run([sys.executable, str(build), "--tag", IMAGE], check=True, stdout=subprocess.DEVNULL)
            yield root
            forget_engines()
    finally:
        stop_engine(root, process)


@pytest.fixture
def engine_tools() -> SimpleNamespace:
    """To start an engine that a test may kill."""
    return SimpleNamespace(start=start_engine, wait=wait_for_engine, stop=stop_engine)


@pytest.fixture
def image_script() -> Path:
    return ROOT / "sandbox" / "images" / "host" / "build.py"


@pytest.fixture(params=["local", "bubblewrap", "docker"])
def kind(request: pytest.FixtureRequest, require: Callable[..., None]) -> str:
    if request.param != "local":
        require(request.param)
    if request.param == "docker":
        request.getfixturevalue("docker_engine")
    return str(request.param)


@pytest.fixture
async def new_sandbox(kind: str, spec: SandboxSpec) -> AsyncIterator[SandboxMaker]:
    """Make prepared sandboxes of the kind under test; all are destroyed afterwards."""
    made: list[Sandbox] = []

    async def make(**changes: Any) -> Sandbox:
        given = {"image": IMAGE, **changes} if kind == "docker" else changes
        sandbox = make_sandbox(kind, replace(spec, **given))
        made.append(sandbox)
        await sandbox.prepare()
        return sandbox

    yield make
    for sandbox in made:
        await sandbox.destroy()


@pytest.fixture
async def sandbox(new_sandbox: SandboxMaker) -> Sandbox:
    return await new_sandbox()


@pytest.fixture
def isolating(kind: str) -> bool:
    return kind != "local"


@pytest.fixture
def python(kind: str) -> str:
    """A Python that can be run inside."""
    return sys.executable if kind == "local" else "/usr/bin/python3"


@pytest.fixture
def alive() -> Callable[[str], list[int]]:
    """Processes of this machine whose command line holds a text."""

    def find(text: str) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    if text.encode() in (entry / "cmdline").read_bytes():
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    return find
