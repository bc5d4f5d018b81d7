"""Shared by the statistics tests."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def rivals() -> ModuleType:
    """The methods that the validation study compares with; they are not part of the package."""
    path = Path(__file__).parents[2] / "stats" / "validation" / "rivals.py"
    spec = importlib.util.spec_from_file_location("rivals", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
