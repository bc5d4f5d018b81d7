"""Crash-safe writing: the old state or the new one, and write-once folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from pairtrial.core.disk import publish_folder, remove_tree, write_atomic
from pairtrial.core.errors import EnvironmentFault


def test_a_file_is_replaced_and_nothing_else_stays(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    write_atomic(path, b"one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert [item.name for item in path.parent.iterdir()] == ["file"]


def test_a_folder_where_a_file_should_go_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(EnvironmentFault, match="cannot be written"):
        write_atomic(tmp_path / "file", b"x")
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


def test_a_published_folder_is_never_replaced(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text(name)
    publish_folder(tmp_path / "first", tmp_path / "final")
    with pytest.raises(EnvironmentFault, match="write-once"):
        publish_folder(tmp_path / "second", tmp_path / "final")
    assert (tmp_path / "final" / "f").read_text() == "first"


def test_a_tree_with_locked_folders_is_removed(tmp_path: Path) -> None:
    inner = tmp_path / "tree" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    inner.chmod(0o500)
    (tmp_path / "tree").chmod(0o500)
    remove_tree(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
