"""The doctor says what is there, by trying it, and shows no value of any key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pairtrial.cli.doctor import doctor
from pairtrial.harness.agents.install import manifests
from pairtrial.harness.agents.programs import install_folder


def test_every_part_has_a_line_and_keys_are_names_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-made-up-value")
    done = CliRunner().invoke(doctor)
    assert done.exit_code == 0, done.output
    for word in ("local", "bubblewrap", "docker", "namespaces", "control groups", "scratch", "git", "agents", "tinker"):
        assert word in done.output
    assert "ANTHROPIC_API_KEY" in done.output and "made-up" not in done.output
    assert len(done.output.splitlines()) <= 40


def test_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-made-up-value")
    monkeypatch.setenv("PAIRTRIAL_AGENTS", str(tmp_path))
    done = CliRunner().invoke(doctor, ["--json"])
    record = json.loads(done.output)
    found = {item["name"]: item for item in record["findings"]}
    assert found["local"]["ok"] is True
    assert found["bubblewrap"]["ok"] is False and "install" in found["bubblewrap"]["fix"]
    assert found["docker"]["ok"] is False and "install" in found["docker"]["fix"]
    assert found["git"] == {"name": "git", "ok": False, "detail": "not found", "fix": "install git"}
    assert record["agents"] == ["tinker"]
    assert record["keys"] == ["OPENAI_API_KEY"]
    assert "made-up" not in done.output


def test_agents_that_are_installed_and_those_that_could_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIRTRIAL_AGENTS", str(tmp_path))
    manifest = manifests()["codex"]
    program = install_folder(manifest, "0.171.0") / manifest.programs["0.171.0"].path
    program.parent.mkdir(parents=True)
    program.touch()
    output = CliRunner().invoke(doctor).output
    assert "tinker (embedded), codex@0.171.0\n" in output
    assert "→ bash harness/install-agents.sh " in output and " gemini@0.61.0" in output


@pytest.mark.usefixtures("docker_engine")
def test_a_running_engine_is_tried() -> None:
    found = {item["name"]: item for item in json.loads(CliRunner().invoke(doctor, ["--json"]).output)["findings"]}
    assert found["docker"]["ok"] is True and "isolation container" in found["docker"]["detail"]


def test_nothing_is_left_in_temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", None)
    assert CliRunner().invoke(doctor).exit_code == 0
    assert list(tmp_path.iterdir()) == []
