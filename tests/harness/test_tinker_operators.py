"""Each operator against edits worked out by hand, and what holds for all candidates."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairtrial.harness.tinker.candidates import Candidate, candidates_of, shortest
from pairtrial.harness.tinker.operators import PRIORS, Edit
from pairtrial.harness.tinker.sources import SourceFile, parse_source


def source_of(text: str) -> SourceFile:
    source = parse_source("pack/code.py", text.encode())
    assert source is not None
    return source


def function(body: str, arguments: str = "a, b") -> str:
    return f"def f({arguments}):\n" + "".join(f"    {line}\n" for line in body.splitlines())


def made(text: str, operator: str) -> set[str]:
    """The sources that the candidates of an operator give, with the first line (``def``) cut off and dedented."""
    source = source_of(text)
    found = set()
    for candidate in candidates_of(source):
        if candidate.operator == operator:
            lines = candidate.apply(source.data).decode().splitlines()[1:]
            found.add("\n".join(line[4:] for line in lines))
    return found


@pytest.mark.parametrize(
    ("operator", "body", "expected"),
    [
        ("compare", "return a < b", {"return a <= b", "return a > b", "return a >= b"}),
        ("compare", "return a >= b", {"return a > b", "return a <= b", "return a < b"}),
        ("compare", "return a == 'x'", {"return a != 'x'"}),
        ("compare", "return a == b", {"return a != b", "return a <= b", "return a >= b"}),
        ("compare", "return a not in b", {"return a in b"}),
        ("compare", "return a  is  not None", {"return a  is None"}),
        ("compare", "return (a) in (b)", {"return (a) not in (b)"}),
        ("compare", "return a < b != 1", {"return a <= b != 1", "return a > b != 1", "return a >= b != 1", "return a < b == 1"}),
        ("arithmetic", "return a % b", {"return a // b", "return a * b"}),
        ("arithmetic", "return '%s' % b", set()),
        ("arithmetic", "a += b", {"a -= b", "a *= b"}),
        ("and_or", "return a and b and 1", {"return a or b and 1", "return a and b or 1"}),
        ("drop_not", "return not a", {"return a"}),
        ("drop_not", "return not a == b", {"return (a == b)"}),
        ("add_not", "if a:\n    pass", {"if (not (a)):\n    pass"}),
        ("add_not", "if a < b:\n    pass", set()),
        ("add_not", "return a.ready()", {"return (not (a.ready()))"}),
        ("constant", "return 7", {"return 8", "return 6", "return (-7)"}),
        ("constant", "return 0", {"return 1", "return (-1)"}),
        ("constant", "return 1", {"return 2", "return 0", "return (-1)"}),
        ("constant", "return 0.5", {"return 1.5", "return (-0.5)"}),
        ("constant", "return 'text'", set()),
        ("flip_bool", "return True", {"return False"}),
        ("off_by_one", "return a[:b]", {
            "return a[:(b + 1)]", "return a[:(b - 1)]", "return (a[:b] + 1)", "return (a[:b] - 1)",
        }),
        ("off_by_one", "x = range(b)", {"x = range((b + 1))", "x = range((b - 1))"}),
        ("off_by_one", "if a > b:\n    pass", {"if a > (b + 1):\n    pass", "if a > (b - 1):\n    pass"}),
        ("off_by_one", "x = a * 2", {"x = (a + 1) * 2", "x = (a - 1) * 2"}),
        ("drop_operand", "x = a * 1024", {"x = a", "x = (1024)"}),
        ("drop_operand", "x = a or b", {"x = ((a))", "x = ((b))"}),
        ("swap_operands", "x = a - b", {"x = b - a"}),
        ("swap_operands", "x = a * b", set()),
        ("swap_arguments", "g(a, b, c=1)", {"g(b, a, c=1)"}),
        ("swap_arguments", "g(*a, b)", set()),
        ("swap_tuple", "x = a, b", {"x = b, a"}),
        ("swap_arms", "x = 1 if a else 2", {"x = ((2) if (a) else (1))"}),
        ("drop_bound", "x = a[1:b]", {"x = a[:b]", "x = a[1:]"}),
        ("drop_minus", "x = -a", {"x = a"}),
        ("break_continue", "for x in a:\n    break", {"for x in a:\n    continue"}),
        ("drop_statement", "a.clear()", {"pass"}),
        ("unwrap_call", "x = sorted(a)", {"x = a"}),
        ("unwrap_call", "x = a.strip().lower()", {"x = a.strip()", "x = a.lower()"}),
        ("name_pair", "x = max(a)", {"x = min(a)"}),
        ("name_pair", "x = a.startswith(b)", {"x = a.endswith(b)"}),
        ("similar_name", "return a", {"return b"}),
        ("attribute", "return a.first + a.last + b.other", {
            "return a.last + a.last + b.other", "return a.first + a.first + b.other",
        }),
    ],
)  # fmt: skip
def test_an_operator_makes_these_edits(operator: str, body: str, expected: set[str]) -> None:
    found = made(function(body), operator)
    if operator == "attribute":  # first/last are also a pair of names, which has the higher prior
        found = made(function(body), "name_pair")
    assert found == expected


def test_a_word_that_would_touch_its_neighbour_keeps_its_parentheses() -> None:
    assert made(function("return[b]if(a)else-b"), "drop_minus") == {"return[b]if(a)else(b)"}


def test_names_are_few_and_the_most_alike() -> None:
    text = function("return total", "total, totals, tot, other, subtotal, note, item")
    source = source_of(text)
    names = {c.apply(source.data).decode().split()[-1] for c in candidates_of(source) if c.operator == "similar_name"}
    assert names == {"totals", "subtotal", "tot", "note"}


def test_what_is_left_alone() -> None:
    text = '''\
"""Module 1."""


class Box:
    """Class 2."""

    size: "a < b" = None

    def f(self, x: "1 < 2") -> "3 < 4":
        """Function 5 < 6."""
        return f"{x + 7}"
'''
    assert [c for c in candidates_of(source_of(text)) if c.operator not in {"attribute", "name_pair"}] == []


def test_a_candidate_knows_its_outermost_function() -> None:
    text = """\
