"""`pairtrial tasks qualify` as a user meets it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from parts import require_part
from qualify_cases import TaskFolder

from pairtrial.cli.main import main
from pairtrial.core.errors import ExitCode
from pairtrial.harness.runtime import runtime_identity
from pairtrial.tasks import load_pack
from pairtrial.tasks.qualification import FILE, read_qualifications, why_unqualified

CORE = Path(__file__).resolve().parents[2] / "tasks" / "core"


def test_the_core_pack_is_qualified_as_it_stands() -> None:
    """Every task has an entry for its present definition and the present runtime, and nothing is wrong with any."""
    pack = load_pack(CORE)
    found = read_qualifications(pack)
    assert set(found) == {task.id for task in pack.tasks}
    unfit = {task.id: found[task.id].verdict for task in pack.tasks if why_unqualified(task, found[task.id])}
    assert unfit == {}
    assert {entry.runtime for entry in found.values()} == {runtime_identity()}


SAMPLE = ("toolz-memoize-keyword-values", "markdown-it-switch-rules-later", "fraction-round-to-half")
"""Two in Python, one of a package that many programs need, and one in JavaScript; the whole pack takes half an hour."""


@pytest.mark.registry
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_sample_of_the_core_pack_qualifies_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    require_part("node")
    shutil.copytree(CORE, tmp_path / "core")
    (tmp_path / "core" / FILE).unlink()
    monkeypatch.setenv("PAIRTRIAL_CACHE", str(tmp_path / "cache"))
    chosen = [word for name in SAMPLE for word in ("--task", name)]
    with pytest.raises(SystemExit) as caught:
        main(["tasks", "qualify", str(tmp_path / "core"), "--json", *chosen])
    tasks = json.loads(capsys.readouterr().out)["tasks"]
    assert {name: (task["verdict"], task["problems"]) for name, task in tasks.items()} == dict.fromkeys(
        SAMPLE, ("qualified", [])
    )
    assert int(str(caught.value.code)) == ExitCode.OK
    for task in tasks.values():
        assert task["noop"] == "unresolved" and task["gold"] == "resolved"
        assert all(r["defective"] == r["defective_runs"] >= 1 for r in task["rounds"])


@pytest.mark.registry
@pytest.mark.slow
def test_a_pack_is_qualified_and_taken_from_the_cache_the_second_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIRTRIAL_CACHE", str(tmp_path / "cache"))
    folder = TaskFolder(tmp_path / "pack")
    folder.load()
    shutil.copy(CORE / "targets/toolz/requirements.lock", folder.root / "targets/abacus")

    def qualify(*options: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(["tasks", "qualify", str(folder.root), "--sandbox", "local", *options])
        out, err = capsys.readouterr()
        return int(str(caught.value.code)), out, err

    code, out, err = qualify("--repeat", "1")
    assert (code, err.splitlines()[-1]) == (ExitCode.REFUSED, "0 of 1 tasks qualify")
    assert out.splitlines()[-1] == "abacus-clamp: too-few-repetitions: 1 repetition(s); 3 are needed"
    written = (folder.root / FILE).read_bytes()
    code, out, _ = qualify("--repeat", "1", "--check")
    assert (code, "cached" in out) == (ExitCode.REFUSED, True)
    assert (folder.root / FILE).read_bytes() == written
    code, out, _ = qualify("--repeat", "1", "--json")
    record = json.loads(out)
    assert (record["ok"], record["tasks"]["abacus-clamp"]["verdict"]) == (False, "too-few-repetitions")
    code, _, err = qualify("--task", "absent")
    assert (code, "no task 'absent'" in err) == (ExitCode.REFUSED, True)
