"""Virtual environments from hash-pinned locks, made with uv: copied files, bytecode that never looks at a clock."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio.to_thread

from pairtrial.sandbox import ExecResult
from pairtrial.sandbox.process import run
from pairtrial.tasks.index import tool_environment

_UV_TIMEOUT_S = 900.0


def interpreter() -> str:
    """The Python that environments are made from: ours, outside of any virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def site_packages(root: Path) -> Path:
    """Where the environment at ``root`` keeps its packages."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return root / "lib" / version / "site-packages"


def installed(root: Path) -> list[str]:
    """``name-version`` of everything installed in it, sorted."""
    return sorted(item.name.removesuffix(".dist-info") for item in site_packages(root).glob("*.dist-info"))


def venv_arguments(root: Path) -> list[str]:
    """Arguments of uv that make an empty environment, which may be moved."""
    return ["venv", "--relocatable", "--no-project", "--python", interpreter(), os.fspath(root)]


def install_arguments(root: Path, lock: Path) -> list[str]:
    """Arguments of uv that install exactly what a lock pins, from wheels."""
    options = ["--require-hashes", "--no-deps", "--no-build", "--link-mode", "copy", "--compile-bytecode"]
    return ["pip", "install", "--python", os.fspath(root / "bin" / "python"), *options, "-r", os.fspath(lock)]


async def run_uv(arguments: Sequence[str]) -> ExecResult:
    """Run uv with the index that the machine is configured for; never raises for its failure."""
    from uv import find_uv_bin

    environment = await anyio.to_thread.run_sync(tool_environment)
    environment |= {"UV_PYTHON_DOWNLOADS": "never", "NO_COLOR": "1", "PYC_INVALIDATION_MODE": "UNCHECKED_HASH"}
    return await run([find_uv_bin(), *arguments], env=environment, timeout_s=_UV_TIMEOUT_S, output_cap=1 << 20)


def said_by(done: ExecResult) -> str:
    """What uv complained of, in one line, without its chatter."""
    chatter = ("Using Python", "Checked", "Resolved", "Prepared", "Installed", "Found")
    text = done.stderr.decode(errors="replace")
    return " ".join(" ".join(line for line in text.splitlines() if not line.startswith(chatter)).split())[-1500:]
