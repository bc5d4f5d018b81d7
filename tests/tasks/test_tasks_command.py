"""`pairtrial tasks` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pairtrial.cli.main import main
from pairtrial.core.errors import ExitCode, TaskError
from pairtrial.tasks.prompts import example

CORE = Path(__file__).resolve().parents[2] / "tasks" / "core"


class Said(NamedTuple):
    """What a command returned and printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run `pairtrial tasks …` in this process."""

    def run(*arguments: object) -> Said:
        with pytest.raises(SystemExit) as caught:
            main(["tasks", *map(str, arguments)])
        out, err = capsys.readouterr()
        return Said(int(str(caught.value.code)), out, err)

    return run


def test_a_pack_is_listed(command: Callable[..., Said], pack: Any) -> None:
    said = command("list", pack.folder)
    assert said.code == ExitCode.OK
    assert said.out.splitlines() == [
        "TASK          TARGET      CATEGORY   EDITS  FAIL  PASS  TITLE",
        "abacus-clamp  abacus 1.0  condition  1      1     3     Clamp does not clamp",
    ]
    assert said.err == f"1 tasks on 1 targets, pack mine {pack.digest[:12]}\n"


def test_the_record_has_the_digests(command: Callable[..., Said], pack: Any) -> None:
    record = json.loads(command("list", pack.folder, "--json").out)
    assert record["digest"] == pack.digest
    assert record["tasks"] == [
        {
            "id": "abacus-clamp",
            "title": "Clamp does not clamp",
            "category": "condition",
            "target": "abacus",
            "version": "1.0",
            "license": "MIT",
            "edits": 1,
            "fail_to_pass": 1,
            "pass_to_pass": 3,
            "digest": pack.tasks[0].digest,
        }
    ]


def test_a_wrong_pack_is_refused_without_a_traceback(command: Callable[..., Said], pack_folder: Any) -> None:
    pack_folder.task["colour"] = "red"
    said = command("list", pack_folder.write())
    assert said.code == ExitCode.REFUSED
    assert said.out == ""
    assert "task.yaml: colour: unknown key" in said.err
    assert "Traceback" not in said.err


def test_an_unknown_task_is_refused(command: Callable[..., Said], pack: Any) -> None:
    said = command("measure", pack.folder, "--task", "nope")
    assert said.code == ExitCode.REFUSED
    assert "no task 'nope'" in said.err


def test_spans_are_printed_as_they_stand_in_the_task(
    command: Callable[..., Said], pack: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIRTRIAL_CACHE", str(tmp_path / "cache"))
    original = pack.tasks[0].target.folder / "source" / "src" / "abacus.py"
    edited = tmp_path / "edited.py"
    edited.write_text(original.read_text().replace("high if value > high", "high if value < high"))
    said = command("spans", pack.folder, "abacus", "src/abacus.py", edited)
    assert said.out.splitlines() == [
        "defect:",
        '  - {"file": "src/abacus.py", "scope": "clamp", "line": 8, "column": 25, "old": ">", "new": "<"}',
    ]
    edited.write_text(original.read_text())
    assert command("spans", pack.folder, "abacus", "src/abacus.py", edited).code == ExitCode.REFUSED
    assert "no such" in command("spans", pack.folder, "abacus", "src/none.py", edited).err.lower()
    assert "no task is on a target" in command("spans", pack.folder, "beads", "src/abacus.py", edited).err


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("No block.\n", "0 fenced python blocks"),
        ("```python\nassert 1\n```\n\n```python\nassert 2\n```\n", "2 fenced python blocks"),
        ("```python\nassert (\n```\n", "not valid Python"),
        ("```python\nassert f(1)\nprint(2)\n```\n", "does not end with an assertion"),
        ("```python\n```\n", "does not end with an assertion"),
    ],
)
def test_a_prompt_without_one_example_is_named(pack_folder: Any, prompt: str, said: str) -> None:
    task = pack_folder.load().tasks[0]
    changed = type(task)(task.document, task.folder, prompt, task.target)
    with pytest.raises(TaskError, match=said):
        example(changed)


def test_the_example_is_the_block_alone(pack: Any) -> None:
    assert example(pack.tasks[0]) == "assert clamp(10, 1, 9) == 9\n"


@pytest.fixture
def real_pack(pack_folder: Any, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The pack with a lock that can be installed and the ids that its defect breaks."""
    monkeypatch.setenv("PAIRTRIAL_CACHE", str(tmp_path_factory.getbasetemp() / "measure-cache"))
    pack_folder.task["fail_to_pass"] = [
        "tests/test_abacus.py::test_clamp_hidden[7331-1-9-9]",
        "tests/test_abacus.py::test_clamp_inside",
    ]
    pack_folder.write()
    lock = CORE / "targets" / "toolz" / "requirements.lock"
    (pack_folder.target_folder / "requirements.lock").write_bytes(lock.read_bytes())
    prompt = pack_folder.task_folder / "prompt.md"
    prompt.write_text(prompt.read_text().replace("```python\n", "```python\nfrom abacus import clamp\n"))
    return pack_folder


@pytest.mark.registry
def test_a_task_that_is_what_it_says(command: Callable[..., Said], real_pack: Any) -> None:
    said = command("measure", real_pack.root)
    assert (said.code, said.out.split(",")[0]) == (ExitCode.OK, "abacus-clamp: 2 fail")
    assert "1 of 1 tasks are what they say" in said.err


@pytest.mark.registry
def test_every_false_statement_of_a_task_is_named(command: Callable[..., Said], real_pack: Any) -> None:
    """Too many and too few broken tests, a test that was never green, an example that shows nothing."""
    real_pack.task["fail_to_pass"] = [
        "tests/test_abacus.py::TestAbacus::test_spread",
        "tests/test_abacus.py::test_clamp_inside",
    ]
    real_pack.write_documents()
    with (real_pack.target_folder / "baseline.txt").open("a") as handle:
        handle.write("tests/test_abacus.py::test_absent\n")
    (real_pack.task_folder / "prompt.md").write_text("```python\nassert True\n```\n")
    found = json.loads(command("measure", real_pack.root, "--json").out)
    problems = "\n".join(found["tasks"][0]["problems"])
    assert found["ok"] is False
    assert "passes on the defective tree, so it shows nothing" in problems
    assert "unbroken tree: does not pass its baseline" in problems
    # With an id that nobody knows there is no grade at all; without it each id is told.
    assert "test_absent" in problems
    baseline = real_pack.target_folder / "baseline.txt"
    baseline.write_text(baseline.read_text().replace("tests/test_abacus.py::test_absent\n", ""))
    said = command("measure", real_pack.root)
    assert said.code == ExitCode.REFUSED
    assert "fail_to_pass: tests/test_abacus.py::TestAbacus::test_spread passes in spite of the defect" in said.out
    assert "test_clamp_hidden[7331-1-9-9] fails as well but is not in fail_to_pass" in said.out


def test_the_core_pack_loads() -> None:
    """Our own pack is read whole: every document, lock, baseline and prompt."""
    from pairtrial.tasks import load_pack

    pack = load_pack(CORE)
    assert len({task.target.id for task in pack.tasks}) >= 5
    assert len(pack.tasks) >= 18
    for task in pack.tasks:
        assert example(task)
