"""Who made a work tree, and when its maker is provably dead."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

from pairtrial.sandbox.owner import current_owner, make_folder, read_owner, start_time


def test_a_living_owner_is_not_dead() -> None:
    assert not current_owner().provably_dead


def test_a_reused_process_number_is_dead() -> None:
    assert replace(current_owner(), start="1").provably_dead


def test_an_ended_process_is_dead() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert start_time(child.pid) is None
    assert replace(current_owner(), pid=child.pid, start="5").provably_dead


def test_an_earlier_start_of_the_machine_is_dead() -> None:
    assert replace(current_owner(), boot="another").provably_dead


def test_another_machine_or_number_space_proves_nothing() -> None:
    assert not replace(current_owner(), host="another", boot="another", start="1").provably_dead
    assert not replace(current_owner(), space="pid:[1]", start="1").provably_dead


def test_a_folder_tells_its_owner_and_hides_its_label(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, {"label": "task/bm25/1", "experiment": "demo", "kind": "local"})
    assert len(folder.name) == 18 and "bm25" not in folder.name
    got = read_owner(folder)
    assert got is not None
    assert got[0] == current_owner() and got[0].pid == os.getpid()
    assert got[1]["label"] == "task/bm25/1"


def test_a_folder_without_or_with_a_broken_owner_file_proves_nothing(tmp_path: Path) -> None:
    assert read_owner(tmp_path) is None
    (tmp_path / "owner.json").write_text("{")
    assert read_owner(tmp_path) is None
    (tmp_path / "owner.json").write_text('{"owner": {"pid": 1}, "labels": {}}')
    assert read_owner(tmp_path) is None
