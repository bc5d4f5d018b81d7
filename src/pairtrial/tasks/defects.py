"""Folding a defect into a tree: span by span, each checked against what stands there.

A pack quotes no more of a target than the token that it changes. The hash of the source pins the file, the span pins
the place, and ``old`` proves that author and machine mean the same one.
"""

from __future__ import annotations

import ast
import difflib
import re
import threading
import warnings
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

from pairtrial.core.errors import TaskError
from pairtrial.tasks.model import MAX_NEW, MAX_OLD, Span

_FILTERS = threading.Lock()
"""`warnings.catch_warnings` changes the whole process."""


def apply_defect(root: Path, defect: Iterable[Span], *, task: str) -> None:
    """Apply every span of ``defect`` to the files below ``root``, or change nothing and raise `TaskError`."""
    changed: dict[Path, bytes] = {}
    for file, spans in _by_file(defect).items():
        path = root / file
        if path.is_symlink() or not path.is_file():
            raise TaskError(f"{task}: defect: {file}: no such file in the target", slug="defect-no-file")
        try:
            text = path.read_bytes().decode("utf-8")
        except UnicodeDecodeError as fault:
            raise TaskError(f"{task}: defect: {file}: not UTF-8 (byte {fault.start})", slug="defect-no-file") from None
        changed[path] = edit(text, spans, task=task, file=file).encode()
    for path, content in changed.items():
        path.write_bytes(content)


def edit(text: str, spans: Iterable[Span], *, task: str, file: str) -> str:
    """``text`` with every span replaced; positions are those of ``text`` itself."""
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    tree = parse_quietly(text) if file.endswith(".py") else None
    found: list[tuple[int, int, str]] = []
    for span in spans:
        where = f"{task}: defect: {file}: line {span.line}, column {span.column}"
        if span.line > len(lines):
            raise TaskError(f"{where}: the file has only {len(lines)} lines", slug="defect-does-not-apply")
        line = lines[span.line - 1]
        if span.column > len(line):
            raise TaskError(f"{where}: the line has only {len(line)} characters", slug="defect-does-not-apply")
        start = starts[span.line - 1] + span.column
        there = text[start : start + len(span.old)]
        if there != span.old:
            raise TaskError(
                f"{where}: expected {span.old!r}, but {there!r} stands there",
                hint="count lines from 1 and columns from 0 in the unbroken file of the pinned version",
                slug="defect-does-not-apply",
            )
        if tree is not None and span.scope is not None:
            _check_scope(tree, span, where)
        found.append((start, start + len(span.old), span.new))
    found.sort()
    for (_, end, _), (following, _, _) in pairwise(found):
        if following < end:
            raise TaskError(f"{task}: defect: {file}: two spans overlap", slug="defect-does-not-apply")
    for start, end, new in reversed(found):
        text = text[:start] + new + text[end:]
    if tree is not None and parse_quietly(text) is None:
        raise TaskError(
            f"{task}: defect: {file}: no longer valid Python with the defect in it",
            hint="a defect must be an error of meaning, not of syntax",
            slug="defect-syntax",
        )
    return text


def parse_quietly(text: str) -> ast.Module | None:
    """The syntax tree, or None where this Python cannot parse the text; a target's warnings are not ours to show."""
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError):
            return None


def scope_at(tree: ast.Module, line: int) -> str:
    """Dotted name of the innermost function or class that holds ``line``; empty at module level."""
    names: list[str] = []
    body: list[ast.stmt] = tree.body
    while True:
        holder = next(
            (item for item in definitions_in(body) if first_line(item) <= line <= (item.end_lineno or 0)), None
        )
        if holder is None:
            return ".".join(names)
        names.append(holder.name)
        body = holder.body


def spans_between(file: str, before: str, after: str) -> tuple[Span, ...]:
    """The spans that turn ``before`` into ``after``: an author edits a copy, this writes the YAML.

    Raises `TaskError` for a change that quotes more of the target than a span may.
    """
    tree = parse_quietly(before) if file.endswith(".py") else None
    tokens_before, tokens_after = _tokens(before), _tokens(after)
    offsets = [0]
    for token in tokens_before:
        offsets.append(offsets[-1] + len(token))
    spans: list[Span] = []
    matcher = difflib.SequenceMatcher(a=tokens_before, b=tokens_after, autojunk=False)
    for kind, a, b, c, d in _narrowed(matcher, tokens_before, tokens_after):
        if kind == "equal":
            continue
        start = offsets[a]
        old, new = "".join(tokens_before[a:b]), "".join(tokens_after[c:d])
        if len(old) > MAX_OLD or len(new) > MAX_NEW:
            raise TaskError(
                f"{file}: an edit replaces {len(old)} characters by {len(new)}; at most {MAX_OLD} by {MAX_NEW}",
                hint="change a token, not a passage",
                slug="defect-too-long",
            )
        line = before.count("\n", 0, start) + 1
        column = start - (before.rfind("\n", 0, start) + 1)
        scope = scope_at(tree, line) or None if tree is not None else None
        spans.append(Span(file=file, scope=scope, line=line, column=column, old=old, new=new))
    return tuple(spans)


def _narrowed(
    matcher: difflib.SequenceMatcher[str], before: list[str], after: list[str]
) -> Iterable[tuple[str, int, int, int, int]]:
    """Opcodes of the middle only: equal heads and tails are cut first, which keeps a long file fast."""
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < min(len(before), len(after)) - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    matcher.set_seqs(before[head : len(before) - tail], after[head : len(after) - tail])
    for kind, a, b, c, d in matcher.get_opcodes():
        yield kind, a + head, b + head, c + head, d + head


def _tokens(text: str) -> list[str]:
    return re.findall(r"\w+|[<>=!]=|\*\*|//|->|:=|\s|[^\w\s]", text)


def _by_file(defect: Iterable[Span]) -> Mapping[str, list[Span]]:
    found: dict[str, list[Span]] = {}
    for span in defect:
        found.setdefault(span.file, []).append(span)
    return found


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def definitions_in(body: Iterable[ast.stmt]) -> Iterable[Definition]:
    """Definitions directly in ``body`` or in the ``if``, ``try``, ``with`` and loops of it."""
    for item in body:
        if isinstance(item, Definition):
            yield item
            continue
        for name in ("body", "orelse", "finalbody"):
            yield from definitions_in(getattr(item, name, []))
        for part in [*getattr(item, "handlers", []), *getattr(item, "cases", [])]:
            yield from definitions_in(part.body)


def first_line(item: Definition) -> int:
    return min([item.lineno, *(decorator.lineno for decorator in item.decorator_list)])


def _check_scope(tree: ast.Module, span: Span, where: str) -> None:
    holder = scope_at(tree, span.line)
    wanted = span.scope or ""
    if f".{wanted}." not in f".{holder}.":
        raise TaskError(
            f"{where}: lies in {holder or 'the module itself'}, not in {wanted}",
            hint="correct 'scope' or the line",
            slug="defect-does-not-apply",
        )
