"""Copying with the digest on the way: the same digest as reading the copy, and as reading the original."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pairtrial.core.canonical import tree_digest
from pairtrial.tasks.copying import copy_verified


def make(root: Path) -> None:
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "é — ü.txt").write_bytes(b"")
    (root / "a" / "run").write_bytes(b"#!/bin/sh\n")
    (root / "a" / "run").chmod(0o755)
    (root / "large").write_bytes(os.urandom(3_000_000))
    (root / "link").symlink_to("a/run")
    (root / "folder").symlink_to("a")
    (root / "lost").symlink_to("nowhere")
    (root / ".git").mkdir()
    (root / ".git" / "HEAD").write_text("x")
    os.utime(root / "a" / "run", (946684800, 946684800))


def test_the_copy_is_the_original(tmp_path: Path) -> None:
    make(tmp_path / "from")
    found = copy_verified(tmp_path / "from", tmp_path / "to")
    assert found == tree_digest(tmp_path / "from") == tree_digest(tmp_path / "to")
    assert (tmp_path / "to" / "a" / "run").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "to" / "a" / "run").stat().st_mtime == 946684800
    assert (tmp_path / "to" / "lost").readlink() == Path("nowhere")


def test_names_are_left_out_as_in_the_digest(tmp_path: Path) -> None:
    make(tmp_path / "from")
    assert copy_verified(tmp_path / "from", tmp_path / "to", exclude=(".git",)) == tree_digest(
        tmp_path / "from", exclude=(".git",)
    )
    assert not (tmp_path / "to" / ".git").exists()


def test_a_folder_that_holds_something_is_never_filled(tmp_path: Path) -> None:
    make(tmp_path / "from")
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "left").write_bytes(b"from another rollout")
    with pytest.raises(FileExistsError):
        copy_verified(tmp_path / "from", tmp_path / "to")


def test_the_copy_shares_nothing_with_the_original(tmp_path: Path) -> None:
    make(tmp_path / "from")
    copy_verified(tmp_path / "from", tmp_path / "to")
    with (tmp_path / "to" / "a" / "run").open("ab") as handle:
        handle.write(b"changed")
    assert (tmp_path / "from" / "a" / "run").read_bytes() == b"#!/bin/sh\n"


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(["a", "a.b", "a/b", "a-b", "b/c/d", "é"]), st.binary(max_size=200), max_size=5))
def test_any_small_tree(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]) -> None:
    root = tmp_path_factory.mktemp("any")
    (root / "from").mkdir()
    for name, content in files.items():
        if name == "a/b" and "a" in files:
            continue
        path = root / "from" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert copy_verified(root / "from", root / "to") == tree_digest(root / "from") == tree_digest(root / "to")
