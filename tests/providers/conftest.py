"""The BM25 provider, loaded as its own programs load it."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

PROVIDER = Path(__file__).parents[2] / "providers" / "bm25"


@pytest.fixture
def bm25(tmp_path: Path) -> Path:
    """A copy of the provider's folder, as a rollout mounts it: nothing of the repository is beside it."""
    copy = tmp_path / "provider"
    shutil.copytree(PROVIDER, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, PROVIDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def index_module() -> ModuleType:
    return _load("index")


@pytest.fixture(scope="session")
def server_module() -> Iterator[ModuleType]:
    path, bytecode = list(sys.path), sys.dont_write_bytecode
    try:
        yield _load("server")
    finally:
        sys.path[:], sys.dont_write_bytecode = path, bytecode
        sys.modules.pop("index", None)
