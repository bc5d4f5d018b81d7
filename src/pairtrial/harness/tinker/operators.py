"""The one-edit repairs that tinker knows, each a small rewrite of the source bytes around one syntax node.

An operator looks at one node and yields edits. It knows nothing about the prompt, the example or the servers: where to
look is decided elsewhere (``localise``), in what order too (``order``).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from pairtrial.harness.tinker.names import ATTRIBUTES, NAME_PAIRS, similar
from pairtrial.harness.tinker.sources import SourceFile

PRIORS = {
    "compare": 3.0,
    "arithmetic": 3.0,
    "drop_not": 3.0,
    "and_or": 3.0,
    "swap_arms": 2.0,
    "name_pair": 2.0,
    "constant": 1.5,
    "flip_bool": 1.5,
    "break_continue": 1.5,
    "off_by_one": 1.2,
    "add_not": 1.0,
    "drop_minus": 1.0,
    "drop_operand": 0.7,
    "swap_operands": 0.6,
    "swap_arguments": 0.6,
    "unwrap_call": 0.4,
    "drop_bound": 0.4,
    "swap_tuple": 0.3,
    "attribute": 0.3,
    "drop_statement": 0.2,
    "similar_name": 0.15,
}
"""How often an edit of a kind repairs something, roughly, against how many of its kind there are."""


class Edit(NamedTuple):
    """Replace the bytes ``start:end`` of a file."""

    start: int
    end: int
    new: bytes
    operator: str


@dataclass(frozen=True, slots=True)
class Scope:
    """What an operator may know about the surroundings of a node."""

    source: SourceFile
    locals: tuple[str, ...] = ()
    """Arguments and assigned names of the function."""
    attributes: tuple[tuple[str, str], ...] = ()
    """(base, attribute) pairs seen in the class or, outside of classes, in the file."""


_ORDER = {
    b"<": (b"<=", b">", b">="),
    b"<=": (b"<", b">=", b">"),
    b">": (b">=", b"<", b"<="),
    b">=": (b">", b"<=", b"<"),
}
_COMPARE: dict[type[ast.cmpop], tuple[bytes, tuple[bytes, ...]]] = {
    ast.Lt: (b"<", _ORDER[b"<"]),
    ast.LtE: (b"<=", _ORDER[b"<="]),
    ast.Gt: (b">", _ORDER[b">"]),
    ast.GtE: (b">=", _ORDER[b">="]),
    ast.Eq: (b"==", (b"!=", b"<=", b">=")),
    ast.NotEq: (b"!=", (b"==",)),
    ast.Is: (b"is", (b"is not",)),
    ast.IsNot: (b"is not", (b"is",)),
    ast.In: (b"in", (b"not in",)),
    ast.NotIn: (b"not in", (b"in",)),
}
_BINARY: dict[type[ast.operator], tuple[bytes, tuple[bytes, ...]]] = {
    ast.Add: (b"+", (b"-", b"*")),
    ast.Sub: (b"-", (b"+",)),
    ast.Mult: (b"*", (b"/", b"//", b"+", b"**")),
    ast.Div: (b"/", (b"*", b"//")),
    ast.FloorDiv: (b"//", (b"/", b"%", b"*")),
    ast.Mod: (b"%", (b"//", b"*")),
    ast.Pow: (b"**", (b"*",)),
    ast.LShift: (b"<<", (b">>",)),
    ast.RShift: (b">>", (b"<<",)),
    ast.BitAnd: (b"&", (b"|",)),
    ast.BitOr: (b"|", (b"&",)),
    ast.BitXor: (b"^", (b"|", b"&")),
}
_WRAPPERS = frozenset(
    {"abs", "sorted", "reversed", "list", "tuple", "set", "frozenset", "str", "int", "float", "bool", "repr", "iter"}
)
_BOUNDED = frozenset({"range", "islice", "min", "max", "round", "divmod"})
_UNDONE = frozenset({"strip", "lstrip", "rstrip", "lower", "upper", "casefold", "title", "capitalize", "copy"})


def _gap_edits(
    source: SourceFile, left: ast.expr, right: ast.expr, token: bytes, news: tuple[bytes, ...], operator: str
) -> Iterator[Edit]:
    """Replace the operator token that stands between two operands."""
    start, end = source.end(left), source.start(right)
    gap = source.data[start:end]
    if b"#" in gap:
        return
    found = re.search(rb"\s+".join(re.escape(word) for word in token.split()), gap)
    if found:
        for new in news:
            yield Edit(start + found.start(), start + found.end(), new, operator)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _compare(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    if not isinstance(node, ast.Compare):
        return
    operands = [node.left, *node.comparators]
    for left, op, right in zip(operands, node.ops, node.comparators, strict=False):
        token, news = _COMPARE[type(op)]
        unordered = any(
            _is_text(side) or (isinstance(side, ast.Constant) and (side.value is None or isinstance(side.value, bool)))
            for side in (left, right)
        )
        if unordered and isinstance(op, ast.Eq):
            news = (b"!=",)
        yield from _gap_edits(scope.source, left, right, token, news, "compare")


def _arithmetic(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    if isinstance(node, ast.BinOp):
        if _is_text(node.left) or _is_text(node.right):
            return
        token, news = _BINARY.get(type(node.op), (b"", ()))
        yield from _gap_edits(scope.source, node.left, node.right, token, news, "arithmetic")
    elif isinstance(node, ast.AugAssign) and not _is_text(node.value):
        token, news = _BINARY.get(type(node.op), (b"", ()))
        news = tuple(new + b"=" for new in news)
        yield from _gap_edits(scope.source, node.target, node.value, token + b"=", news, "arithmetic")


def _and_or(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    if isinstance(node, ast.BoolOp):
        token, new = (b"and", b"or") if isinstance(node.op, ast.And) else (b"or", b"and")
        for left, right in pairwise(node.values):
            yield from _gap_edits(scope.source, left, right, token, (new,), "and_or")


def _whole(scope: Scope, node: ast.expr | ast.stmt, new: bytes, operator: str) -> Edit:
    return Edit(scope.source.start(node), scope.source.end(node), new, operator)


def _kept(scope: Scope, outer: ast.expr, inner: ast.expr, operator: str) -> Edit:
    """Replace ``outer`` by ``inner``, in parentheses where it could otherwise bind differently."""
    data, start, end = scope.source.data, scope.source.start(outer), scope.source.end(outer)
    text = scope.source.text(inner)
    touches = data[start - 1 : start].isalnum() or data[end : end + 1].isalnum()
    atom = isinstance(inner, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    return Edit(start, end, text if atom and not touches else b"(" + text + b")", operator)


def _not(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield _kept(scope, node, node.operand, "drop_not")
    tests: list[ast.expr] = []
    if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
        tests.append(node.test)
    elif isinstance(node, ast.comprehension):
        tests.extend(node.ifs)
    elif isinstance(node, ast.BoolOp):
        tests.extend(node.values)
    elif isinstance(node, ast.Return) and isinstance(node.value, ast.Call | ast.BoolOp | ast.Compare):
        tests.append(node.value)
    for test in tests:
        negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        single = isinstance(test, ast.Compare) and len(test.ops) == 1
        if not negated and not single and not isinstance(test, ast.NamedExpr):
            # The outer parentheses keep `a in not b` and the like from arising.
            yield _whole(scope, test, b"(not (" + scope.source.text(test) + b"))", "add_not")


def _constant(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    if not isinstance(node, ast.Constant):
        return
    value = node.value
    if isinstance(value, bool):
        yield _whole(scope, node, str(not value).encode(), "flip_bool")
    elif isinstance(value, int) and abs(value) < 10**15:
        yield _whole(scope, node, str(value + 1).encode(), "constant")
        # Parentheses: a negative number after `**` or before an attribute would mean something else.
        yield _whole(scope, node, b"(-1)" if value == 0 else str(value - 1).encode(), "constant")
        if value > 1:
            yield _whole(scope, node, b"(-%d)" % value, "constant")
        elif value == 1:
            yield _whole(scope, node, b"(-1)", "constant")
    elif isinstance(value, float) and value == value and abs(value) < 1e15:
        for new in (value + 1, value - 1, -value):
            text = repr(new).encode()
            yield _whole(scope, node, b"(" + text + b")" if new < 0 else text, "constant")


def _off_by_one(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    targets: list[ast.expr | None] = []
    if isinstance(node, ast.Slice):
        targets += [node.lower, node.upper]
    elif isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice | ast.Tuple):
        targets.append(node.slice)
    elif isinstance(node, ast.BinOp) and not _is_text(node.left) and not _is_text(node.right):
        targets += [node.left, node.right]
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
        targets += node.comparators
    elif isinstance(node, ast.Return):
        targets.append(node.value)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _BOUNDED:
        targets += node.args
    for target in targets:
        if isinstance(target, ast.Name | ast.Attribute | ast.Call | ast.BinOp | ast.Subscript):
            text = scope.source.text(target)
            for change in (b" + 1", b" - 1"):
                yield _whole(scope, target, b"(" + text + change + b")", "off_by_one")


def _operands(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    source = scope.source
    if isinstance(node, ast.BinOp):
        for kept in (node.left, node.right):
            yield _kept(scope, node, kept, "drop_operand")
        if not isinstance(node.op, ast.Mult | ast.BitAnd | ast.BitOr | ast.BitXor) and not _is_text(node.left):
            start, end = source.start(node.left), source.end(node.right)
            yield Edit(start, end, _swapped(source, node.left, node.right), "swap_operands")
    elif isinstance(node, ast.BoolOp):
        word = b" and " if isinstance(node.op, ast.And) else b" or "
        texts = [b"(" + source.text(value) + b")" for value in node.values]
        for dropped in range(len(texts)):
            rest = word.join(texts[:dropped] + texts[dropped + 1 :])
            yield _whole(scope, node, b"(" + rest + b")", "drop_operand")


def _swapped(source: SourceFile, left: ast.expr, right: ast.expr) -> bytes:
    """The bytes from ``left`` to ``right`` with the two exchanged and what stands between kept."""
    between = source.data[source.end(left) : source.start(right)]
    return source.text(right) + between + source.text(left)


def _neighbours(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    """Exchange neighbours in an argument list or a tuple."""
    if isinstance(node, ast.Call):
        items, operator = node.args, "swap_arguments"
    elif isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load) and len(node.elts) <= 4:
        items, operator = node.elts, "swap_tuple"
    else:
        return
    source = scope.source
    for left, right in pairwise(items):
        if not isinstance(left, ast.Starred) and not isinstance(right, ast.Starred):
            yield Edit(source.start(left), source.end(right), _swapped(source, left, right), operator)


def _arms(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    if isinstance(node, ast.IfExp):
        source = scope.source
        first, test, last = (b"(" + source.text(part) + b")" for part in (node.orelse, node.test, node.body))
        yield _whole(scope, node, b"(" + first + b" if " + test + b" else " + last + b")", "swap_arms")


def _bounds(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    if isinstance(node, ast.Slice):
        for bound in (node.lower, node.upper):
            if bound is not None:
                yield _whole(scope, bound, b"", "drop_bound")


def _minus(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield _kept(scope, node, node.operand, "drop_minus")


def _statements(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    if isinstance(node, ast.Break):
        yield _whole(scope, node, b"continue", "break_continue")
    elif isinstance(node, ast.Continue):
        yield _whole(scope, node, b"break", "break_continue")
    elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield _whole(scope, node, b"pass", "drop_statement")


def _calls(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    if not isinstance(node, ast.Call) or node.keywords:
        return
    function = node.func
    if isinstance(function, ast.Name) and function.id in _WRAPPERS and len(node.args) == 1:
        if not isinstance(node.args[0], ast.Starred | ast.GeneratorExp):
            yield _kept(scope, node, node.args[0], "unwrap_call")
    elif isinstance(function, ast.Attribute) and function.attr in _UNDONE and not node.args:
        yield _kept(scope, node, function.value, "unwrap_call")


def _names(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        for other in NAME_PAIRS.get(node.id, ()):
            yield _whole(scope, node, other.encode(), "name_pair")
        for other in similar(node.id, scope.locals):
            if node.id in scope.locals:
                yield _whole(scope, node, other.encode(), "similar_name")
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        end = scope.source.end(node)
        start = end - len(node.attr.encode())
        if scope.source.data[start:end] != node.attr.encode():
            return
        base = ast.unparse(node.value) if isinstance(node.value, ast.Name | ast.Attribute) else ""
        for other in ATTRIBUTES.get(node.attr, ()):
            yield Edit(start, end, other.encode(), "name_pair")
        for other in similar(node.attr, tuple(name for owner, name in scope.attributes if base and owner == base)):
            yield Edit(start, end, other.encode(), "attribute")


OPERATORS: tuple[Callable[[ast.AST, Scope], Iterator[Edit]], ...] = (
    _compare,
    _arithmetic,
    _and_or,
    _not,
    _constant,
    _off_by_one,
    _operands,
    _neighbours,
    _arms,
    _bounds,
    _minus,
    _statements,
    _calls,
    _names,
)


def edits_of(node: ast.AST, scope: Scope) -> Iterator[Edit]:
    """Every edit of one node, not of what is below it."""
    for operator in OPERATORS:
        yield from operator(node, scope)