LIMIT = 3


class Box:
    edge = 4

    @cached(5)
    def area(self, scale=6):
        def inner():
            return 7
        return inner
"""
    owners = {
        int(c.old): (c.function, c.line) for c in candidates_of(source_of(text)) if c.operator == "constant" and c.old
    }
    assert owners == {
        3: (None, 1), 4: (None, 5), 5: ("Box.area", 7), 6: ("Box.area", 8), 7: ("Box.area", 10),
    }  # fmt: skip


def test_equal_edits_of_two_operators_are_one_candidate_with_the_higher_prior() -> None:
    # `start` → `stop` is a pair of names, and also a similar local name.
    source = source_of(function("return start", "start, stop"))
    (candidate,) = [c for c in candidates_of(source) if c.apply(source.data).endswith(b"return stop\n")]
    assert candidate.operator == "name_pair"
    assert PRIORS["name_pair"] > PRIORS["similar_name"]


def test_an_edit_is_cut_to_what_changes() -> None:
    data = b"return a <= b"
    assert shortest(Edit(9, 11, b"<", "compare"), data) == Edit(10, 11, b"", "compare")
    assert shortest(Edit(9, 11, b"<=", "compare"), data) is None
    assert shortest(Edit(0, 13, b"return a >= b", "compare"), data) == Edit(9, 10, b">", "compare")


def test_an_edit_is_never_cut_inside_of_a_character() -> None:
    # U+00B2 and U+00B3 share their first byte, U+00E9 and U+0129 their last.
    for old, new in (("\u00b2", "\u00b3"), ("\u00e9", "\u0129")):
        short = shortest(Edit(0, 2, new.encode(), "constant"), old.encode())
        assert short is not None
        assert (short.start, short.end, short.new.decode()) == (0, 2, new)


TEXT = st.text(alphabet="ab\u00e9\u0129\u00b2\u00b3", max_size=6)


@given(TEXT, TEXT, TEXT, TEXT)
def test_the_shortest_edit_gives_the_same_file(before: str, old: str, after: str, new: str) -> None:
    data = (before + old + after).encode()
    start = len(before.encode())
    edit = Edit(start, start + len(old.encode()), new.encode(), "constant")
    short = shortest(edit, data)
    expected = (before + new + after).encode()
    if short is None:
        assert expected == data
    else:
        assert data[: short.start] + short.new + data[short.end :] == expected
        assert short.end - short.start <= len(old.encode())
        data[short.start : short.end].decode()


def test_every_candidate_of_our_own_code_compiles_and_differs() -> None:
    source = parse_source("own.py", Path(__file__).read_bytes())
    assert source is not None
    before = ast.dump(ast.parse(source.data))
    candidates = candidates_of(source)
    identities = {candidate.identity for candidate in candidates}
    assert len(identities) == len(candidates) > 300
    same = [c for c in candidates if ast.dump(ast.parse(c.apply(source.data))) == before]
    assert same == []


@pytest.mark.parametrize(
    "data", [b"\xef\xbb\xbfa = 1\n", b"a = 1\rb = 2\n", b"a = '\xff'\n", b"a = (\n", b"a = 1\n\x0cb = 2\n", b"\0"]
)
def test_a_file_whose_offsets_are_not_certain_is_not_edited(data: bytes) -> None:
    assert parse_source("a.py", data) is None


def test_windows_line_ends_survive_an_edit() -> None:
    source = parse_source("a.py", b"def f(a, b):\r\n    return a < b\r\n")
    assert source is not None
    made = {c.apply(source.data) for c in candidates_of(source) if c.operator == "compare"}
    assert b"def f(a, b):\r\n    return a <= b\r\n" in made


def test_a_candidate_is_hashable_and_says_what_it_is() -> None:
    source = source_of(function("return a < b"))
    candidate = next(c for c in candidates_of(source) if c.operator == "compare")
    assert isinstance(candidate, Candidate)
    assert candidate.identity.split("\0")[0] == "pack/code.py"
