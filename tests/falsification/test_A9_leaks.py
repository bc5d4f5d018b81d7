"""A9: a context file, or any text beside a provider's server, that spells out the fix of a task refuses the plan."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
import yaml
from factories import plan_data
from qualify_cases import CODE, HIDDEN, TaskFolder

from pairtrial.core.errors import PlanError
from pairtrial.grading.qualify.needles import fingerprints
from pairtrial.prereg.identities import demand_qualified, read_material
from pairtrial.tasks import Task, prepare_trees
from pairtrial.tasks.leaks import leaks_in
from pairtrial.tasks.qualification import FILE, Qualification, QualificationDocument, Rounds

NAME = HIDDEN.rpartition("::")[2]


def entry(folder: TaskFolder, task: Task, **changes: object) -> Qualification:
    """What qualification finds about the sound task, without running anything."""
    trees = anyio.run(prepare_trees, task, folder.root / "cache")
    source = folder.root / "targets/abacus/source"
    rounds = Rounds(condition="as-graded", defective=3, defective_runs=3, unbroken=3, unbroken_runs=3)
    values = {
        "definition": task.digest,
        "workspace": trees.visible_digest,
        "environment": "e" * 64,
        "grader": "a" * 64,
        "conditions": "c" * 64,
        "repeat": 3,
        "sandbox": "local",
        "clock": "libfaketime",
        "rounds": (rounds,),
        "noop": "unresolved",
        "gold": "resolved",
        "visible_tests": 2,
        "example": "fails, then passes",
        "reader": "bubblewrap",
        "needles": 3,
        "fingerprints": fingerprints(source, trees.defective, trees.visible, task.defect),
    }
    return Qualification.model_validate({**values, **changes})


def experiment(tmp_path: Path, provider: dict[str, str], **tasks: object) -> Path:
    """A plan over the one task, whose provider holds these files; the task is qualified."""
    folder = TaskFolder(tmp_path / "pack")
    pack = folder.load()
    document = QualificationDocument(
        schema_="pairtrial.qualification.v1", pack="mine", tasks={"abacus-clamp": entry(folder, pack.tasks[0])}
    )
    (folder.root / FILE).write_bytes(document.to_bytes())
    beside = tmp_path / "provider"
    beside.mkdir()
    config = {
        "schema": "pairtrial.provider.v1",
        "id": "notes",
        "version": "1.0.0",
        "title": "Notes",
        "context_files": {"CLAUDE.md": "CLAUDE.md"},
    }
    (beside / "provider.yaml").write_text(yaml.safe_dump(config))
    for name, text in {"CLAUDE.md": "# Beads\n\nRun the tests before you finish.\n", **provider}.items():
        (beside / name).write_text(text)
    (tmp_path / "prompt.md").write_text("{{ task }} {{ test_command }}")
    plan = plan_data(tasks={"pack": "pack", "ids": ["abacus-clamp"], **tasks})
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    return tmp_path / "plan.yaml"


def test_A9_a_harmless_provider_is_accepted(tmp_path: Path) -> None:
    demand_qualified(read_material(experiment(tmp_path, {"server.py": "def clamp(text):\n    return text[:10]\n"})))


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("# Beads\n\n    chosen_bound = high if value > high else value\n", 3, "the source around the edit"),
        ("write `chosen_bound = high if value > high else value` there", 1, "the source around the edit"),
        ("it now says chosen_bound=value if value>high else value", 1, "the source around the edit"),
        ("one\ntwo\nThe error is in abacus.py, line 8.\n", 3, "file and line of the edit"),
        ("see src/abacus.py:8", 1, "file and line of the edit"),
        ("In clamp, `high if` has become `value if`.", 1, "the edit in clamp, before and after"),
        (f"The hidden check is {NAME}.", 1, f"hidden test {NAME}"),
        ("abacus-clamp: limit the value", 1, "the task's own id"),
    ],
)
def test_A9_context_file_spells_out_the_fix(tmp_path: Path, text: str, line: int, why: str) -> None:
    material = read_material(experiment(tmp_path, {"CLAUDE.md": text}))
    with pytest.raises(PlanError) as caught:
        demand_qualified(material)
    place = f"{tmp_path / 'provider' / 'CLAUDE.md'}:{line}: gives away task abacus-clamp: {why}"
    assert place in caught.value.message


def test_A9_a_fixture_beside_the_server(tmp_path: Path) -> None:
    material = read_material(experiment(tmp_path, {"fixture.json": '{"answer": "' + CODE.replace("\n", "\\n") + '"}'}))
    with pytest.raises(PlanError, match=r"fixture\.json:1: gives away task abacus-clamp"):
        demand_qualified(material)


def test_A9_the_whole_source_gives_every_window_away_and_ordinary_code_none(tmp_path: Path) -> None:
    folder = TaskFolder(tmp_path / "pack")
    task = folder.load().tasks[0]
    found = entry(folder, task)
    assert {leak.why for leak in leaks_in("x", CODE.encode(), [(task, found)])} == {"the source around the edit"}
    other = Path(__file__).read_text().replace("abacus", "x").replace(NAME, "x")
    assert [leak for leak in leaks_in("x", other.encode(), [(task, None)]) if "before and after" not in leak.why] == []


# ---- the gate before freezing ----------------------------------------------------------------------------------------
def test_a_task_without_qualification_refuses_the_plan(tmp_path: Path) -> None:
    plan = experiment(tmp_path, {})
    (tmp_path / "pack" / FILE).unlink()
    with pytest.raises(PlanError, match="abacus-clamp was never qualified; run `pairtrial tasks qualify"):
        demand_qualified(read_material(plan))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"definition": "d" * 64}, "has been changed since it was qualified"),
        ({"repeat": 2}, "was qualified with 2 repetition(s), 3 are needed"),
        ({"problems": ({"fault": "flaky", "text": "x differs under load"},)}, "is flaky: x differs under load"),
        ({"problems": ({"fault": "leaking", "text": "notes.txt holds x"},)}, "is leaking: notes.txt holds x"),
    ],
)
def test_an_unfit_task_needs_a_registered_exception(tmp_path: Path, changes: dict[str, object], why: str) -> None:
    plan = experiment(tmp_path, {})
    folder = TaskFolder(tmp_path / "pack")
    entries = {"abacus-clamp": entry(folder, folder.load().tasks[0], **changes)}
    document = QualificationDocument(schema_="pairtrial.qualification.v1", pack="mine", tasks=entries)
    (folder.root / FILE).write_bytes(document.to_bytes())
    with pytest.raises(PlanError) as caught:
        demand_qualified(read_material(plan))
    assert f"tasks.ids: abacus-clamp {why}; run" in caught.value.message
    value = yaml.safe_load(plan.read_text())
    value["tasks"]["exceptions"] = {"abacus-clamp": "kept to show what happens"}
    plan.write_text(yaml.safe_dump(value))
    demand_qualified(read_material(plan))
