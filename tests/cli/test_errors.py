"""Every bad input is one clear message and a documented exit code, and leaves nothing half-written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import make_lock, plan_data, receipts_for

from pairtrial.core.errors import ExitCode
from pairtrial.core.status import Status
from pairtrial.prereg.lock import lock_path
from pairtrial.runs.store import RunStore


def pairtrial(*arguments: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pairtrial", *map(str, arguments)],
        cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, **env}, timeout=100,
    )  # fmt: skip


def write_plan(folder: Path, **changes: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "trial.yaml"
    path.write_text(yaml.safe_dump(plan_data(**changes)))
    return path


def finished_run(tmp_path: Path) -> Path:
    """A plan, its lock and a whole run beside it."""
    lock = make_lock()
    plan = tmp_path / "prereg" / "trial.yaml"
    plan.parent.mkdir()
    plan.write_text(yaml.safe_dump(plan_data()))
    lock_path(plan).write_bytes(lock.to_bytes())
    with RunStore(tmp_path / "runs", lock) as store:
        for receipt in receipts_for(lock, {"t1.treat.r1": Status.RESOLVED}):
            store.record(receipt, {})
    return plan


def test_every_problem_of_a_plan_comes_at_once(tmp_path: Path) -> None:
    plan = write_plan(tmp_path)
    done = pairtrial("check", plan, cwd=tmp_path)
    assert done.returncode == ExitCode.REFUSED
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for words in ("pack", "provider: no such provider folder", "prompt.md: cannot be read"):
        assert words in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["check", "absent.yaml"], ExitCode.REFUSED, "absent.yaml: no such file"),
        (["run", "absent.yaml"], ExitCode.REFUSED, "not frozen yet"),
        (["status", "absent.yaml"], ExitCode.REFUSED, "not frozen yet"),
        (["score", "."], ExitCode.USAGE, "not a run folder"),
        (["nonsense"], ExitCode.USAGE, "No such command"),
        (["run"], ExitCode.USAGE, "Missing argument"),
        (["run", "x.yaml", "--workers", "0"], ExitCode.USAGE, "--workers"),
    ],
)
def test_what_is_not_there(tmp_path: Path, arguments: list[str], code: ExitCode, words: str) -> None:
    done = pairtrial(*arguments, cwd=tmp_path)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_key_is_named_with_its_file(tmp_path: Path) -> None:
    done = pairtrial("check", write_plan(tmp_path, prompt_suffix="x"), cwd=tmp_path)
    assert done.returncode == ExitCode.REFUSED
    assert "trial.yaml: prompt_suffix: unknown key; remove it or correct its spelling" in done.stderr


def test_score_report_status_publish_and_verify_work_offline(tmp_path: Path) -> None:
    plan = finished_run(tmp_path)
    blind = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    first = pairtrial("score", plan, "--json", cwd=tmp_path, **blind)
    assert (first.returncode, first.stderr) == (0, "")
    assert json.loads(first.stdout)["comparisons"][0]["wins"] == 1
    (card,) = (tmp_path / "runs").glob("*/*/scorecard.json")
    assert card.read_text() == first.stdout
    assert pairtrial("score", plan, "--check", cwd=tmp_path).returncode == 0
    assert pairtrial("score", plan, "--gate", cwd=tmp_path).returncode == ExitCode.INCONCLUSIVE
    report = pairtrial("report", plan, cwd=tmp_path)
    assert report.stdout.splitlines()[-1] == f"report: runs/trial/{make_lock().plan_id[:12]}/report.md"
    assert json.loads(pairtrial("status", plan, "--json", cwd=tmp_path).stdout)["arms"]["treat"] == {
        "resolved": 1, "unresolved": 2,
    }  # fmt: skip
    card.write_text(card.read_text().replace('"wins":1', '"wins":3'))
    assert "is not what the receipts give" in pairtrial("score", plan, "--check", cwd=tmp_path).stderr


def test_a_stale_readme_is_found(tmp_path: Path) -> None:
    plan = finished_run(tmp_path)
    readme = tmp_path / "README.md"
    readme.write_text("a\n<!-- pairtrial:begin plan=trial -->\n<!-- pairtrial:end plan=trial -->\nb\n")
    stale = pairtrial("publish", plan, "--check", cwd=tmp_path)
    assert (stale.returncode, readme.read_text().count("wins")) == (ExitCode.REFUSED, 0)
    assert "stale" in stale.stderr or "is not what" in stale.stderr
    assert pairtrial("publish", plan, cwd=tmp_path).returncode == 0
    assert pairtrial("publish", plan, "--check", cwd=tmp_path).returncode == 0
    readme.write_text(readme.read_text().replace("| treat | 3 | 1 |", "| treat | 3 | 2 |"))
    assert pairtrial("publish", plan, "--check", cwd=tmp_path).returncode == ExitCode.REFUSED


def test_a_run_folder_that_cannot_be_made_is_the_machines_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    lock = make_lock()
    from pairtrial.core.errors import EnvironmentFault

    with pytest.raises(EnvironmentFault, match="cannot be written") as caught:
        RunStore(tmp_path / "file", lock)
    assert caught.value.exit_code == ExitCode.ENVIRONMENT
