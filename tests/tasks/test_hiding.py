"""Cutting hidden tests out: all of their text goes, everything else stays and still runs."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pairtrial.core.errors import TaskError
from pairtrial.tasks.hiding import hide_files, hide_tests, test_function

Dedent = Callable[[str], str]
FILE = "tests/test_a.py"


@pytest.fixture
def hide(tmp_path: Path) -> Callable[..., str | None]:
    """Hide names of one test file; its text afterwards, or None when it is gone."""

    def run(
        text: str, hidden: Sequence[str], visible: Sequence[str], others: dict[str, str] | None = None
    ) -> str | None:
        for name, content in {FILE: text, **(others or {})}.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(content.encode())
        hide_tests(tmp_path, [f"{FILE}::{x}" for x in hidden], [f"{FILE}::{x}" for x in visible], task="t")
        path = tmp_path / FILE
        if not path.exists():
            return None
        ast.parse(path.read_bytes())
        return path.read_bytes().decode()

    return run


@pytest.mark.parametrize(
    ("test_id", "found"),
    [
        ("a/test_b.py::test_c", ("a/test_b.py", ("test_c",))),
        ("a/test_b.py::TestC::test_d[x::y-[z]]", ("a/test_b.py", ("TestC", "test_d"))),
        ("test_b.py::test_c[a b/c.py::d]", ("test_b.py", ("test_c",))),
    ],
)
def test_ids_name_file_and_function(test_id: str, found: object) -> None:
    assert test_function(test_id) == found


@pytest.mark.parametrize("test_id", ["README.rst::README.rst", "a/test_b.py", "a[b].py::test_c"])
def test_other_ids_cannot_be_hidden(test_id: str) -> None:
    with pytest.raises(TaskError, match="is not the id of a test function"):
        test_function(test_id)


def test_decorators_and_docstring_go_too(hide: Callable[..., str | None], dedented: Dedent) -> None:
    text = """
        import pytest

        @pytest.mark.parametrize(
            "x",
            [1, 2],
        )
        @other
        def test_gone(x):
            '''told'''
            assert x == 3

        def test_kept():
            pass
        """
    assert hide(dedented(text), ["test_gone[1]", "test_gone[2]"], ["test_kept"]) == dedented(
        """
        import pytest


        def test_kept():
            pass
        """
    )


def test_a_parametrized_test_goes_with_all_its_cases(hide: Callable[..., str | None]) -> None:
    text = "@p('x', [1, 2])\ndef test_a(x): ...\ndef test_b(): ...\n"
    assert hide(text, ["test_a[1]"], ["test_a[2]", "test_b"]) == "def test_b(): ...\n"


def test_an_emptied_class_keeps_its_place(hide: Callable[..., str | None], dedented: Dedent) -> None:
    text = """
        class TestA:
            def test_x(self):
                assert 1

        class TestB:
            limit = 3

            async def test_x(self):
                assert 2

            def test_y(self): ...
        """
    assert hide(dedented(text), ["TestA::test_x", "TestB::test_x"], ["TestB::test_y"]) == dedented(
        """
        class TestA:
            pass

        class TestB:
            limit = 3


            def test_y(self): ...
        """
    )


def test_a_file_without_tests_is_removed(hide: Callable[..., str | None]) -> None:
    assert hide("def test_a(): ...\n", ["test_a"], []) is None
    assert hide("@p([1, 2])\ndef test_a(x): ...\n", ["test_a[1]"], ["test_a[2]"]) is None


@pytest.mark.parametrize(
    "line", ["from tests.test_a import helper", "    from . import test_a", "import tests.test_a as t"]
)
def test_a_file_that_others_import_is_kept_without_its_tests(hide: Callable[..., str | None], line: str) -> None:
    others = {"tests/test_b.py": f"if True:\n  if True:\n    pass\n{line.strip()}\n"}
    assert hide("helper = 1\ndef test_a(): ...\n", ["test_a"], [], others) == "helper = 1\n"


def test_definitions_in_branches_go_all(hide: Callable[..., str | None], dedented: Dedent) -> None:
    text = """
        if new:
            def test_a(): ...
        else:
            def test_a():
                return 2
        try:
            import x
        except ImportError:
            test_a = None
        def test_b(): ...
        """
    assert hide(dedented(text), ["test_a"], ["test_b"]) == dedented(
        """
        if new:
            pass
        else:
            pass
        try:
            import x
        except ImportError:
            pass
        def test_b(): ...
        """
    )


def test_an_inherited_test_goes_from_its_base(hide: Callable[..., str | None], dedented: Dedent) -> None:
    text = """
        class Root:
            def test_x(self): ...
        class Base(Root):
            size = 1
        class TestA(Base): ...
        class TestB(Base):
            def test_y(self): ...
        """
    found = hide(dedented(text), ["TestA::test_x"], ["TestB::test_x", "TestB::test_y"])
    assert found is not None
    assert "test_x" not in found
    assert "test_y" in found


@pytest.mark.parametrize("name", ["test_none", "TestA::test_none", "TestNone::test_x", "TestA::test_x::deeper"])
def test_a_test_that_is_not_there_is_named(hide: Callable[..., str | None], name: str) -> None:
    with pytest.raises(TaskError, match="no such function in the file") as caught:
        hide("class TestA(Elsewhere):\n    def test_x(self): ...\n", [name], ["TestA::test_x"])
    assert name in caught.value.message


def test_a_missing_test_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"tests/test_a\.py: no such file"):
        hide_tests(tmp_path, ["tests/test_a.py::test_a"], [], task="t")


def test_constants_of_hidden_tests_go_with_them(hide: Callable[..., str | None], dedented: Dedent) -> None:
    text = """
        WANTED = [1, 2]
        MORE: list = [*WANTED, 3]
        SHARED = 4
        LISTED = 5
        ELSEWHERE = 6
        IDLE = 7
        __all__ = ["LISTED"]

        @p("x", MORE)
        def test_a(x):
            assert x == SHARED + LISTED + ELSEWHERE

        def test_b():
            assert SHARED
        """
    others = {"tests/test_b.py": "from test_a import ELSEWHERE\n"}
    assert hide(dedented(text), ["test_a"], ["test_b"], others) == dedented(
        """
        SHARED = 4
        LISTED = 5
        ELSEWHERE = 6
        IDLE = 7
        __all__ = ["LISTED"]


        def test_b():
            assert SHARED
        """
    )


def test_a_constant_used_by_another_constant_that_stays_is_kept(hide: Callable[..., str | None]) -> None:
    text = "A = 1\nB = A\ndef test_a(): assert A\ndef test_b(): assert B\n"
    assert hide(text, ["test_a"], ["test_b"]) == "A = 1\nB = A\ndef test_b(): assert B\n"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_form_feeds_do_not_shift_the_cut(hide: Callable[..., str | None], end: str) -> None:
    text = f"A = '''x\x0cy\x1c\u2028'''{end}\x0c{end}def test_a():{end}    assert 1{end}{end}def test_b(): ...{end}"
    found = hide(text, ["test_a"], ["test_b"])
    assert found == f"A = '''x\x0cy\x1c\u2028'''{end}\x0c{end}{end}def test_b(): ...{end}"


def test_a_file_of_another_language_is_refused(hide: Callable[..., str | None]) -> None:
    with pytest.raises(TaskError, match="this Python cannot parse it"):
        hide("print 'two'\n", ["test_a"], ["test_b"])


def test_whole_files_are_removed(tmp_path: Path) -> None:
    (tmp_path / "data.md").write_text("x")
    (tmp_path / "link.md").symlink_to("data.md")
    hide_files(tmp_path, ["data.md"], task="t")
    assert not (tmp_path / "data.md").exists()
    with pytest.raises(TaskError, match=r"hide: link\.md: no such file"):
        hide_files(tmp_path, ["link.md"], task="t")
