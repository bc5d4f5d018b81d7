"""A pack made from our own code, in a folder of the test."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from pairtrial.core.canonical import tree_digest
from pairtrial.tasks import Pack, Target, load_pack

CODE = '''\
"""Counting beads."""


def clamp(value, low, high):
    """Keep a value between two bounds."""
    if value <= low:
        return low
    return high if value > high else value


class Abacus:
    def __init__(self, beads=10):
        self.beads = beads

    def spread(self, total):
        return [total // self.beads] * self.beads
'''
TESTS = '''\
import pytest

from abacus import Abacus, clamp

SECRET_CASES = [(7331, 1, 9, 9), (0, 1, 9, 1)]


@pytest.mark.parametrize("value, low, high, wanted", SECRET_CASES)
def test_clamp_hidden(value, low, high, wanted):
    """The sentence that nobody must read."""
    assert clamp(value, low, high) == wanted


def test_clamp_inside():
    assert clamp(5, 1, 9) == 5


class TestAbacus:
    def test_spread(self):
        assert Abacus(2).spread(8) == [4, 4]
'''
BASELINE = (
    "tests/test_abacus.py::test_clamp_hidden[7331-1-9-9]",
    "tests/test_abacus.py::test_clamp_hidden[0-1-9-1]",
    "tests/test_abacus.py::test_clamp_inside",
    "tests/test_abacus.py::TestAbacus::test_spread",
)
LOCK = "pytest==9.2.0 \\\n    --hash=sha256:" + "0" * 64 + "\n"
PROMPT = "Numbers above the upper bound are not kept below it.\n\n```python\nassert clamp(10, 1, 9) == 9\n```\n"


@dataclass
class PackFolder:
    """A pack on disk, whose documents a test can change before it is loaded."""

    root: Path
    files: dict[str, str]
    target: dict[str, Any] = field(default_factory=dict)
    task: dict[str, Any] = field(default_factory=dict)
    pack: dict[str, Any] = field(default_factory=dict)

    @property
    def target_folder(self) -> Path:
        return self.root / "targets" / "abacus"

    @property
    def task_folder(self) -> Path:
        return self.root / "abacus-clamp"

    def write(self) -> Path:
        source = self.target_folder / "source"
        for name, text in self.files.items():
            path = source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        if self.target["source"].get("tree") == "measured":
            self.target["source"]["tree"] = tree_digest(source)
        self.task_folder.mkdir(exist_ok=True)
        (self.target_folder / "requirements.lock").write_text(LOCK)
        (self.target_folder / "baseline.txt").write_text("".join(f"{line}\n" for line in BASELINE))
        (self.task_folder / "prompt.md").write_text(PROMPT)
        self.write_documents()
        return self.root

    def write_documents(self) -> None:
        (self.target_folder / "target.yaml").write_text(yaml.safe_dump(self.target, sort_keys=False))
        (self.task_folder / "task.yaml").write_text(yaml.safe_dump(self.task, sort_keys=False))
        (self.root / "pack.yaml").write_text(yaml.safe_dump(self.pack, sort_keys=False))

    def load(self) -> Pack:
        return load_pack(self.write())


def span(file: str, scope: str | None, line: int, column: int, old: str, new: str) -> dict[str, Any]:
    return {"file": file, "scope": scope, "line": line, "column": column, "old": old, "new": new}


@pytest.fixture
def pack_folder(tmp_path: Path) -> PackFolder:
    """The pack before it is written: one target, one task."""
    return PackFolder(
        tmp_path / "pack",
        {
            "src/abacus.py": CODE,
            "tests/test_abacus.py": TESTS,
            "README.md": "# Abacus\n",
            ".gitignore": "README.md\n*.log\n",
            "run.log": "kept although it is ignored\n",
        },
        target={
            "schema": "pairtrial.target.v1",
            "id": "abacus",
            "source": {"kind": "local", "path": "source", "tree": "measured", "name": "abacus", "version": "1.0"},
            "license": "MIT",
            "environment": {"lock": "requirements.lock", "metadata": True},
            "pythonpath": ["src"],
            "tests": {"framework": "pytest", "args": ["-p", "no:cacheprovider"], "paths": ["tests"]},
            "baseline": "baseline.txt",
        },
        task={
            "schema": "pairtrial.task.v1",
            "id": "abacus-clamp",
            "title": "Clamp does not clamp",
            "target": "abacus",
            "category": "condition",
            "prompt": "prompt.md",
            "defect": [span("src/abacus.py", "clamp", 8, 25, ">", "<")],
            "fail_to_pass": list(BASELINE[:1]),
        },
        pack={"schema": "pairtrial.pack.v1", "id": "mine", "title": "Mine", "tasks": ["abacus-clamp"]},
    )


@pytest.fixture
def pack(pack_folder: PackFolder) -> Pack:
    """The pack, loaded."""
    return pack_folder.load()


@pytest.fixture
def bare_target(pack: Pack) -> Target:
    """The target with an empty lock: its environment can be made without a registry."""
    target = pack.tasks[0].target
    return Target(target.document, target.folder, "", target.baseline)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """An empty cache."""
    return tmp_path / "cache"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        self.server.seen.append(self.path)  # type: ignore[attr-defined]


@dataclass
class Index:
    """A package index on loopback, served from a folder."""

    folder: Path
    url: str
    seen: list[str]

    def add(self, project: str, files: Mapping[str, bytes]) -> None:
        page = self.folder / "simple" / project
        page.mkdir(parents=True)
        (self.folder / "files").mkdir(exist_ok=True)
        links = []
        for name, data in files.items():
            (self.folder / "files" / name).write_bytes(data)
            links.append(f'<a href="../../files/{name}#sha256={hashlib.sha256(data).hexdigest()}">{name}</a>')
        (page / "index.html").write_text(f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """An empty index that pip and uv are configured with."""
    folder = tmp_path / "index"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    server.seen = []  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}/simple"
    monkeypatch.setenv("UV_DEFAULT_INDEX", url)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    yield Index(folder, url, server.seen)  # type: ignore[attr-defined]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def dedented() -> Callable[[str], str]:
    """Source text of a test, without its indentation."""
    return lambda text: textwrap.dedent(text).lstrip("\n")
