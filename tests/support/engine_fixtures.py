"""A private container engine for tests, with an image made from files of this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from pairtrial.sandbox.engine import forget_engines, ping

IMAGE = "pairtrial/host:test"
ROOT = Path(__file__).resolve().parents[2]


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
