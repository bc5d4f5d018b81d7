"""Trees shaped by somebody hostile: copied within bounds, never followed, always removed."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from pairtrial.core.errors import SandboxError
from pairtrial.sandbox import trees


def copy(source: Path, target: Path, **options: object) -> tuple[str, ...]:
    target.mkdir()
    with trees.opened(target) as folder:
        return trees.copy_tree(source, folder, **options)  # type: ignore[arg-type]


def deep(base: Path, levels: int) -> None:
    """A chain of folders far longer than any path may be."""
    base.mkdir()
    here = os.open(base, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d" * 20, dir_fd=here)
        below = os.open("d" * 20, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


def test_a_copy_keeps_bytes_modes_times_and_links(tmp_path: Path) -> None:
    source = tmp_path / "a"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "x").write_bytes(b"1" * 100_001)
    (source / "sub" / "x").chmod(0o751)
    os.utime(source / "sub" / "x", ns=(5, 1_700_000_000_123_456_789))
    (source / "out").symlink_to("/etc/passwd")
    (source / "empty").mkdir()
    assert copy(source, tmp_path / "b") == ()
    made = (tmp_path / "b" / "sub" / "x").stat()
    assert stat.S_IMODE(made.st_mode) == 0o751 and made.st_mtime_ns == 1_700_000_000_123_456_789
    assert (tmp_path / "b" / "sub" / "x").read_bytes() == b"1" * 100_001
    assert (tmp_path / "b" / "out").readlink() == Path("/etc/passwd")
    assert (tmp_path / "b" / "empty").is_dir()


def test_set_id_bits_are_not_copied(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").touch()
    (tmp_path / "a" / "x").chmod(0o6755)
    copy(tmp_path / "a", tmp_path / "b")
    assert stat.S_IMODE((tmp_path / "b" / "x").stat().st_mode) == 0o755


def test_devices_sockets_and_pipes_are_refused_or_listed(tmp_path: Path) -> None:
    source = tmp_path / "a"
    source.mkdir()
    os.mkfifo(source / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(source / "sock"))
    with pytest.raises(SandboxError, match="neither file"):
        copy(source, tmp_path / "b")
    assert sorted(copy(source, tmp_path / "c", special="skip")) == ["pipe", "sock"]


def test_a_sparse_file_of_a_terabyte_is_refused_by_its_size(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with (tmp_path / "a" / "huge").open("wb") as handle:
        handle.truncate(1 << 40)
    with pytest.raises(SandboxError, match="more than 1000 bytes"):
        copy(tmp_path / "a", tmp_path / "b", max_bytes=1000)


def test_a_tree_that_is_too_deep_is_refused_and_removed(tmp_path: Path) -> None:
    deep(tmp_path / "a", 3000)
    with pytest.raises(SandboxError, match="folders deep"):
        copy(tmp_path / "a", tmp_path / "b")
    trees.remove_tree(tmp_path / "a")
    trees.remove_tree(tmp_path / "b")
    assert list(tmp_path.iterdir()) == []


def test_removing_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "f").touch()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "link").symlink_to(tmp_path / "kept")
    deep(tmp_path / "a" / "deep", 2000)
    trees.remove_tree(tmp_path / "a")
    trees.remove_tree(tmp_path / "never-was")
    assert (tmp_path / "kept" / "f").exists() and not (tmp_path / "a").exists()


def test_writing_below_a_planted_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "sub").symlink_to(tmp_path / "host")
    with (
        pytest.raises(SandboxError, match="link"),
        trees.descend(tmp_path / "w", ("sub",), create=True) as folder,
    ):
        trees.write_file(folder, "x", b"1", mode=0o644)
    assert list((tmp_path / "host").iterdir()) == []


def test_writing_over_a_planted_link_replaces_the_link(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("kept")
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "x").symlink_to(tmp_path / "secret")
    with trees.descend(tmp_path / "w", (), create=True) as folder:
        trees.write_file(folder, "x", b"new", mode=0o644)
    assert (tmp_path / "secret").read_text() == "kept"
    assert (tmp_path / "w" / "x").read_text() == "new" and not (tmp_path / "w" / "x").is_symlink()


def test_copying_over_planted_links_and_hard_links_leaves_their_targets(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("kept")
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    target.mkdir()
    (source / "soft").write_text("new")
    (source / "hard").write_text("new")
    (target / "soft").symlink_to(tmp_path / "secret")
    (target / "hard").hardlink_to(tmp_path / "secret")
    with trees.opened(target) as folder:
        trees.copy_tree(source, folder)
    assert (tmp_path / "secret").read_text() == "kept"
    assert (target / "soft").read_text() == (target / "hard").read_text() == "new"


def test_copying_into_a_planted_folder_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "a" / "d").mkdir(parents=True)
    (tmp_path / "a" / "d" / "f").touch()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "d").symlink_to(tmp_path / "host")
    with pytest.raises(OSError), trees.opened(tmp_path / "b") as folder:
        trees.copy_tree(tmp_path / "a", folder)
    assert list((tmp_path / "host").iterdir()) == []
