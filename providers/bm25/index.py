"""Index step: every function of a source tree as a bag of terms, in one JSON file.

``python index.py --root TREE --out FILE``. Standard library only. The same tree gives the same bytes, wherever it lies.

Python files are cut into functions and methods by their syntax tree, other languages into windows of lines. Test
files are left out: a search for the broken code should not answer with the code that checks it. The tree is hostile
input: links are not followed, and a file that is huge, binary, unreadable or not a regular file is skipped.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FORMAT = "bm25-index-1"
MAX_FILE_BYTES = 1 << 20
MAX_FILES = 20_000
WINDOW_LINES = 40
SNIPPET_LINES = 6
SNIPPET_CHARACTERS = 400
NAME_WEIGHT = 3

_SUFFIXES = """
py pyx js jsx mjs cjs ts tsx mts cts go rs c h cc cpp cxx hh hpp java kt scala swift cs rb php pl pm lua r jl ex exs erl
hs ml clj sh bash sql vue svelte
"""
SOURCE_SUFFIXES = frozenset(f".{word}" for word in _SUFFIXES.split())
SKIPPED_FOLDERS = frozenset(
    ["node_modules", "__pycache__", "build", "dist", "target", "venv", "site-packages", "htmlcov", "vendor"]
)
TEST_FOLDERS = frozenset(["test", "tests", "testing", "__tests__", "spec", "specs"])
_TEST_FILE = re.compile(r"^(test_.*|tests|conftest|.*_tests?|.*[.](test|spec))$")
_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*|[0-9]+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


class Function(NamedTuple):
    """One thing that a search can answer with."""

    file: str
    line: int
    name: str
    """Qualified name inside the file; for a window of lines the file's stem."""
    text: str


def stem(word: str) -> str:
    """A crude stem: plural, -ed and -ing endings fall off words that stay long enough without them."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    for ending in ("ing", "ed", "es"):
        if len(word) >= len(ending) + 4 and word.endswith(ending):
            return word[: -len(ending)]
    if len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
        return word[:-1]
    return word


def terms(text: str) -> list[str]:
    """Terms of a text: identifiers split at case and underscore, lowered and stemmed; compounds also as a whole."""
    found: list[str] = []
    for word in _WORD.findall(text):
        parts = [part.lower() for part in _PART.findall(word)]
        found.extend(stem(part) for part in parts)
        if len(parts) > 1:
            found.append(word.strip("_").lower())
    return found


def is_test(path: str) -> bool:
    """Whether a path (POSIX, relative) names test code."""
    *folders, name = path.split("/")
    return any(folder.lower() in TEST_FOLDERS for folder in folders) or bool(_TEST_FILE.match(name.rsplit(".", 1)[0]))


def source_files(root: Path) -> Iterator[tuple[str, Path]]:
    """Relative path and place of every source file below ``root``, in byte order; links are not followed."""
    found: list[tuple[bytes, str, Path]] = []
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if not f.startswith(".") and f not in SKIPPED_FOLDERS]
        for name in names:
            place = Path(folder, name)
            try:
                relative = place.relative_to(root).as_posix()
                key = relative.encode("utf-8")
            except UnicodeEncodeError:
                continue  # a name that is not UTF-8 could not be sent to a client
            if place.suffix.lower() in SOURCE_SUFFIXES and not name.startswith(".") and not is_test(relative):
                found.append((key, relative, place))
    for _, relative, place in sorted(found)[:MAX_FILES]:
        yield relative, place


def read_bytes(place: Path) -> bytes | None:
    """The bytes of a regular text file of bearable size, else None."""
    try:
        handle = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode) or state.st_size > MAX_FILE_BYTES:
            return None
        try:
            data = file.read(MAX_FILE_BYTES + 1)
        except OSError:
            return None
    return None if len(data) > MAX_FILE_BYTES or b"\0" in data else data


def functions(path: str, data: bytes) -> list[Function]:
    """What to index of one file."""
    if path.endswith(".py"):
        try:
            tree = ast.parse(data)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return windows(path, data)
        lines = data.decode("utf-8", "replace").splitlines(keepends=True)
        return list(_python(path, tree.body, "", lines))
    return windows(path, data)


def _python(path: str, body: list[ast.stmt], prefix: str, lines: list[str]) -> Iterator[Function]:
    """Functions and methods; a function inside a function belongs to the outer one."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            text = "".join(lines[first - 1 : node.end_lineno])
            yield Function(path, node.lineno, prefix + node.name, text)
        elif isinstance(node, ast.ClassDef):
            yield from _python(path, node.body, f"{prefix}{node.name}.", lines)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for field in ("body", "handlers", "orelse", "finalbody"):
                for child in getattr(node, field, []):
                    inner = child.body if isinstance(child, ast.ExceptHandler) else [child]
                    yield from _python(path, inner, prefix, lines)


def windows(path: str, data: bytes) -> list[Function]:
    """Fallback for what has no syntax tree here: windows of lines."""
    lines = data.decode("utf-8", "replace").split("\n")
    name = path.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    cut = [(start, "\n".join(lines[start : start + WINDOW_LINES])) for start in range(0, len(lines), WINDOW_LINES)]
    return [Function(path, start + 1, name, text) for start, text in cut if text.strip()]


def snippet(text: str) -> str:
    """The first lines of a function, for a reader of the answer."""
    return "\n".join(text.splitlines()[:SNIPPET_LINES])[:SNIPPET_CHARACTERS]


def document(function: Function) -> dict[str, object]:
    """One entry of the index. The name counts three times in all: once in the text, twice on top."""
    *owners, name = function.name.split(".")
    counts = Counter(terms(function.text) + terms(name) * (NAME_WEIGHT - 1) + terms(" ".join(owners)))
    return {
        "file": function.file,
        "line": function.line,
        "name": function.name,
        "snippet": snippet(function.text),
        "length": sum(counts.values()),
        "terms": counts,
    }


def build(root: Path) -> bytes:
    """The bytes of the index of a tree."""
    documents: list[dict[str, object]] = []
    for path, place in source_files(root):
        data = read_bytes(place)
        if data is not None:
            documents.extend(document(function) for function in functions(path, data))
    text = json.dumps({"format": FORMAT, "documents": documents}, sort_keys=True, separators=(",", ":"))
    return text.encode("ascii") + b"\n"


def main() -> int:
    """Write the index, whole or not at all."""
    parser = argparse.ArgumentParser(description="Index the functions of a source tree.")
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if not arguments.root.is_dir():
        sys.stderr.write("bm25 index: --root is not a folder\n")
        return 1
    part = arguments.out.with_name(arguments.out.name + ".part")
    try:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(build(arguments.root))
        part.replace(arguments.out)
    except OSError as fault:
        sys.stderr.write(f"bm25 index: cannot write the index: {fault.strerror}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
