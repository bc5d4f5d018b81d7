"""Shared by all tests: the event loop, and parts of the machine that a test needs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from parts import require_part

pytest_plugins = ("engine_fixtures", "framework_examples")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def require() -> Callable[..., None]:
    """``require("bubblewrap")``: skip without the part, or fail where PAIRTRIAL_REQUIRE names it."""
    return require_part
