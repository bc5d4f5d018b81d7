"""Group B: tasks that give the answer away, or cannot be solved. One planted fault for each, and the gate that names it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from qualify_cases import BASELINE, CODE, HIDDEN, TESTS, TaskFolder, changed, git, isolating, sealed

from pairtrial.core.errors import TaskError
from pairtrial.grading.qualify import Qualifier
from pairtrial.grading.qualify.conditions import plan_of
from pairtrial.grading.qualify.needles import gold_passages, hidden_passages
from pairtrial.grading.qualify.probe import Reading, read_everything
from pairtrial.grading.qualify.rounds import Where, problems_of, run_all
from pairtrial.grading.work import capture
from pairtrial.tasks import Prepared
from pairtrial.tasks.qualification import Fault, Problem

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path) -> TaskFolder:
    """A sound task."""
    return TaskFolder(tmp_path / "pack")


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    place = tmp_path / "scratch"
    place.mkdir()
    return place


def sources(folder: TaskFolder) -> Path:
    return folder.root / "targets" / "abacus" / "source"


async def read(folder: TaskFolder, prepared: Prepared, scratch: Path, *further: Path) -> Reading:
    """What the agent that reads everything finds in this tree."""
    honest = await folder.prepare()
    passages = (*hidden_passages(honest.defective, honest.visible), *gold_passages(sources(folder), honest.task.defect))
    return await read_everything(prepared, passages, await isolating(scratch), further)


async def runs(folder: TaskFolder, scratch: Path, *, unbroken: bool = False, repeat: int = 1) -> list[Problem]:
    """What the runs of one tree say."""
    prepared = await folder.prepare()
    patch = capture(prepared.defective, sources(folder)).patch if unbroken else b""
    expected = frozenset() if unbroken else frozenset(prepared.task.fail_to_pass)
    seen = await run_all(prepared, patch, Where("local", scratch), plan_of(repeat))
    return problems_of(seen, expected, "tree")


# ---- B1 to B3: what an agent can read ------------------------------------------------------------------------------
async def test_B_nothing_is_found_where_nothing_leaks(folder: TaskFolder, scratch: Path) -> None:
    reading = await read(folder, await folder.prepare(), scratch)
    assert (reading.problems, reading.needles > 0, reading.files > 2) == ((), True, True)


async def test_B1_defect_as_an_uncommitted_change(folder: TaskFolder, scratch: Path, tmp_path: Path) -> None:
    prepared = await folder.prepare()
    tree = tmp_path / "uncommitted"
    shutil.copytree(prepared.visible, tree, symlinks=True)
    shutil.rmtree(tree / ".git")
    broken = (tree / "src/abacus.py").read_text()
    (tree / "src/abacus.py").write_text(CODE)
    git(tree, "init", "-q", "--template=")
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "Initial import")
    (tree / "src/abacus.py").write_text(broken)
    found = [problem.text for problem in (await read(folder, sealed(prepared, tree), scratch)).problems]
    assert any("1 changes, must have 0" in text for text in found)
    assert any(text.startswith("git:") and "src/abacus.py (unbroken, line 8)" in text for text in found)


def _later_commit(tree: Path) -> None:
    (tree / "src/abacus.py").write_text(CODE)
    git(tree, "commit", "-qam", "Fix the bound")
    git(tree, "reset", "-q", "--hard", "HEAD~1")


def _tag(tree: Path) -> None:
    git(tree, "tag", "-a", "v1", "-m", "next release")


def _remote(tree: Path) -> None:
    git(tree, "remote", "add", "origin", "file:///nowhere")


def _stash(tree: Path) -> None:
    (tree / "src/abacus.py").write_text(CODE)
    git(tree, "stash")


def _dangling_blob(tree: Path) -> None:
    git(tree, "hash-object", "-w", "--stdin", stdin=CODE)


def _alternates(tree: Path) -> None:
    (tree / ".git/objects/info").mkdir(exist_ok=True)
    (tree / ".git/objects/info/alternates").write_text("/elsewhere/objects\n")


@pytest.mark.parametrize(
    ("plant", "named"),
    [
        (_later_commit, "unreachable"),
        (_tag, "tags"),
        (_remote, "remotes"),
        (_stash, "stashes"),
        (_dangling_blob, "unreachable"),
        (_alternates, "alternates"),
    ],
)
async def test_B2_history_that_holds_the_fix(
    folder: TaskFolder, scratch: Path, tmp_path: Path, plant: Callable[[Path], None], named: str
) -> None:
    prepared = await folder.prepare()
    tree = tmp_path / "history"
    shutil.copytree(prepared.visible, tree, symlinks=True)
    plant(tree)
    reading = await read(folder, sealed(prepared, tree), scratch)
    assert any(f" {named}, must have " in problem.text for problem in reading.problems)
    assert {problem.fault for problem in reading.problems} == {Fault.LEAKING}


@pytest.mark.parametrize("form", ["copy", "diff", "archive"])
async def test_B3_hidden_test_in_the_workspace(folder: TaskFolder, scratch: Path, tmp_path: Path, form: str) -> None:
    prepared = await folder.prepare()
    tree = tmp_path / "hidden"
    shutil.copytree(prepared.visible, tree, symlinks=True)
    if form == "copy":
        (tree / "notes.txt").write_text(TESTS)
    elif form == "diff":
        (tree / "notes.txt").write_text("".join(f"+{line}\n" for line in TESTS.splitlines()))
    else:
        packed = shutil.make_archive(str(tmp_path / "old"), "gztar", sources(folder))
        shutil.copy(packed, tree / "old.tar.gz")
    reading = await read(folder, sealed(prepared, tree), scratch)
    assert any("tests/test_abacus.py (hidden" in problem.text for problem in reading.problems)


async def test_B3_hidden_test_in_a_folder_beside_the_workspace(
    folder: TaskFolder, scratch: Path, tmp_path: Path
) -> None:
    if (await isolating(scratch)).kind == "local":
        pytest.skip("needs an isolating sandbox: without one every folder of the machine can be read")
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "cases.py").write_text(TESTS)
    os.chmod(beside, 0o755)  # noqa: PTH101
    reading = await read(folder, await folder.prepare(), scratch, beside)
    assert [problem.text.partition(" holds ")[0] for problem in reading.problems] == [
        f"outside of the workspace: {beside.parent.name}/beside/cases.py"
    ]


async def test_B3_unbroken_source_in_a_second_copy_of_the_source(folder: TaskFolder, scratch: Path) -> None:
    folder.files["build/lib/abacus.py"] = CODE
    reading = await read(folder, await folder.prepare(), scratch)
    texts = [problem.text for problem in reading.problems if not problem.text.startswith("git:")]
    assert texts == ["build/lib/abacus.py holds src/abacus.py (unbroken, line 8)"]


async def test_B3_a_test_that_is_not_hidden(folder: TaskFolder, scratch: Path, tmp_path: Path) -> None:
    prepared = await folder.prepare()
    tree = tmp_path / "shown"
    shutil.copytree(prepared.visible, tree, symlinks=True)
    (tree / "tests/test_abacus.py").write_text(TESTS)
    where = Where("local", scratch)
    found, _ = await Qualifier(tmp_path / "cache", where, where, 1).qualify_prepared(sealed(prepared, tree))
    assert found.verdict == "leaking"
    assert any("still runs 1 hidden tests" in problem.text for problem in found.problems)


# ---- B4: not what it says --------------------------------------------------------------------------------------------
async def test_B4_the_defect_fails_nothing(folder: TaskFolder, scratch: Path) -> None:
    folder.task["defect"] = [{"file": "src/abacus.py", "line": 1, "column": 3, "old": "Counting", "new": "Numbering"}]
    (problem,) = await runs(folder, scratch)
    assert problem.fault is Fault.INVALID
    assert "the defect makes no test fail" in problem.text


async def test_B4_the_defect_fails_other_tests_than_declared(folder: TaskFolder, scratch: Path) -> None:
    folder.task["fail_to_pass"] = [BASELINE[2]]
    texts = sorted(problem.text for problem in await runs(folder, scratch))
    assert texts == [
        f"tree: {BASELINE[2]} in fail_to_pass pass in spite of the defect",
        f"tree: {HIDDEN} fail as well but are not in fail_to_pass",
    ]


async def test_B4_the_unbroken_tree_does_not_pass(folder: TaskFolder, scratch: Path) -> None:
    folder.files["tests/test_abacus.py"] = changed(TESTS, {"count([1, 2]) == 2": "count([1, 2]) == 3"})
    (problem,) = await runs(folder, scratch, unbroken=True)
    assert problem == Problem(fault=Fault.INVALID, text=f"tree: {BASELINE[2]} of the baseline do not pass")


async def test_B4_another_copy_than_the_edited_one_is_tested(folder: TaskFolder, scratch: Path, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    installed.mkdir()
    (installed / "abacus.py").write_text(CODE)
    folder.files["tests/test_abacus.py"] = f"import sys\nsys.path.insert(0, {str(installed)!r})\n{TESTS}"
    (problem,) = await runs(folder, scratch)
    assert "another copy than the edited one is under test" in problem.text


# ---- B5 and B6: not always the same ------------------------------------------------------------------------------------
FLAKY = {
    "clock": "    import time\n    assert time.time() < 1_830_000_000\n",
    "zone": "    import time\n    assert time.localtime(0).tm_hour == 0\n",
    "path": "    import os\n    assert os.path.basename(os.getcwd()) != 'moved'\n",
    "hash-seed": "    import os\n    assert os.environ['PYTHONHASHSEED'] == '0'\n",
}


def with_test(body: str) -> str:
    return changed(TESTS, {"    assert count([1, 2]) == 2\n": f"    assert count([1, 2]) == 2\n{body}"})


@pytest.mark.parametrize("aspect", ["clock", "zone", "path", "hash-seed"])
async def test_B5_a_test_that_depends_on_its_surroundings(folder: TaskFolder, scratch: Path, aspect: str) -> None:
    body = FLAKY[aspect]
    if aspect == "clock":
        from pairtrial.grading.qualify.conditions import clock_library

        if clock_library() is None:
            pytest.skip("libfaketime is not installed")
    folder.files["tests/test_abacus.py"] = with_test(body)
    (problem,) = await runs(folder, scratch)
    assert problem == Problem(fault=Fault.FLAKY, text=f"tree: {BASELINE[2]}: passes at first, otherwise under {aspect}")


async def test_B5_a_test_that_depends_on_the_order(folder: TaskFolder, scratch: Path) -> None:
    more = "".join(
        f"\n\ndef test_step_{n}():\n    SEEN.append({n})\n    assert SEEN == list(range({n + 1}))\n" for n in range(6)
    )
    folder.files["tests/test_abacus.py"] = f"{TESTS}\n\nSEEN = []\n{more}"
    folder.baseline = (*BASELINE, *(f"tests/test_abacus.py::test_step_{n}" for n in range(6)))
    (problem,) = await runs(folder, scratch)
    assert problem.fault is Fault.FLAKY
    assert problem.text.endswith("passes at first, otherwise under order")


async def test_B5_a_test_that_fails_by_chance(folder: TaskFolder, scratch: Path, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    folder.files["tests/test_abacus.py"] = with_test(
        f"    with open({str(counter)!r}, 'a+') as file:\n"
        "        file.write('x')\n        file.seek(0)\n        assert len(file.read()) != 2\n"
    )
    (problem,) = await runs(folder, scratch, repeat=2)
    assert problem == Problem(
        fault=Fault.FLAKY, text=f"tree: {BASELINE[2]}: passes at first, otherwise under as-graded"
    )


async def test_B5_a_test_with_a_time_limit_under_load(folder: TaskFolder, scratch: Path) -> None:
    folder.files["tests/test_abacus.py"] = with_test(
        "    import time\n    used, began = time.process_time(), time.perf_counter()\n"
        "    while time.process_time() - used < 0.5:\n        pass\n"
        "    shared = len(__import__('os').sched_getaffinity(0)) == 1\n"
        "    assert not shared or time.perf_counter() - began < 1.0\n"
    )
    (problem,) = await runs(folder, scratch)
    assert problem == Problem(fault=Fault.FLAKY, text=f"tree: {BASELINE[2]}: passes at first, otherwise under load")


async def test_B6_a_snapshot_with_a_relative_time(folder: TaskFolder, scratch: Path) -> None:
    from pairtrial.grading.qualify.conditions import clock_library

    if clock_library() is None:
        pytest.skip("libfaketime is not installed")
    folder.files["tests/test_abacus.py"] = with_test(
        "    import datetime\n    age = datetime.date.today().year - 2000\n"
        f"    assert f'{{age}} years ago' == '{__import__('datetime').date.today().year - 2000} years ago'\n"
    )
    (problem,) = await runs(folder, scratch)
    assert (problem.fault, problem.text.rpartition(" ")[2]) == (Fault.FLAKY, "clock")


# ---- B7 and B8 ---------------------------------------------------------------------------------------------------------
async def test_B7_no_test_to_pass(folder: TaskFolder) -> None:
    folder.task["fail_to_pass"] = []
    with pytest.raises(TaskError, match=r"fail_to_pass: .*at least 1 item"):
        folder.load()


@pytest.mark.parametrize("text", ["[100%]", "tests/test_abacus.py::test_of_nobody", "test_inside"])
async def test_B7_text_that_is_no_test(folder: TaskFolder, text: str) -> None:
    folder.task["fail_to_pass"] = [text]
    with pytest.raises(TaskError) as caught:
        folder.load()
    assert f"fail_to_pass: {text!r} is not in the baseline of abacus" in caught.value.message


@pytest.mark.slow
async def test_B8_an_agent_that_does_nothing_resolves_it(folder: TaskFolder, scratch: Path, tmp_path: Path) -> None:
    folder.task["defect"] = [{"file": "src/abacus.py", "line": 1, "column": 3, "old": "Counting", "new": "Numbering"}]
    where = Where("local", scratch)
    found, _ = await Qualifier(tmp_path / "cache", where, where, 1).qualify_prepared(await folder.prepare())
    texts = [problem.text for problem in found.problems]
    assert (found.noop, found.verdict) == ("resolved", "invalid")
    assert "an agent that does nothing resolves the task" in texts
    assert "prompt: the example passes on the defective tree, so it shows nothing" in texts


@pytest.mark.slow
async def test_B_a_sound_task_qualifies_and_is_not_run_again(folder: TaskFolder, scratch: Path, tmp_path: Path) -> None:
    prepared = await folder.prepare()
    count: list[None] = []
    where = Where("local", scratch)
    qualifier = Qualifier(tmp_path / "cache", where, await isolating(scratch), 3, told=lambda: count.append(None))
    found, cached = await qualifier.qualify_prepared(prepared)
    assert (found.problems, found.verdict, cached) == ((), "qualified", False)
    assert (found.noop, found.gold, found.example, found.visible_tests) == (
        "unresolved", "resolved", "fails, then passes", 2,
    )  # fmt: skip
    assert [(item.condition, item.defective, item.unbroken) for item in found.rounds] == [
        ("as-graded", 3, 3), ("varied", 3, 3), ("load", 1, 1),
    ]  # fmt: skip
    assert len(count) == 3 + 2 * 7
    again, cached = await qualifier.qualify_prepared(prepared)
    assert (again, cached, len(count)) == (found, True, 17)
