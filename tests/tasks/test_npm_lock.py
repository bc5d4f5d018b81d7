"""npm's lock file: everything pinned with its integrity, nothing that is needed missing (bug report 67)."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from pairtrial.core.errors import TaskError
from pairtrial.tasks.hiding import cut_lines, hide_other_tests
from pairtrial.tasks.model import Cut
from pairtrial.tasks.npm_lock import read_npm_lock, root_manifest
from pairtrial.tasks.pack import read_ids, written_id

SUM = "sha512-" + base64.b64encode(bytes(64)).decode()


def lock(changes: dict[str, dict[str, Any] | None] | None = None, **top: Any) -> str:
    packages: dict[str, dict[str, Any]] = {
        "": {"name": "environment", "dependencies": {"runner": "1.0.0"}},
        "node_modules/runner": {"version": "1.0.0", "integrity": SUM, "dependencies": {"inner": "^2.0.0"}},
        "node_modules/inner": {"version": "2.1.0", "integrity": SUM, "peerDependencies": {"maybe": "*"},
                               "peerDependenciesMeta": {"maybe": {"optional": True}}},
    }  # fmt: skip
    for place, values in (changes or {}).items():
        if values is None:
            del packages[place]
        else:
            packages[place] = {**packages.get(place, {}), **values}
    return json.dumps({"lockfileVersion": 3, "packages": packages, **top})


def test_a_whole_lock() -> None:
    packages, problems = read_npm_lock(lock())
    assert ([(item.name, item.version) for item in packages], problems) == (
        [("inner", "2.1.0"), ("runner", "1.0.0")],
        [],
    )
    assert json.loads(root_manifest(lock()))["dependencies"] == {"runner": "1.0.0"}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"node_modules/inner": None}, "node_modules/runner needs inner, which is not pinned"),
        ({"node_modules/runner": None}, "the root needs runner, which is not pinned"),
        ({"node_modules/inner": {"integrity": "sha1-x"}}, "node_modules/inner: has no SHA-512 integrity"),
        ({"node_modules/inner": {"version": "^2.0.0"}}, "node_modules/inner: has no exact version"),
        ({"node_modules/inner": {"resolved": "https://example.invalid"}}, "names an address"),
        ({"node_modules/inner": {"peerDependencies": {"must": "*"}}}, "needs must, which is not pinned"),
        ({"packages/x": {"version": "1.0.0", "integrity": SUM}}, "a link or a workspace is not accepted"),
    ],
)
def test_what_is_not_pinned(changes: dict[str, dict[str, Any] | None], problem: str) -> None:
    assert problem in "\n".join(read_npm_lock(lock(changes))[1])


def test_a_requirement_may_lie_inside_another_package() -> None:
    moved = {
        "node_modules/inner": None,
        "node_modules/runner/node_modules/inner": {"version": "2.0.0", "integrity": SUM},
    }
    assert read_npm_lock(lock(moved))[1] == []


def test_other_files_are_no_lock() -> None:
    assert read_npm_lock("{}")[1] == ["not npm's lock file (package-lock.json)"]
    assert "must be 3" in read_npm_lock(lock(lockfileVersion=1))[1][0]


def test_ids_that_a_line_cannot_hold() -> None:
    ids = ("a::b", "a::line\nbreak", 'quote " inside', '"starts', "carriage\rreturn", "ünï")
    assert read_ids("".join(f"{written_id(item)}\n" for item in ids)) == ids


def test_lines_are_cut_and_an_empty_file_goes(tmp_path: Path) -> None:
    (tmp_path / "a.go").write_text("1\n2\n3\n4\n5\n")
    (tmp_path / "b.go").write_text("1\n2\n")
    cuts = [Cut(file="a.go", first=2, last=2), Cut(file="a.go", first=4, last=5), Cut(file="b.go", first=1, last=2)]
    cut_lines(tmp_path, cuts, task="t")
    assert (tmp_path / "a.go").read_text() == "1\n3\n"
    assert not (tmp_path / "b.go").exists()
    with pytest.raises(TaskError, match="has only 3 lines, not 9"):
        cut_lines(tmp_path, [Cut(file="a.go", first=1, last=9)], task="t")


def test_files_of_hidden_tests_go_unless_something_else_hides_them(tmp_path: Path) -> None:
    for name in ("a.test.js", "b.test.js"):
        (tmp_path / name).write_text("x")
    hide_other_tests(tmp_path, ["a.test.js::x > y", "b.test.js::z"], ["b.test.js"], task="t")
    assert [path.name for path in tmp_path.iterdir()] == ["b.test.js"]
    with pytest.raises(TaskError, match="no such file in the target"):
        hide_other_tests(tmp_path, ["c.test.js::x"], [], task="t")
