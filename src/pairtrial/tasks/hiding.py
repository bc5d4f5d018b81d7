"""Taking the hidden tests out of the tree that the agent sees.

For pytest the functions behind ``fail_to_pass`` are cut out, decorators included, so that the rest of the file
stays a visible test suite. A constant of the module that only they used goes with them: it tends to hold the
expected results. Grading lays the original files back.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from pairtrial.core.errors import TaskError
from pairtrial.tasks.defects import Definition, definitions_in, first_line, parse_quietly
from pairtrial.tasks.model import Cut

Range = tuple[int, int]
"""First and last line, counted from 1."""


def test_function(test_id: str) -> tuple[str, tuple[str, ...]]:
    """File and dotted place of the function behind a pytest id; the parametrization is dropped.

    ``a/test_b.py::TestC::test_d[x::y]`` gives ``("a/test_b.py", ("TestC", "test_d"))``.
    """
    head = test_id.partition("[")[0]
    file, *names = head.split("::")
    if not names or not file.endswith(".py"):
        raise TaskError(f"{test_id!r} is not the id of a test function", slug="cannot-hide")
    return file, tuple(names)


test_function.__test__ = False  # type: ignore[attr-defined]  # the name is no test of ours


def hide_tests(root: Path, hidden: Iterable[str], visible: Iterable[str], *, task: str) -> None:
    """Remove the tests ``hidden`` from the files below ``root``.

    ``visible`` are the ids that stay; a file that holds none of them any longer is removed, unless another file
    imports it.
    """
    wanted: dict[str, set[tuple[str, ...]]] = {}
    for item in hidden:
        file, names = test_function(item)
        wanted.setdefault(file, set()).add(names)
    left = {test_function(item) for item in visible if item.partition("::")[0] in wanted}
    for file, functions in wanted.items():
        path = root / file
        if path.is_symlink() or not path.is_file():
            raise TaskError(f"{task}: fail_to_pass: {file}: no such file in the target", slug="cannot-hide")
        stays = any(name == file and names not in functions for name, names in left)
        if not stays and not _is_imported(root, path):
            path.unlink()
            continue
        text = path.read_bytes().decode("utf-8", "surrogateescape")
        path.write_bytes(_cut_tests(root, path, text, functions, task).encode("utf-8", "surrogateescape"))


def cut_lines(root: Path, cuts: Iterable[Cut], *, task: str) -> None:
    """Remove ranges of lines, for tests that are not found by their ids; a file that is left empty goes too."""
    by_file: dict[str, list[Cut]] = {}
    for item in cuts:
        by_file.setdefault(item.file, []).append(item)
    for file, ranges in by_file.items():
        path = root / file
        if path.is_symlink() or not path.is_file():
            raise TaskError(f"{task}: cut: {file}: no such file in the target", slug="cannot-hide")
        lines = path.read_bytes().split(b"\n")
        for item in ranges:
            if item.last > len(lines):
                raise TaskError(
                    f"{task}: cut: {file}: has only {len(lines)} lines, not {item.last}", slug="cannot-hide"
                )
        kept = [line for at, line in enumerate(lines, 1) if not any(item.first <= at <= item.last for item in ranges)]
        if any(line.strip() for line in kept):
            path.write_bytes(b"\n".join(kept))
        else:
            path.unlink()


def hide_other_tests(root: Path, hidden: Iterable[str], handled: Iterable[str], *, task: str) -> None:
    """For frameworks whose ids start with a file: remove every file with a hidden test that nothing else takes care of.

    ``handled`` are files of which lines are cut, or that are hidden by name.
    """
    done = set(handled)
    for file in sorted({item.partition("::")[0] for item in hidden} - done):
        path = root / file
        if path.is_symlink() or not path.is_file():
            raise TaskError(
                f"{task}: fail_to_pass: {file}: no such file in the target",
                hint="say under 'cut' or 'hide' what the agent must not see",
                slug="cannot-hide",
            )
        path.unlink()


def hide_files(root: Path, files: Iterable[str], *, task: str) -> None:
    """Remove whole files (those that the task lists under ``hide``)."""
    for file in files:
        path = root / file
        if path.is_symlink() or not path.is_file():
            raise TaskError(f"{task}: hide: {file}: no such file in the target", slug="cannot-hide")
        path.unlink()


def _cut_tests(root: Path, path: Path, text: str, functions: set[tuple[str, ...]], task: str) -> str:
    tree = parse_quietly(text)
    file = path.relative_to(root).as_posix()
    if tree is None:
        raise TaskError(f"{task}: {file}: this Python cannot parse it", slug="cannot-hide")
    cut: list[ast.stmt] = []
    for names in sorted(functions):
        found = _find(tree.body, names, tree)
        if not found:
            raise TaskError(
                f"{task}: fail_to_pass: {file}::{'::'.join(names)}: no such function in the file",
                hint="tests made by a loop or inherited from another file cannot be hidden; list the file under 'hide'",
                slug="cannot-hide",
            )
        cut.extend(item for item in found if item not in cut)
    cut.extend(_orphaned(tree, cut, root, path))
    return _without(text, tree, cut)


def _find(body: Sequence[ast.stmt], names: tuple[str, ...], module: ast.Module) -> list[ast.stmt]:
    """Every statement that defines the test; a class without it is searched for in its bases of the same module."""
    if len(names) == 1:
        return [item for item in _statements(body) if _defines(item, names[0])]
    found: list[ast.stmt] = []
    for holder in definitions_in(body):
        if isinstance(holder, ast.ClassDef) and holder.name == names[0]:
            found.extend(_find(holder.body, names[1:], module) or _inherited(holder, names[1:], module, {holder.name}))
    return found


def _inherited(holder: ast.ClassDef, names: tuple[str, ...], module: ast.Module, seen: set[str]) -> list[ast.stmt]:
    for base in holder.bases:
        name = base.id if isinstance(base, ast.Name) else None
        if name is None or name in seen:
            continue
        for candidate in definitions_in(module.body):
            if isinstance(candidate, ast.ClassDef) and candidate.name == name:
                found = _find(candidate.body, names, module) or _inherited(candidate, names, module, {*seen, name})
                if found:
                    return found
    return []


def _statements(body: Iterable[ast.stmt]) -> Iterable[ast.stmt]:
    """Statements of a scope, those inside ``if``, ``try``, ``with`` and loops among them."""
    for item in body:
        yield item
        if isinstance(item, Definition):
            continue
        for block in _blocks(item):
            yield from _statements(block)


def _blocks(item: ast.AST) -> Iterable[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(item, name, None)
        if isinstance(block, list) and block:
            yield block
    for part in [*getattr(item, "handlers", []), *getattr(item, "cases", [])]:
        yield part.body


def _defines(item: ast.stmt, name: str) -> bool:
    if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
        return item.name == name
    return name in _assigned(item)


def _assigned(item: ast.stmt) -> list[str]:
    if isinstance(item, ast.Assign):
        return [target.id for target in item.targets if isinstance(target, ast.Name)]
    if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
        return [item.target.id]
    return []


def _orphaned(tree: ast.Module, cut: list[ast.stmt], root: Path, path: Path) -> list[ast.stmt]:
    """Assignments of the module that nothing but the cut tests used."""
    gone: list[ast.stmt] = []
    while True:
        dead = [*cut, *gone]
        used_by_dead = {name for item in dead for name in _loaded(item)}
        alive = {name for item in tree.body for name in _loaded(item, without=dead)}
        more = [
            item
            for item in tree.body
            if item not in dead
            and (names := _assigned(item))
            and all(name in used_by_dead and name not in alive for name in names)
            and not any(_is_mentioned(root, path, name) for name in names)
        ]
        if not more:
            return gone
        gone.extend(more)


def _loaded(item: ast.AST, without: Sequence[ast.stmt] = ()) -> set[str]:
    """Names read in a statement, and whole strings (a name may stand in ``__all__``)."""
    if item in without:
        return set()
    found: set[str] = set()
    if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load | ast.Del):
        found.add(item.id)
    elif isinstance(item, ast.Constant) and isinstance(item.value, str):
        found.add(item.value)
    elif isinstance(item, ast.AugAssign) and isinstance(item.target, ast.Name):
        found.add(item.target.id)
    for child in ast.iter_child_nodes(item):
        found |= _loaded(child, without)
    return found


def _other_python_files(root: Path, path: Path) -> Iterable[bytes]:
    for other in root.rglob("*.py"):
        if other != path and not other.is_symlink():
            yield other.read_bytes()


def _is_mentioned(root: Path, path: Path, name: str) -> bool:
    word = re.compile(rb"\b" + re.escape(name.encode()) + rb"\b")
    stem = path.stem.encode()
    return any(stem in text and word.search(text) for text in _other_python_files(root, path))


def _is_imported(root: Path, path: Path) -> bool:
    name = re.escape(path.stem.encode())
    pattern = re.compile(
        rb"^[ \t]*(from[ \t]+[\w.]*\b%b\b|(from|import)[ \t][^\n]*\b%b\b)" % (name, name), re.MULTILINE
    )
    return any(pattern.search(text) for text in _other_python_files(root, path))


def _without(text: str, tree: ast.Module, cut: Sequence[ast.stmt]) -> str:
    """The text without the statements; a block that they leave empty gets ``pass``."""
    # Split as Python's parser counts lines, which knows \n, \r\n and \r but no form feed.
    lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", text)
    drop = [_range(item) for item in cut]
    fill = {
        _range(block[0])[0]: _indent(lines, block[0])
        for node in ast.walk(tree)
        for block in _blocks(node)
        if not isinstance(node, ast.Module) and all(item in cut for item in block)
    }
    result: list[str] = []
    for number, line in enumerate(lines, 1):
        if number in fill:
            result.append(f"{fill[number]}pass\n")
        if not any(first <= number <= last for first, last in drop):
            result.append(line)
    return "".join(result)


def _range(item: ast.stmt) -> Range:
    first = first_line(item) if isinstance(item, Definition) else item.lineno
    return first, item.end_lineno or first


def _indent(lines: Sequence[str], item: ast.stmt) -> str:
    line = lines[_range(item)[0] - 1]
    return line[: len(line) - len(line.lstrip())]
