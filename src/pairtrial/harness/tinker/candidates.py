"""All candidate edits of a set of files."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pairtrial.harness.tinker.operators import PRIORS, Edit, Scope, edits_of
from pairtrial.harness.tinker.sources import Function, FunctionNode, SourceFile


@dataclass(frozen=True, slots=True)
class Candidate:
    """One edit of one file, in its shortest form, so that equal edits have equal identities."""

    path: str
    start: int
    end: int
    old: bytes
    new: bytes
    line: int
    function: str | None
    """Qualified name of the outermost function around it; None for code outside of functions."""
    operator: str

    @property
    def prior(self) -> float:
        """Weight of its operator."""
        return PRIORS[self.operator]

    @property
    def identity(self) -> str:
        """What tells it apart, the same in every arm."""
        return f"{self.path}\0{self.start}\0{self.end}\0{self.new.decode()}"

    def apply(self, data: bytes) -> bytes:
        """The file's bytes with the edit made."""
        return data[: self.start] + self.new + data[self.end :]


def shortest(edit: Edit, data: bytes) -> Edit | None:
    """The edit without the characters that stay; None when nothing changes."""
    old, new = data[edit.start : edit.end].decode(), edit.new.decode()
    if old == new:
        return None
    same = _alike(old, new)
    start, old, new = edit.start + len(old[:same].encode()), old[same:], new[same:]
    same = _alike(old[::-1], new[::-1])
    old, new = old[: len(old) - same], new[: len(new) - same]
    return Edit(start, start + len(old.encode()), new.encode(), edit.operator)


def _alike(first: str, second: str) -> int:
    """How many characters two texts have in common at their start."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(first), len(second)))


def candidates_of(source: SourceFile) -> list[Candidate]:
    """Every candidate of a file by place; of equal edits the one with the highest prior is kept."""
    best: dict[tuple[int, int, bytes], Candidate] = {}
    for edit, function in _edits(source):
        short = shortest(edit, source.data)
        if short is None:
            continue
        key = (short.start, short.end, short.new)
        if key not in best or PRIORS[short.operator] > best[key].prior:
            best[key] = Candidate(
                path=source.path,
                start=short.start,
                end=short.end,
                old=source.data[short.start : short.end],
                new=short.new,
                line=source.line_of(short.start),
                function=function.name if function else None,
                operator=short.operator,
            )
    return [best[key] for key in sorted(best)]


def _edits(source: SourceFile) -> Iterator[tuple[Edit, Function | None]]:
    by_node = {function.node: function for function in source.functions}
    attributes: dict[str, tuple[tuple[str, str], ...]] = {}
    owners: dict[str, list[ast.AST]] = {"": [source.tree]}
    for known in source.functions:
        owners.setdefault(known.owner, []).append(known.node)
    for owner, nodes in owners.items():
        attributes[owner] = _attributes(nodes)
    stack: list[tuple[ast.AST, Function | None, Scope]] = [
        (source.tree, None, Scope(source, attributes=attributes[""]))
    ]
    while stack:
        node, function, scope = stack.pop()
        if function is None and isinstance(node, FunctionNode) and node in by_node:
            function = by_node[node]
            scope = Scope(source, _locals(node), attributes[function.owner])
        if isinstance(node, ast.expr | ast.stmt | ast.comprehension):
            for edit in edits_of(node, scope):
                yield edit, function
        stack.extend((child, function, scope) for child in _below(node))


def _below(node: ast.AST) -> Iterable[ast.AST]:
    """Children that may be edited: no annotations, no docstrings, nothing inside f-strings (their offsets are wrong)."""
    if isinstance(node, ast.JoinedStr):
        return ()
    children: list[ast.AST] = []
    for field, value in ast.iter_fields(node):
        if field in {"annotation", "returns", "type_params"}:
            continue
        if isinstance(value, ast.AST):
            children.append(value)
        elif isinstance(value, list):
            children.extend(item for item in value if isinstance(item, ast.AST))
    return [child for child in children if not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant))]


def _locals(node: FunctionNode) -> tuple[str, ...]:
    names: set[str] = set()
    for child in ast.walk(node):
        if isinstance(child, ast.arg) or (isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store)):
            names.add(child.arg if isinstance(child, ast.arg) else child.id)
    return tuple(sorted(names - {"self", "cls", "_"}))


def _attributes(nodes: Iterable[ast.AST]) -> tuple[tuple[str, str], ...]:
    pairs: set[tuple[str, str]] = set()
    for node in nodes:
        for child in ast.walk(node):
            if isinstance(child, ast.Attribute) and isinstance(child.value, ast.Name | ast.Attribute):
                pairs.add((ast.unparse(child.value), child.attr))
    return tuple(sorted(pairs))
