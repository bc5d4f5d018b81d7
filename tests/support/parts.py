"""Parts of the machine that a test needs: skipped without them, failed where PAIRTRIAL_REQUIRE names them."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

PROGRAMS = {"bubblewrap": "bwrap", "docker": "dockerd"}


def require_part(part: str, present: bool | None = None, reason: str = "") -> None:
    """Skip or fail without ``part``; ``present`` says whether it is there, else a program of that name on PATH does."""
    if present is None:
        present = shutil.which(PROGRAMS.get(part, part)) is not None
    if present:
        return
    message = f"{part} is not here" + (f": {reason}" if reason else "")
    demanded = {name.strip() for name in os.environ.get("PAIRTRIAL_REQUIRE", "").split(",") if name.strip()}
    if part in demanded:
        pytest.fail(f"{message}, and PAIRTRIAL_REQUIRE demands it")
    pytest.skip(message)


def real_program(name: str) -> str:
    """Path of a toolchain's program; behind a rustup proxy the real one, for the proxy looks for settings in HOME."""
    require_part("cargo" if name in ("rustc", "rustdoc") else name)
    if name in ("cargo", "rustc", "rustdoc") and shutil.which("rustup"):
        return subprocess.run(["rustup", "which", name], capture_output=True, text=True, check=True).stdout.strip()
    return str(shutil.which(name))
