"""Folding defects in: exact places, clear refusals, nothing half-done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairtrial.core.errors import TaskError
from pairtrial.tasks.defects import apply_defect, edit, scope_at, spans_between
from pairtrial.tasks.model import Span

TEXT = "def f(a):\n    return a <= 1\n\n\nclass C:\n    @wraps(\n        f\n    )\n    def g(self, é):\n        return é + 1\n"


def at(line: int, column: int, old: str, new: str, scope: str | None = None, file: str = "m.py") -> Span:
    return Span(file=file, scope=scope, line=line, column=column, old=old, new=new)


def edited(*spans: Span, text: str = TEXT, file: str = "m.py") -> str:
    return edit(text, spans, task="t", file=file)


def test_lines_count_from_one_and_columns_in_characters_from_zero() -> None:
    assert edited(at(2, 13, "<=", "<")) == TEXT.replace("a <= 1", "a < 1")
    assert edited(at(10, 17, "+", "-")) == TEXT.replace("é + 1", "é - 1")


def test_several_spans_are_all_positions_of_the_unbroken_file() -> None:
    found = edited(at(2, 13, "<=", "is not"), at(2, 16, "1", "None"), at(10, 19, "1", "2"))
    assert found == TEXT.replace("a <= 1", "a is not None").replace("é + 1", "é + 2")


def test_insertion_and_deletion() -> None:
    assert edited(at(2, 11, "", "not ")) == TEXT.replace("return a", "return not a")
    assert edited(at(10, 16, " + 1", "")) == TEXT.replace("é + 1", "é")


def test_a_span_may_go_over_the_end_of_a_line() -> None:
    assert edited(at(1, 8, ":\n    return a", ":\n    return 1"), file="m.py").splitlines()[1] == "    return 1 <= 1"


def test_carriage_returns_stay() -> None:
    assert edited(at(2, 13, "<=", "<"), text=TEXT.replace("\n", "\r\n")) == TEXT.replace("<=", "<").replace(
        "\n", "\r\n"
    )


@pytest.mark.parametrize(
    ("span", "said"),
    [
        (at(2, 12, "<=", "<"), "t: defect: m.py: line 2, column 12: expected '<=', but ' <' stands there"),
        (at(3, 0, "x", "y"), "expected 'x', but '\\n' stands there"),
        (at(2, 99, "x", "y"), "the line has only 17 characters"),
        (at(99, 0, "x", "y"), "the file has only 11 lines"),
        (at(2, 13, "<=", "<", scope="C.g"), "lies in f, not in C.g"),
        (at(10, 17, "+", "-", scope="f"), "lies in C.g, not in f"),
        (at(5, 6, "C", "D", scope="g"), "lies in C, not in g"),
    ],
)
def test_what_stands_elsewhere_is_named(span: Span, said: str) -> None:
    with pytest.raises(TaskError) as caught:
        edited(span)
    assert said in caught.value.message
    assert caught.value.slug == "defect-does-not-apply"


@pytest.mark.parametrize("scope", ["C.g", "g", "C"])
def test_a_scope_may_be_shortened_or_wide(scope: str) -> None:
    assert "é - 1" in edited(at(10, 17, "+", "-", scope=scope))


def test_overlapping_spans_are_refused() -> None:
    with pytest.raises(TaskError, match="overlap"):
        edited(at(2, 11, "a <=", "b <"), at(2, 13, "<=", "<"))


def test_a_defect_of_syntax_is_refused() -> None:
    with pytest.raises(TaskError, match="no longer valid Python") as caught:
        edited(at(2, 13, "<=", "<=)"))
    assert caught.value.slug == "defect-syntax"


def test_other_files_need_no_syntax() -> None:
    assert edited(at(1, 0, "a", "b"), text="a ( b", file="m.txt") == "b ( b"


def test_nothing_is_changed_when_one_span_does_not_apply(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(TEXT)
    (tmp_path / "n.py").write_text(TEXT)
    with pytest.raises(TaskError):
        apply_defect(tmp_path, [at(2, 13, "<=", "<"), at(2, 13, "==", "<", file="n.py")], task="t")
    assert (tmp_path / "m.py").read_text() == TEXT
    apply_defect(tmp_path, [at(2, 13, "<=", "<"), at(2, 13, "<=", "==", file="n.py")], task="t")
    assert "a < 1" in (tmp_path / "m.py").read_text()
    assert "a == 1" in (tmp_path / "n.py").read_text()


@pytest.mark.parametrize(
    "make", [lambda path: None, lambda path: path.symlink_to("other.py"), lambda path: path.mkdir()]
)
def test_a_file_that_is_not_there_is_named(tmp_path: Path, make: Callable[[Path], None]) -> None:
    (tmp_path / "other.py").write_text(TEXT)
    make(tmp_path / "m.py")
    with pytest.raises(TaskError, match=r"m\.py: no such file"):
        apply_defect(tmp_path, [at(2, 13, "<=", "<")], task="t")


def test_the_innermost_scope_counts_decorators_and_branches() -> None:
    import ast

    text = "try:\n    def f():\n        def g():\n            pass\nexcept E:\n    class C:\n        x = 1\n"
    tree = ast.parse(text)
    assert [scope_at(tree, line) for line in range(1, 8)] == ["", "f", "f.g", "f.g", "", "C", "C"]
    assert scope_at(ast.parse(TEXT), 7) == "C.g"


def test_spans_are_written_from_an_edited_copy() -> None:
    after = TEXT.replace("a <= 1", "a < 1").replace("é + 1", "é - 1")
    assert spans_between("m.py", TEXT, after) == (
        at(2, 13, "<=", "<", scope="f"),
        at(10, 17, "+", "-", scope="C.g"),
    )
    assert spans_between("m.py", TEXT, TEXT) == ()


def test_a_rewritten_passage_is_no_span() -> None:
    with pytest.raises(TaskError, match="at most 60 by 200"):
        spans_between("m.txt", "a" * 61, "b")


@given(st.text("ab<=( \n", max_size=40), st.text("ab<=( \n", max_size=40))
def test_spans_give_back_the_edited_text(before: str, after: str) -> None:
    """Adjacent insertions may meet in one place; everything else must round-trip."""
    spans = spans_between("m.txt", before, after)
    assert edit(before, spans, task="t", file="m.txt") == after
