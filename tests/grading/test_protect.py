"""Protected paths: what is, what is not, and what an agent can still do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pairtrial.grading.protect import compile_globs, protection


@pytest.fixture
def is_protected(tmp_path: Path) -> Callable[[str], bool]:
    for name in (
        "tests/test_a.py",
        "src/pkg/__init__.py",
        "src/random.py",
        "src/pkg/tests/test_b.py",
        "docs/guide.rst",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    inner = protection(
        pristine=tmp_path,
        test_paths=["tests", "checks/suite.py"],
        extra=["docs/*.rst", "fixtures/**"],
        pythonpath=["src"],
        shadowed=frozenset({"random", "json", "pytest", "_pytest", "unittest"}),
    )
    return lambda path: inner(path.encode())


@pytest.mark.parametrize(
    "path",
    [
        "tests/test_a.py", "tests/data/x.bin", "tests", "checks/suite.py", "checks", "pkg/tests/deep/x", "src/pkg/tests",
        "src/pkg", "conftest.py", "src/pkg/conftest.py", "conftest.py/x", "pytest.ini", "tox.ini", "setup.cfg",
        "pyproject.toml", "sitecustomize.py", "src/usercustomize.py", "a.pth", "x-1.0.dist-info/entry_points.txt",
        "src/x.egg-info/PKG-INFO", "test_new.py", "src/pkg/thing_test.py", "package.json", "sub/package-lock.json",
        "vitest.config.ts", "vitest.workspace.ts", "vite.config.mjs", "jest.config.js", ".mocharc.json", "tsconfig.json",
        "src/a.test.ts", "src/a.spec.js", "__snapshots__/a.snap", "node_modules/x/index.js", "yarn.lock", "Cargo.lock",
        ".cargo/config.toml", "build.rs", "crate/Cargo.toml", "pkg/a_test.go", "go.mod", "vendor/x/y.go",
        "requirements-dev.txt", "uv.lock", "docs/guide.rst", "fixtures/a/b/c", "json.py", "src/json.py", "pytest/__init__.py",
        "postcss.config.cjs", ".postcssrc.js",
        "src/_pytest/runner.py", "unittest/__init__.py", "json.cpython-311-x86_64-linux-gnu.so",
    ],
)  # fmt: skip
def test_protected(is_protected: Callable[[str], bool], path: str) -> None:
    assert is_protected(path)


@pytest.mark.parametrize(
    "path",
    [
        "src/pkg/core.py", "src/random.py", "src/pkg/json.py", "README.md", "docs/deep/guide.rst", "docs/guide.md",
        "src/pkg/testing.py", "src/pkg/attestation.py", "contest.py", "src/latest.py", "src/pkg/unittest.py", "checks/other.py",
        "src/tester/x.py", "protest.go", "lib/index.js", "src/lib.rs", "setup.py",
    ],
)  # fmt: skip
def test_not_protected(is_protected: Callable[[str], bool], path: str) -> None:
    assert not is_protected(path)


@pytest.mark.parametrize(
    ("glob", "hits", "misses"),
    [
        ("*.pth", ["a.pth", "x/a.pth", "a.pth/inside"], ["a.pthx", "pth"]),
        ("docs/*.md", ["docs/a.md"], ["docs/x/a.md", "x/docs/a.md"]),
        ("docs/**/a.md", ["docs/a.md", "docs/x/y/a.md"], ["docs/b.md"]),
        ("data/**", ["data/x", "data/x/y"], ["xdata/y"]),
        ("a?c", ["abc", "x/abc"], ["ac", "a/c"]),
        ("we[ir]d.txt", ["we[ir]d.txt"], ["weid.txt"]),
    ],
)
def test_globs(glob: str, hits: list[str], misses: list[str]) -> None:
    pattern = compile_globs([glob])
    assert [path for path in hits if not pattern.match(path)] == []
    assert [path for path in misses if pattern.match(path)] == []
