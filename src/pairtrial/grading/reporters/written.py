"""The tests as they are written: their text, kept before a line of the workspace runs, and the functions that it defines.

Code under test is imported while tests are collected. It could write into a test file that is read later, lay a compiled
one beside it, or exchange a test function before anybody has looked at it. Sent to the grading sandbox as text, like
the reporters; standard library only.
"""

# What runs beside the code under test stays as plain as possible and starts early, hence no pathlib.
# ruff: noqa: PTH113, PTH118, PTH120, PTH123

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any


class Written:
    """Kept texts of some test files and of every ``conftest.py`` above them."""

    def __init__(self, root: str, files: Sequence[str]) -> None:
        self._texts: dict[str, bytes] = {}
        self._functions: dict[str, dict[str, list[CodeType]]] = {}
        for name in dict.fromkeys([*files, *_conftests(files)]):
            path = os.path.realpath(os.path.join(root, name))
            if os.path.isfile(path) and path.endswith(".py"):
                with open(path, "rb") as handle:
                    self._texts[path] = handle.read()

    def text(self, path: str) -> bytes | None:
        """What stood in a file at the start; None for one that was not kept."""
        return self._texts.get(os.path.realpath(path))

    def learn(self, path: str, code: CodeType) -> None:
        """``code`` is what will be executed for a kept file."""
        path = os.path.realpath(path)
        self._functions[path] = dict(_functions(self._texts[path], code))

    def differs(self, path: str, name: str, value: Any) -> bool:
        """Whether a file plainly defines a function of this qualified name, and ``value`` is none that it defines."""
        path = os.path.realpath(path)
        if path not in self._functions:
            text = self._texts.get(path)
            if text is None:
                return False
            self.learn(path, compile(text, path, "exec", dont_inherit=True))
        known = self._functions[path].get(name)
        if known is None:
            return False
        inner = getattr(value, "__func__", value)
        return type(inner) is not FunctionType or not any(inner.__code__ == code for code in known)

    def serve(self, rewrite: Any) -> None:
        """Let pytest's assertion rewriting read kept files from here, never from the disk or from a compiled copy."""
        if not hasattr(rewrite, "_rewrite_test") or not hasattr(rewrite, "_read_pyc"):
            return  # another pytest than those that are known; functions are compared all the same
        from_disk, compiled = rewrite._rewrite_test, rewrite._read_pyc

        def rewrite_test(fn: Any, config: Any) -> Any:
            source = self.text(str(fn))
            if source is None:
                return from_disk(fn, config)
            tree = ast.parse(source, filename=str(fn))
            rewrite.rewrite_asserts(tree, source, str(fn), config)
            code = compile(tree, str(fn), "exec", dont_inherit=True)
            self.learn(str(fn), code)
            return importlib.util.source_hash(source), code

        def read_pyc(source: Any, *rest: Any) -> Any:
            return compiled(source, *rest) if self.text(str(source)) is None else None

        sys.dont_write_bytecode = True
        rewrite._rewrite_test, rewrite._read_pyc = rewrite_test, read_pyc


def _conftests(files: Iterable[str]) -> Iterator[str]:
    for name in files:
        folder = os.path.dirname(name)
        while folder:
            yield f"{folder}/conftest.py"
            folder = os.path.dirname(folder)
    yield "conftest.py"


def _functions(text: bytes, code: CodeType) -> Iterator[tuple[str, list[CodeType]]]:
    plain: set[str] = set()
    other: set[str] = set()
    _sort(ast.parse(text).body, "", plain, other)
    found: dict[str, list[CodeType]] = {}
    pending = [code]
    while pending:
        for inner in pending.pop().co_consts:
            if isinstance(inner, CodeType):
                found.setdefault(inner.co_qualname, []).append(inner)
                pending.append(inner)
    for name in plain - other:
        if name in found:
            yield name, found[name]


def _sort(body: Sequence[ast.AST], prefix: str, plain: set[str], other: set[str], *, wrapped: bool = False) -> None:
    """Names of functions that are what their text says, and of those that something else may have been put in place of."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorated = wrapped or not all(_marks(item) for item in node.decorator_list)
            (other if decorated else plain).add(prefix + node.name)
        elif isinstance(node, ast.ClassDef):
            decorated = wrapped or bool(node.keywords) or not all(_marks(item) for item in node.decorator_list)
            _sort(node.body, f"{prefix}{node.name}.", plain, other, wrapped=decorated)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Delete):
            targets = [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign) else node.targets
            other.update(
                prefix + item.id for target in targets for item in ast.walk(target) if isinstance(item, ast.Name)
            )
        else:
            for part in ("body", "orelse", "finalbody", "handlers", "cases"):
                inner = getattr(node, part, None)
                if isinstance(inner, list):
                    _sort(inner, prefix, plain, other, wrapped=wrapped)


def _marks(decorator: ast.AST) -> bool:
    """``pytest.mark.name`` and ``mark.name``, with or without arguments: they give back the function itself."""
    node = decorator.func if isinstance(decorator, ast.Call) else decorator
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return isinstance(node, ast.Name) and "mark" in [*names[1:], node.id]
