"""Protected paths: what decides a verdict is never the agent's.

A change to one of these is not applied in grading (so the pristine file stands, a deleted one is back, a new one is
absent) and is recorded in the grade. That costs an agent nothing for honest work: its own tests neither help nor hurt.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

EVERYWHERE = (
    # Python
    "tests", "test", "test_*.py", "*_test.py", "conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml",
    ".pytest.toml", "tox.ini", "setup.cfg", "pyproject.toml", "noxfile.py", ".coveragerc", "sitecustomize.py",
    "usercustomize.py", "*.pth", "*._pth", "*.egg-link", "*.dist-info", "*.egg-info", "entry_points.txt", "pyvenv.cfg",
    # JavaScript and TypeScript
    "__tests__", "__mocks__", "__snapshots__", "*.test.*", "*.spec.*", "test.js", "test.mjs", "test.cjs", "test.ts",
    "node_modules", "package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml",
    "pnpm-workspace.yaml", "bun.lock", "bun.lockb", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnp.*", ".babelrc*",
    "babel.config.*", ".swcrc", "tsconfig*.json", "vite.config.*", "vitest.*", "postcss.config.*", ".postcssrc*", "jest.config.*",
    "jest.setup.*",
    ".mocharc*", "mocha.opts", ".taprc", ".c8rc*", ".nycrc*", "node.config.json",
    # Go
    "*_test.go", "testdata", "go.mod", "go.sum", "go.work", "go.work.sum", "vendor",
    # Rust
    "Cargo.toml", "Cargo.lock", ".cargo", "rust-toolchain", "rust-toolchain.toml", "build.rs", "benches",
    # any
    ".env", ".envrc", ".tool-versions",
)  # fmt: skip
"""Names protected at any depth; a folder stands for all that lies in it."""

LOCKS = ("*.lock", "requirements*.txt")
"""Dependency locks: the environment is built from the task's own."""


def _expression(glob: str) -> str:
    """A glob over whole paths: ``*`` stays inside one folder, ``**`` does not."""
    out: list[str] = []
    for piece in re.split(r"(\*\*/|\*\*|\*|\?)", glob.strip("/")):
        wild = {"**/": r"(?:.*/)?", "**": r".*", "*": r"[^/]*", "?": r"[^/]"}
        out.append(wild.get(piece, re.escape(piece)))
    return "".join(out)


def compile_globs(globs: Iterable[str]) -> re.Pattern[str]:
    """One expression that matches a path when a glob matches it or a folder above it.

    A glob without a slash matches a name at any depth; one with a slash is anchored at the root.
    """
    parts = [_expression(glob) if "/" in glob.strip("/") else r"(?:.*/)?" + _expression(glob) for glob in globs]
    return re.compile(r"(?:" + "|".join(parts) + r")(?:/.*)?\Z", re.DOTALL)


def shadowed_names(site_packages: Iterable[Path]) -> frozenset[str]:
    """Names that a new module at the root of the import path would put itself in front of."""
    names = set(sys.stdlib_module_names)
    for folder in site_packages:
        if folder.is_dir():
            names |= {entry.name.split(".")[0] for entry in folder.iterdir() if not entry.name.startswith((".", "__"))}
    return frozenset(names)


def protection(
    *,
    pristine: Path,
    test_paths: Iterable[str],
    extra: Iterable[str] = (),
    pythonpath: Iterable[str] = (),
    shadowed: frozenset[str] = frozenset(),
) -> Callable[[bytes], bool]:
    """A predicate over paths: True where the pristine state stands, whatever the agent did.

    ``test_paths`` are the target's own (what is collected, and every file that holds a required test). ``pythonpath``
    and ``shadowed`` keep a new ``random.py`` or ``pytest.py`` at the root of the import path from being imported
    instead of the real one; a module that the target itself has is the target's and stays editable.
    """
    anchored = [path.strip("/") for path in test_paths if path.strip("/") not in ("", ".")]
    pattern = compile_globs([*EVERYWHERE, *LOCKS, *extra])
    roots = sorted({"" if folder in (".", "") else folder.strip("/") + "/" for folder in pythonpath} | {""})

    def shadows(path: str) -> bool:
        for root in roots:
            if not path.startswith(root):
                continue
            top = path[len(root) :].split("/")[0]
            name = top.split(".")[0]
            if name in shadowed and not (pristine / root / name).is_dir() and not (pristine / root / top).exists():
                return True
        return False

    def is_protected(raw: bytes) -> bool:
        path = raw.decode("utf-8", "surrogateescape")
        if any(path == item or path.startswith(item + "/") or item.startswith(path + "/") for item in anchored):
            return True
        if pattern.match(path) or shadows(path):
            return True
        # A file or link laid in place of a folder would take the protected files below it away.
        place = pristine / path
        return place.is_dir() and not place.is_symlink() and _holds_protected(place, path, pattern)

    return is_protected


def _holds_protected(folder: Path, prefix: str, pattern: re.Pattern[str]) -> bool:
    return any(
        pattern.match(f"{prefix}/{entry.relative_to(folder).as_posix()}") is not None for entry in folder.rglob("*")
    )
