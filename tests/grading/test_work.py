"""Capture of the work: nothing that an agent does to its folder hides or loses a change."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from pairtrial.core.canonical import tree_digest
from pairtrial.core.errors import GradeError
from pairtrial.grading.work import Change, Work, WorkLimits, apply_work, capture


@pytest.fixture
def pristine(tmp_path: Path) -> Path:
    root = tmp_path / "pristine"
    (root / "pkg").mkdir(parents=True)
    (root / "pkg" / "a.py").write_text("x = 1\n")
    (root / "pkg" / "b.py").write_text("y = 2\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / ".gitignore").write_text("*.log\nbuild/\n")
    (root / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
    return root


@pytest.fixture
def workspace(pristine: Path, tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    shutil.copytree(pristine, root)
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "start")
    return root


def git(folder: Path, *arguments: str) -> None:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder.parent),
        **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "nobody"),
        **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "nobody@example.invalid"),
    }
    subprocess.run(["git", *arguments], cwd=folder, env=env, check=True, capture_output=True)


def applied(work: Work, pristine: Path, workspace: Path) -> bool:
    """The patch gives the workspace again, caches and repository left out."""
    target = pristine.parent / "applied"
    shutil.copytree(pristine, target, symlinks=True)
    apply_work(work.patch, target)
    return tree_digest(target) == tree_digest(workspace, exclude=(".git", "__pycache__"))


def test_nothing_changed_is_an_empty_patch(pristine: Path, workspace: Path) -> None:
    assert capture(pristine, workspace) == Work(b"", (), (".git",))


def test_half_committed_work_with_branch_and_index_lock(pristine: Path, workspace: Path) -> None:
    (workspace / "pkg" / "a.py").write_text("x = 10\n")
    git(workspace, "checkout", "-q", "-b", "fix")
    git(workspace, "commit", "-q", "-a", "-m", "half")
    (workspace / "pkg" / "new.py").write_text("z = 3\n")
    git(workspace, "add", "pkg/new.py")
    (workspace / "pkg" / "b.py").unlink()
    (workspace / ".git" / "index.lock").touch()
    work = capture(pristine, workspace)
    assert work.changes == (
        Change("pkg/a.py", "modified"),
        Change("pkg/b.py", "deleted"),
        Change("pkg/new.py", "added"),
    )
    assert applied(work, pristine, workspace)


def test_rename_binary_modes_links_and_ignored_files(pristine: Path, workspace: Path) -> None:
    (workspace / "pkg" / "a.py").rename(workspace / "pkg" / "moved.py")
    (workspace / "blob.bin").write_bytes(bytes(range(256)) * 10)
    (workspace / "run.sh").chmod(0o755)
    (workspace / "link").symlink_to("/etc/passwd")
    (workspace / "trace.log").write_text("ignored by git\n")
    (workspace / "build").mkdir()
    (workspace / "build" / "out.txt").write_text("ignored too\n")
    (workspace / "pkg" / "ä ö.txt").write_text("umlauts\n")
    (workspace / os.fsdecode(b"raw\xff.txt")).write_text("no UTF-8\n")
    work = capture(pristine, workspace)
    assert {(item.path, item.kind) for item in work.changes} == {
        ("pkg/a.py", "deleted"),
        ("pkg/moved.py", "added"),
        ("blob.bin", "added"),
        ("run.sh", "mode"),
        ("link", "added"),
        ("trace.log", "added"),
        ("build/out.txt", "added"),
        ("pkg/ä ö.txt", "added"),
        ("raw\\xff.txt", "added"),
    }
    assert applied(work, pristine, workspace)


def test_line_ends_survive_whatever_the_users_git_says(pristine: Path, workspace: Path) -> None:
    git(workspace, "config", "core.autocrlf", "true")
    (workspace / ".gitattributes").write_text("* text=auto eol=lf\n")
    (workspace / "dos.txt").write_bytes(b"one\r\n2\r\n")
    work = capture(pristine, workspace)
    assert b"-two\r\n+2\r\n" in work.patch
    assert applied(work, pristine, workspace)


def test_forged_size_and_time_hide_nothing(pristine: Path, workspace: Path) -> None:
    before = (workspace / "pkg" / "a.py").stat()
    (workspace / "pkg" / "a.py").write_text("x = 9\n")
    os.utime(workspace / "pkg" / "a.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    git(workspace, "update-index", "--assume-unchanged", "pkg/a.py")
    assert capture(pristine, workspace).changes == (Change("pkg/a.py", "modified"),)


def test_filters_hooks_and_replaced_repository_have_no_say(pristine: Path, workspace: Path, tmp_path: Path) -> None:
    (workspace / "pkg" / "a.py").write_text("x = 5\n")
    shutil.rmtree(workspace / ".git")
    git(workspace, "init", "-q")
    (workspace / ".git" / "config").write_text(
        f'[filter "x"]\n\tclean = "touch {tmp_path}/ran; cat"\n[core]\n\tfsmonitor = "touch {tmp_path}/ran"\n'
    )
    (workspace / ".gitattributes").write_text("* filter=x\n")
    assert {item.path for item in capture(pristine, workspace).changes} == {".gitattributes", "pkg/a.py"}
    assert not (tmp_path / "ran").exists()


def test_nested_repository_is_captured_as_files(pristine: Path, workspace: Path) -> None:
    (workspace / "sub").mkdir()
    (workspace / "sub" / "file.py").write_text("a = 1\n")
    git(workspace / "sub", "init", "-q")
    git(workspace / "sub", "add", "-A")
    git(workspace / "sub", "commit", "-q", "-m", "inner")
    work = capture(pristine, workspace)
    assert work.changes == (Change("sub/file.py", "added"),)
    assert work.ignored == (".git", "sub/.git")


def test_file_becomes_folder_and_folder_becomes_link(pristine: Path, workspace: Path) -> None:
    (workspace / "run.sh").unlink()
    (workspace / "run.sh").mkdir()
    (workspace / "run.sh" / "inner").write_text("now a folder\n")
    shutil.rmtree(workspace / "pkg")
    (workspace / "pkg").symlink_to("run.sh")
    assert applied(capture(pristine, workspace), pristine, workspace)


def test_caches_are_left_out_and_counted(pristine: Path, workspace: Path) -> None:
    (workspace / "pkg" / "__pycache__").mkdir()
    (workspace / "pkg" / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"\0")
    (workspace / "pkg" / "sneaky.pyc").write_bytes(b"\0")
    (workspace / ".pytest_cache").mkdir()
    (workspace / "target").mkdir()
    (workspace / "target" / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55\n")
    os.mkfifo(workspace / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        place = workspace / "socket"
        listener.bind(os.path.relpath(place))
        work = capture(pristine, workspace)
    assert work.patch == b""
    assert work.ignored == (
        ".git", ".pytest_cache", "pipe", "pkg/__pycache__", "pkg/sneaky.pyc", "socket", "target",
    )  # fmt: skip


def test_a_source_folder_called_target_is_no_cache(pristine: Path, workspace: Path) -> None:
    (workspace / "target").mkdir()
    (workspace / "target" / "code.py").write_text("a = 1\n")
    assert capture(pristine, workspace).changes == (Change("target/code.py", "added"),)


def test_files_of_the_harness_are_not_work_unless_edited(pristine: Path, workspace: Path) -> None:
    placed = {".mcp.json": b"{}\n", "AGENTS.md": b"hints\n"}
    for name, data in placed.items():
        (workspace / name).write_bytes(data)
    assert capture(pristine, workspace, placed=placed).changes == ()
    (workspace / "AGENTS.md").write_text("mine\n")
    assert capture(pristine, workspace, placed=placed).changes == (Change("AGENTS.md", "added"),)


def test_placed_over_a_file_of_the_target(pristine: Path, workspace: Path) -> None:
    (pristine / "AGENTS.md").write_text("theirs\n")
    (workspace / "AGENTS.md").write_text("placed\n")
    assert capture(pristine, workspace, placed={"AGENTS.md": b"placed\n"}).patch == b""


def test_a_file_made_unreadable_is_still_captured(pristine: Path, workspace: Path) -> None:
    (workspace / "pkg" / "a.py").write_text("x = 7\n")
    (workspace / "pkg" / "a.py").chmod(0)
    assert b"+x = 7\n" in capture(pristine, workspace).patch


@pytest.mark.parametrize(
    "limits",
    [WorkLimits(changes=2), WorkLimits(file_bytes=10), WorkLimits(total_bytes=20), WorkLimits(entries=5)],
)
def test_caps_raise_a_typed_error(pristine: Path, workspace: Path, limits: WorkLimits) -> None:
    for number in range(3):
        (workspace / f"big{number}.txt").write_text("x" * 11)
    with pytest.raises(GradeError) as caught:
        capture(pristine, workspace, limits=limits)
    assert caught.value.slug == "work-too-large"


def test_apply_never_writes_through_a_link_of_the_tree(pristine: Path, workspace: Path, tmp_path: Path) -> None:
    (workspace / "pkg" / "new.py").write_text("owned\n")
    patch = capture(pristine, workspace).patch
    outside = tmp_path / "outside"
    outside.mkdir()
    shutil.rmtree(pristine / "pkg")
    (pristine / "pkg").symlink_to(outside)
    with pytest.raises(GradeError, match="symbolic link"):
        apply_work(patch, pristine)
    assert list(outside.iterdir()) == []


def test_apply_never_writes_through_a_link_of_the_patch(pristine: Path, workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (workspace / "door").symlink_to(outside)
    link = capture(pristine, workspace).patch
    (workspace / "door").unlink()
    (workspace / "door").mkdir()
    (workspace / "door" / "file").write_text("owned\n")
    through = capture(pristine, workspace).patch
    with pytest.raises(GradeError, match="symbolic link"):
        apply_work(link + through, pristine)
    assert list(outside.iterdir()) == []


def test_a_patch_that_does_not_fit_changes_nothing(pristine: Path, workspace: Path) -> None:
    (workspace / "pkg" / "a.py").write_text("x = 3\n")
    (workspace / "pkg" / "b.py").write_text("y = 3\n")
    patch = capture(pristine, workspace).patch
    (pristine / "pkg" / "b.py").write_text("something else\n")
    before = tree_digest(pristine)
    with pytest.raises(GradeError, match="another content"):
        apply_work(patch, pristine)
    assert tree_digest(pristine) == before


def test_skipped_paths_stay_and_are_named(pristine: Path, workspace: Path) -> None:
    (workspace / "pkg" / "a.py").write_text("x = 3\n")
    (workspace / "conftest.py").write_text("evil\n")
    work = capture(pristine, workspace)
    assert apply_work(work.patch, pristine, skip=lambda path: path == b"conftest.py") == ("conftest.py",)
    assert not (pristine / "conftest.py").exists()
    assert (pristine / "pkg" / "a.py").read_text() == "x = 3\n"
