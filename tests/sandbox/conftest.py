"""One sandbox of each kind for the conformance suite."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pairtrial.sandbox import Limits, Sandbox, SandboxSpec, make_sandbox

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
IMAGE = "pairtrial/host:test"
SandboxMaker = Callable[..., Awaitable[Sandbox]]


@pytest.fixture
def env() -> dict[str, str]:
    return dict(ENV)


@pytest.fixture
def spec(tmp_path: Path) -> SandboxSpec:
    return SandboxSpec(label="test/cell/agent", scratch=tmp_path / "scratch", limits=Limits(wall_s=60.0))


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
