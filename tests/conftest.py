"""Shared by all tests: the event loop, and parts of the machine that a test needs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import pytest

pytest_plugins = ("engine_fixtures",)
PROGRAMS = {"bubblewrap": "bwrap", "docker": "dockerd"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def require() -> Callable[..., None]:
    """``require("bubblewrap")``: skip without the part, or fail where PAIRTRIAL_REQUIRE names it.

    A second argument says whether the part is there; without it, a program of that name on PATH decides.
    """
    demanded = {name.strip() for name in os.environ.get("PAIRTRIAL_REQUIRE", "").split(",") if name.strip()}

    def check(part: str, present: bool | None = None, reason: str = "") -> None:
        if present is None:
            present = shutil.which(PROGRAMS.get(part, part)) is not None
        if present:
            return
        message = f"{part} is not here" + (f": {reason}" if reason else "")
        if part in demanded:
            pytest.fail(f"{message}, and PAIRTRIAL_REQUIRE demands it")
        pytest.skip(message)

    return check
