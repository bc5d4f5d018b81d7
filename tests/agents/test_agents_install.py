"""Installing agents: what is asked of a registry's client, and what happens when it hangs or fails."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from pairtrial.core.errors import EnvironmentFault
from pairtrial.harness.agents.base import ProgramSource
from pairtrial.harness.agents.install import HERE, fetch, install_command, manifests

SOURCE = {"registry": "npm", "package": "agent", "release": "1.0.0", "path": "agent", "sha256": {"any": "0" * 64}}
NPM = ProgramSource.model_validate(SOURCE)


def client(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> Path:
    """A registry's client of ours in front of the real one; gives the file in which it notes its calls."""
    calls = folder / "calls"
    program = folder / "npm"
    program.write_text(f"#!/bin/sh\necho \"$@\" >> '{calls}'\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return calls


def test_a_client_that_hangs_is_ended_and_tried_a_bounded_number_of_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = client(tmp_path, monkeypatch, "sleep 600")
    begun = time.monotonic()
    with pytest.raises(EnvironmentFault) as caught:
        fetch("agent 1.0.0", NPM, tmp_path / "new", timeout_s=0.5, tries=2)
    assert time.monotonic() - begun < 30
    assert str(caught.value).startswith(
        "agent 1.0.0: the client of npm gave no answer within 0.5 s and was ended; tried 2 times"
    )
    assert len(calls.read_text().splitlines()) == 2


def test_a_client_that_fails_once_is_tried_again_in_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, body = tmp_path / "new", '[ -e "$8/half" ] && exit 9\n'
    calls = client(tmp_path, monkeypatch, f"ls '{new}' | grep -q half && exit 9; {body}")
    mark = tmp_path / "failed"
    script = (tmp_path / "npm").read_text()
    (tmp_path / "npm").write_text(f"{script}[ -e '{mark}' ] && exit 0\ntouch '{mark}' '{new}/half'\nexit 1\n")
    fetch("agent 1.0.0", NPM, new, timeout_s=20, tries=3)
    assert len(calls.read_text().splitlines()) == 2
    assert list(new.iterdir()) == []


def test_npm_has_limits_of_its_own_below_ours() -> None:
    words = install_command(NPM, Path("folder"))
    assert "--fetch-timeout=60000" in words
    assert "--fetch-retries=1" in words
    assert "--ignore-scripts" in words


def test_packages_with_dependencies_are_installed_by_hash_only() -> None:
    source = manifests()["mini-swe-agent"].programs["2.4.6"]
    words = install_command(source, Path("folder"))
    assert {"--require-hashes", "--no-deps"} < set(words)
    text = (HERE / str(source.lock)).read_text()
    names = re.findall(r"^(\S+)==(\S+)", text, flags=re.MULTILINE)
    assert ("mini-swe-agent", "2.4.6") in names
    assert len(names) == 68
    assert all("--hash=sha256:" in block for block in re.split(r"\n(?=\S)", text.strip()))
    assert "://" not in text
