"""The files that tinker may edit, read once, with the offsets that its edits need."""

from __future__ import annotations

import ast
import os
import re
import stat
import warnings
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

MAX_FILE_BYTES = 1 << 20
_SKIPPED_FOLDERS = frozenset(
    [
        "test",
        "tests",
        "testing",
        "doc",
        "docs",
        "example",
        "examples",
        "bench",
        "benches",
        "benchmark",
        "benchmarks",
        "build",
        "dist",
        "venv",
        "node_modules",
        "site-packages",
        "__pycache__",
    ]
)
_SKIPPED_FILE = re.compile(r"^(test_.*|.*_tests?|tests|conftest|setup|noxfile|tasks|versioneer)\.py$")

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Function:
    """A function or method that is not inside another function."""

    name: str
    """Qualified name inside its file."""
    first_line: int
    """Line of the first decorator or of ``def``."""
    last_line: int
    node: FunctionNode
    owner: str
    """Qualified name of its class, or an empty string."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One Python file: bytes, syntax tree, functions."""

    path: str
    """POSIX path below the workspace."""
    data: bytes
    tree: ast.Module
    line_starts: tuple[int, ...]
    functions: tuple[Function, ...]

    def start(self, node: ast.expr | ast.stmt) -> int:
        """Byte offset of a node's first byte."""
        return self.line_starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        """Byte offset after a node's last byte."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.line_starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.expr | ast.stmt) -> bytes:
        """The bytes of a node."""
        return self.data[self.start(node) : self.end(node)]

    def line_of(self, offset: int) -> int:
        """1-based line of a byte offset."""
        return bisect_right(self.line_starts, offset)

    def function_at(self, line: int) -> Function | None:
        """The function that a line belongs to."""
        return next((f for f in self.functions if f.first_line <= line <= f.last_line), None)


def parse_source(path: str, data: bytes) -> SourceFile | None:
    """Read one file; None when tinker cannot edit it safely (not UTF-8, a syntax error, old line ends)."""
    if data.startswith(b"\xef\xbb\xbf") or b"\r" in data.replace(b"\r\n", b"\n") or b"\x0c" in data:
        return None  # offsets of the syntax tree would not be offsets into the bytes
    try:
        data.decode("utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    lines = data.split(b"\n")
    starts = tuple(accumulate((len(line) + 1 for line in lines), initial=0))[:-1]
    return SourceFile(path, data, tree, starts, tuple(_functions(tree.body, "")))


def _functions(body: list[ast.stmt], prefix: str) -> Iterator[Function]:
    for node in body:
        if isinstance(node, FunctionNode):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield Function(prefix + node.name, first, node.end_lineno or node.lineno, node, prefix.rstrip("."))
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{prefix}{node.name}.")
        else:
            for field in ("body", "orelse", "finalbody"):
                yield from _functions(getattr(node, field, []), prefix)
            for handler in getattr(node, "handlers", []):
                yield from _functions(handler.body, prefix)


def is_source(path: str) -> bool:
    """Whether a path names a Python file that a repair may touch: no tests, docs, examples, build scripts."""
    *folders, name = path.split("/")
    if any("\ud800" <= character <= "\udfff" for character in path):
        return False  # a name that is not UTF-8 could not be reported
    if not name.endswith(".py") or name.startswith(".") or _SKIPPED_FILE.match(name):
        return False
    return not any(folder.startswith(".") or folder.lower() in _SKIPPED_FOLDERS for folder in folders)


def read_sources(root: Path) -> list[SourceFile]:
    """Every editable file below ``root``, in byte order of the paths; links are not followed."""
    paths: list[str] = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and name.lower() not in _SKIPPED_FOLDERS]
        paths.extend(Path(folder, name).relative_to(root).as_posix() for name in names)
    sources = []
    for path in sorted(filter(is_source, paths), key=os.fsencode):
        data = _read(root / path)
        source = parse_source(path, data) if data is not None else None
        if source is not None:
            sources.append(source)
    return sources


def _read(place: Path) -> bytes | None:
    try:
        handle = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode) or state.st_size > MAX_FILE_BYTES:
            return None
        return file.read(MAX_FILE_BYTES)
