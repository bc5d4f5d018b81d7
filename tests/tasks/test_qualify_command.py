"""`pairtrial tasks qualify` as a user meets it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from qualify_cases import TaskFolder

from pairtrial.cli.main import main
from pairtrial.core.errors import ExitCode
from pairtrial.tasks import load_pack
from pairtrial.tasks.qualification import FILE, read_qualifications, why_unqualified

CORE = Path(__file__).resolve().parents[2] / "tasks" / "core"


def test_the_core_pack_is_qualified_as_it_stands() -> None:
    """Every task has an entry for its present definition; what is wrong with a task is that it leaks, never a flake."""
    pack = load_pack(CORE)
    found = read_qualifications(pack)
    assert set(found) == {task.id for task in pack.tasks}
    unfit = {task.id: found[task.id].verdict for task in pack.tasks if why_unqualified(task, found[task.id])}
    assert unfit == {
        "click-arguments-after-variadic": "leaking",
        "click-short-help-last-word": "leaking",
        "markdown-it-switch-rules-later": "leaking",
    }


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
