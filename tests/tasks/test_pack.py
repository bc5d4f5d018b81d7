"""Loading packs: what is right loads, what is wrong is named with file and field, all at once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from pairtrial.core.errors import TaskError
from pairtrial.tasks import load_pack


def problems(pack_folder: Any) -> list[str]:
    with pytest.raises(TaskError) as caught:
        load_pack(pack_folder.root)
    return caught.value.message.splitlines()


def test_a_pack_loads_with_all_that_it_refers_to(pack: Any) -> None:
    (task,) = pack.tasks
    assert (pack.id, task.id, task.target.id, task.category) == ("mine", "abacus-clamp", "abacus", "condition")
    assert task.fail_to_pass == ("tests/test_abacus.py::test_clamp_hidden[7331-1-9-9]",)
    assert task.pass_to_pass == (
        "tests/test_abacus.py::test_clamp_hidden[0-1-9-1]",
        "tests/test_abacus.py::test_clamp_inside",
        "tests/test_abacus.py::TestAbacus::test_spread",
    )
    assert task.prompt.startswith("Numbers above")


def test_every_problem_comes_at_once(pack_folder: Any) -> None:
    pack_folder.target["colour"] = "red"
    pack_folder.task["fail_to_pass"] = []
    pack_folder.task["defect"][0]["line"] = 0
    pack_folder.pack["tasks"] = ["abacus-clamp", "abacus-clamp", "absent"]
    pack_folder.write()
    text = "\n".join(problems(pack_folder))
    assert "pack.yaml: tasks: 'abacus-clamp' is listed twice" in text
    assert "task.yaml: fail_to_pass: Tuple should have at least 1 item" in text
    assert "task.yaml: defect.0.line: Input should be greater than or equal to 1" in text
    assert "absent/task.yaml: no such file" in text
    # The target is only read through a task that parses.
    pack_folder.task["fail_to_pass"] = ["tests/test_abacus.py::test_clamp_inside"]
    pack_folder.task["defect"][0]["line"] = 8
    pack_folder.write_documents()
    assert any("target.yaml: colour: unknown key" in line for line in problems(pack_folder))


@pytest.mark.parametrize(
    ("where", "key", "value", "named"),
    [
        ("pack", "extra", 1, "pack.yaml: extra: unknown key"),
        ("task", "defects", [], "task.yaml: defects: unknown key"),
        ("task", "expect", {"a": "b"}, "task.yaml: expect:"),
        ("task", "category", "typo", "task.yaml: category:"),
        ("task", "id", "other", "task.yaml: id: is 'other', but the folder is called 'abacus-clamp'"),
        ("task", "prompt", "none.md", "none.md: no such file"),
        ("task", "prompt", "../x.md", "task.yaml: prompt: must be a relative POSIX path"),
        ("task", "target", "nowhere", "nowhere/target.yaml: no such file"),
        ("task", "fail_to_pass", ["tests/test_abacus.py::test_x"], "is not in the baseline of abacus"),
        ("task", "fail_to_pass", ["tests/test_abacus.py::test_clamp_inside"] * 2, "is listed twice"),
        ("target", "id", "other", "target.yaml: id: is 'other', but the folder is called 'abacus'"),
        ("target", "baseline", "none.txt", "none.txt: no such file"),
        ("target", "environment", {"lock": "none.lock"}, "none.lock: no such file"),
        ("target", "source", {"kind": "svn", "path": "x"}, "target.yaml: source: Input tag 'svn'"),
        (
            "target",
            "source",
            {"kind": "pypi-sdist", "name": "a", "version": ">=1", "sha256": "0" * 64},
            "source.pypi-sdist.version: must be one exact version",
        ),
        (
            "target",
            "source",
            {"kind": "pypi-sdist", "name": "a", "version": "1", "sha256": "abc"},
            "source.pypi-sdist.sha256:",
        ),
        ("target", "source", {"kind": "local", "path": "source", "tree": "0" * 64}, "needs source.name"),
        ("target", "tests", {"framework": "nose", "paths": ["tests"]}, "tests.framework:"),
        ("target", "pythonpath", ["/abs"], "pythonpath.0"),
    ],
)
def test_each_fault_names_file_and_field(pack_folder: Any, where: str, key: str, value: object, named: str) -> None:
    pack_folder.write()
    getattr(pack_folder, where)[key] = value
    pack_folder.write_documents()
    assert any(named in line for line in problems(pack_folder))


@pytest.mark.parametrize(
    ("lock", "named"),
    [
        ("pytest==9.2.0\n", "line 1: pytest: no hash"),
        ("pytest>=9 --hash=sha256:" + "0" * 64, "line 1: pytest: not pinned with one '=='"),
        ("pytest==9.* --hash=sha256:" + "0" * 64, "line 1: pytest: not pinned with one '=='"),
        ("pytest==9.2.0 --hash=md5:abc", "line 1: pytest: a hash is not 'sha256:' and 64 digits"),
        ("# c\n\n-r other.txt\n", "line 3: option '-r' is not accepted"),
        ("--index-url x\n", "line 1: option '--index-url' is not accepted"),
        ("pytest @ file:x --hash=sha256:" + "0" * 64, "line 1: pytest: a URL is not accepted"),
        ("", "does not pin pytest"),
        ("pytest==9.2.0 --hash=sha256:" + "0" * 64 + "\nPytest==9.2.0 --hash=sha256:" + "1" * 64, "pinned twice"),
        ("Abacus==1.0 --hash=sha256:" + "0" * 64, "--no-emit-package abacus"),
    ],
)
def test_a_lock_is_pinned_hashed_and_without_the_target(pack_folder: Any, lock: str, named: str) -> None:
    pack_folder.write()
    (pack_folder.target_folder / "requirements.lock").write_text(lock)
    assert any("requirements.lock: " in line and named in line for line in problems(pack_folder))


def test_baseline_ids_are_kept_as_they_are(pack_folder: Any) -> None:
    pack_folder.write()
    odd = "tests/test_abacus.py::test_clamp_inside[ a\\u2028b — \u2028 [x]::y ]"
    with (pack_folder.target_folder / "baseline.txt").open("a") as handle:
        handle.write(f"{odd}\n")
    assert load_pack(pack_folder.root).tasks[0].pass_to_pass[-1] == odd


def test_a_doubled_baseline_id_is_refused(pack_folder: Any) -> None:
    pack_folder.write()
    with (pack_folder.target_folder / "baseline.txt").open("a") as handle:
        handle.write("tests/test_abacus.py::test_clamp_inside\n")
    assert any("'tests/test_abacus.py::test_clamp_inside' is listed twice" in line for line in problems(pack_folder))


def test_files_that_are_no_text_are_named(pack_folder: Any) -> None:
    pack_folder.write()
    (pack_folder.task_folder / "prompt.md").write_bytes(b"ab\xff")
    assert any("prompt.md: not UTF-8 (byte 2)" in line for line in problems(pack_folder))


def test_an_empty_prompt_is_refused(pack_folder: Any) -> None:
    pack_folder.write()
    (pack_folder.task_folder / "prompt.md").write_text(" \n")
    assert any("prompt.md: empty" in line for line in problems(pack_folder))


def test_the_same_key_twice_is_refused(pack_folder: Any) -> None:
    pack_folder.write()
    with (pack_folder.task_folder / "task.yaml").open("a") as handle:
        handle.write("title: again\n")
    assert any("task.yaml: not valid YAML" in line and "stands twice" in line for line in problems(pack_folder))


def test_a_folder_without_a_pack_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"pack\.yaml: no such file"):
        load_pack(tmp_path)


def test_the_digest_is_that_of_the_content_not_of_the_place(pack_folder: Any, tmp_path: Path) -> None:
    before = pack_folder.load()
    shutil.copytree(pack_folder.root, tmp_path / "elsewhere")
    assert load_pack(tmp_path / "elsewhere" / "pack.yaml").digest == before.digest


@pytest.mark.parametrize("name", ["prompt.md", "title", "span", "lock", "baseline", "license"])
def test_one_changed_byte_changes_the_digest(pack_folder: Any, name: str) -> None:
    before = pack_folder.load().tasks[0].digest
    match name:
        case "prompt.md":
            (pack_folder.task_folder / "prompt.md").write_text("Another prompt.\n")
        case "title":
            pack_folder.task["title"] = "Clamp does not clamp."
        case "span":
            pack_folder.task["defect"][0]["new"] = ">="
        case "lock":
            lock = pack_folder.target_folder / "requirements.lock"
            lock.write_text(lock.read_text().replace("0000", "0001", 1))
        case "baseline":
            baseline = pack_folder.target_folder / "baseline.txt"
            baseline.write_text(baseline.read_text() + "tests/test_abacus.py::test_more\n")
        case "license":
            pack_folder.target["license"] = "MIT-0"
    pack_folder.write_documents()
    assert load_pack(pack_folder.root).tasks[0].digest != before


def test_an_unknown_task_is_named_with_those_there_are(pack: Any) -> None:
    with pytest.raises(TaskError, match="no task 'nope'") as caught:
        pack.task("nope")
    assert caught.value.hint == "one of: abacus-clamp"
    assert pack.task("abacus-clamp") is pack.tasks[0]
