"""A small package of our own with one broken token, and tinker as its users start it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SLUGS = '''\
"""Slugs."""

DASH = "-"


def words(text):
    """Words of a text, lowered."""
    return [word.lower() for word in text.split()]


def slug(text, limit=20):
    """A slug of at most ``limit`` characters; whole words only."""
    result = ""
    for word in words(text):
        longer = result + DASH + word if result else word
        if len(longer) < limit:
            result = longer
    return result
'''
SHAPES = '''\
"""Shapes."""


class Box:
    """A box on a grid."""

    def __init__(self, width, height):
        self.width = width
        self.height = height

    def area(self):
        """Its area."""
        return self.width * self.height

    def fits(self, other):
        """Whether another box fits inside."""
        return other.width <= self.width and other.height <= self.height
'''
VISIBLE = """\
from pack.shapes import Box
from pack.slugs import slug, words


def test_words():
    assert words("Two Words") == ["two", "words"]


def test_short_slug():
    assert slug("Two Words") == "two-words"


def test_a_limit_is_kept():
    assert slug("one two three", limit=9) == "one-two"


def test_area():
    assert Box(2, 3).area() == 6
"""
PROMPT = """\
A slug that is exactly as long as the limit loses its last word.

```python
from pack import slug

assert slug("one two", limit=7) == "one-two"
```

The tests are run with

```sh
python -m pytest -p no:cacheprovider tests
```
"""
FAULT = ("if len(longer) < limit:", "if len(longer) <= limit:")
ROOT = Path(__file__).parents[2]
BM25 = ROOT / "providers" / "bm25"


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of tinker."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stdout.splitlines()]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    for path, text in {
        "pack/__init__.py": "from pack.shapes import Box\nfrom pack.slugs import slug\n",
        "pack/slugs.py": SLUGS,
        "pack/shapes.py": SHAPES,
        "tests/test_pack.py": VISIBLE,
    }.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return root


@pytest.fixture
def task_environment(tmp_path: Path, workspace: Path) -> dict[str, str]:
    """The whole environment, as a sandbox would give it: nothing is inherited."""
    home = tmp_path / "home"
    home.mkdir()
    return {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"]),
        "PYTHONPATH": str(workspace),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(home),
        "TMPDIR": str(tmp_path),
        "LC_ALL": "C.UTF-8",
    }


@pytest.fixture
def tinker_command(tmp_path: Path) -> Callable[..., list[str]]:
    def command(servers: Mapping[str, Any] | None = None, *, seed: int = 1, steps: int = 200) -> list[str]:
        config = tmp_path / "mcp.json"
        config.write_text(json.dumps({"mcpServers": dict(servers or {})}))
        return [
            *(sys.executable, "-m", "pairtrial.harness.tinker", "--model", "tinker-1", "--mcp-config", str(config)),
            *("--max-steps", str(steps), "--seed", str(seed)),
        ]

    return command


@pytest.fixture
def tinker(
    workspace: Path, task_environment: dict[str, str], tinker_command: Callable[..., list[str]]
) -> Callable[..., Ran]:
    """``tinker(servers, seed=…, steps=…, prompt=…)`` in the workspace."""

    def run(servers: Mapping[str, Any] | None = None, *, prompt: str = PROMPT, seed: int = 1, steps: int = 200) -> Ran:
        argv = tinker_command(servers, seed=seed, steps=steps)
        ended = subprocess.run(
            argv, cwd=workspace, env=task_environment, input=prompt.encode(), capture_output=True, timeout=100
        )
        return Ran(ended.returncode, ended.stdout, ended.stderr)

    return run


@pytest.fixture
def bm25_server(tmp_path: Path, workspace: Path) -> Callable[[], dict[str, Any]]:
    """Index the workspace as it is now; the entry of the MCP config."""

    def make() -> dict[str, Any]:
        index = tmp_path / "index.json"
        subprocess.run(
            [sys.executable, str(BM25 / "index.py"), "--root", str(workspace), "--out", str(index)], check=True
        )
        return {
            "bm25": {"command": sys.executable, "args": [str(BM25 / "server.py"), "--index", str(index)], "env": {}}
        }

    return make


@pytest.fixture
def tree() -> Callable[[Path], dict[str, bytes]]:
    """Every file below a folder with its bytes."""

    def read(root: Path) -> dict[str, bytes]:
        return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}

    return read
