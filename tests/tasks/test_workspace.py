"""Prepared trees: one commit and nothing else, the fix and the hidden tests nowhere, safe under every interruption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import anyio
import pytest

from pairtrial.core.canonical import tree_digest
from pairtrial.core.errors import EnvironmentFault, ExitCode, TaskError
from pairtrial.tasks import Prepared, Task, Trees, copy_workspace, prepare, prepare_trees, task_env, test_command
from pairtrial.tasks.environment import build_environment
from pairtrial.tasks.workspace import unbroken_tree

UNBROKEN = b"high if value > high"
BROKEN = b"high if value < high"
HIDDEN = (b"test_clamp_hidden", b"The sentence that nobody must read", b"SECRET_CASES", b"7331")


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"},
    )
    return done.stdout + done.stderr


def everything_in(folder: Path) -> bytes:
    """All bytes that can be read below a folder: files, git objects unpacked, and what else inflates."""
    pieces = [item.read_bytes() for item in folder.rglob("*") if item.is_file() and not item.is_symlink()]
    names = git(folder, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)", "--unordered").split()
    for name in names:
        pieces.append(git(folder, "cat-file", "-p", name).encode())
    for piece in list(pieces):
        for start in range(len(piece)):
            if piece[start : start + 1] == b"\x78":
                try:
                    pieces.append(zlib.decompressobj().decompress(piece[start:]))
                except zlib.error:
                    continue
    return b"\n".join(pieces)


@pytest.fixture
def trees(pack: Any, cache: Path) -> Trees:
    """The only task, prepared."""
    return anyio.run(prepare_trees, pack.tasks[0], cache)


@pytest.fixture
def workspace(trees: Trees, tmp_path: Path) -> Path:
    """A rollout's copy."""
    anyio.run(copy_workspace, trees, tmp_path / "workspace")
    return tmp_path / "workspace"


def test_there_is_one_commit_with_constants_for_author_and_date(workspace: Path) -> None:
    shown = git(workspace, "log", "--all", "--reflog", "--format=%an %ae %aI %cn %ce %cI %s %P|%D")
    who = "Maintainer maintainer@example.invalid 2000-01-01T00:00:00+00:00"
    assert shown.strip() == f"{who} {who} Initial import |HEAD -> main"
    assert git(workspace, "rev-list", "--all", "--count").strip() == "1"


def test_the_tree_is_clean_ignored_files_included(workspace: Path) -> None:
    assert git(workspace, "status", "--porcelain", "--ignored", "--untracked-files=all") == ""
    assert git(workspace, "diff", "HEAD") == ""
    # Without a refresh of the index: the copied stat data is good as it is.
    assert git(workspace, "diff-files") == ""
    assert "run.log" in git(workspace, "ls-files").split()


@pytest.mark.parametrize(
    "question",
    [
        ("remote", "-v"),
        ("tag", "--list"),
        ("stash", "list"),
        ("reflog", "--all"),
        ("notes", "list"),
        ("worktree", "list", "--porcelain", "-z", "--expire", "now"),
        ("fsck", "--lost-found", "--unreachable", "--no-reflogs", "--no-progress"),
        ("for-each-ref", "--exclude=refs/heads/main"),
        ("submodule", "status"),
        ("config", "--get-regexp", "^(remote|branch|url|include|alias|filter|core.hookspath)"),
    ],
)
def test_git_has_nothing_else_to_tell(workspace: Path, question: tuple[str, ...]) -> None:
    answer = git(workspace, *question)
    if question[0] == "for-each-ref":
        answer = "".join(line for line in git(workspace, "for-each-ref").splitlines() if "refs/heads/main" not in line)
    if question[0] == "worktree":
        answer = answer.partition("\0\0")[2]
    assert answer == ""


def test_the_repository_holds_no_further_file(workspace: Path) -> None:
    names = {
        item.relative_to(workspace / ".git").as_posix() for item in (workspace / ".git").rglob("*") if item.is_file()
    }
    packs = {name for name in names if name.startswith("objects/pack/pack-")}
    assert {Path(name).suffix for name in packs} <= {".pack", ".idx", ".rev"}
    assert names - packs == {"HEAD", "config", "index", "refs/heads/main", "objects/info/packs"}


def test_the_unbroken_line_is_nowhere(workspace: Path) -> None:
    found = everything_in(workspace)
    assert BROKEN in found
    assert UNBROKEN not in found


def test_the_unbroken_line_is_nowhere_in_the_prepared_cache(trees: Trees) -> None:
    found = everything_in(trees.visible) + b"".join(
        item.read_bytes() for item in trees.visible.parent.rglob("*") if item.is_file()
    )
    assert BROKEN in found
    assert UNBROKEN not in found


@pytest.mark.parametrize("text", HIDDEN)
def test_no_text_of_a_hidden_test_is_in_the_workspace(workspace: Path, trees: Trees, text: bytes) -> None:
    assert text not in everything_in(workspace)
    assert text in (trees.defective / "tests" / "test_abacus.py").read_bytes()


def test_the_visible_tests_are_still_there(workspace: Path) -> None:
    text = (workspace / "tests" / "test_abacus.py").read_text()
    assert "def test_clamp_inside" in text
    assert "def test_spread" in text


def test_files_listed_under_hide_are_gone(pack_folder: Any, cache: Path) -> None:
    pack_folder.task["hide"] = ["README.md"]
    trees = anyio.run(prepare_trees, pack_folder.load().tasks[0], cache)
    assert not (trees.visible / "README.md").exists()
    assert (trees.defective / "README.md").exists()
    assert b"Abacus\n" not in everything_in(trees.visible)


def test_the_defective_tree_is_the_unbroken_one_but_for_the_span(
    pack: Any, trees: Trees, cache: Path, tmp_path: Path
) -> None:
    anyio.run(unbroken_tree, pack.tasks[0], cache, tmp_path / "unbroken")
    code = tmp_path / "unbroken" / "src" / "abacus.py"
    assert UNBROKEN in code.read_bytes()
    code.write_bytes(code.read_bytes().replace(UNBROKEN, BROKEN))
    assert tree_digest(tmp_path / "unbroken") == trees.defective_digest == tree_digest(trees.defective)


def test_the_same_task_gives_the_same_trees_on_every_machine(pack: Any, trees: Trees, tmp_path: Path) -> None:
    other = anyio.run(prepare_trees, pack.tasks[0], tmp_path / "other-cache")
    assert (other.visible_digest, other.defective_digest, other.commit) == (
        trees.visible_digest,
        trees.defective_digest,
        trees.commit,
    )


def test_the_users_git_has_no_say(pack: Any, trees: Trees, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Templates, hooks, signing and line ends of whoever prepares the task."""
    home = tmp_path / "home"
    (home / "template" / "hooks").mkdir(parents=True)
    (home / "template" / "secret").write_text("x")
    (home / ".gitconfig").write_text(
        f"[init]\ntemplateDir = {home}/template\ndefaultBranch = odd\n[core]\nautocrlf = true\nhooksPath = {home}/hooks\n"
        "[commit]\ngpgsign = true\n[user]\nname = Somebody\n"
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Somebody")
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(home / "template"))
    other = anyio.run(prepare_trees, pack.tasks[0], tmp_path / "other-cache")
    assert other.commit == trees.commit
    assert not (other.visible / ".git" / "secret").exists()


def test_an_edit_of_the_same_size_is_seen_by_git(workspace: Path) -> None:
    code = workspace / "src" / "abacus.py"
    code.write_bytes(code.read_bytes().replace(b"value < high", b"value > high"))
    assert git(workspace, "status", "--porcelain") == " M src/abacus.py\n"
    git(workspace, "commit", "-a", "-m", "mend")
    assert git(workspace, "log", "--format=%s").split("\n")[0] == "mend"


def test_a_changed_prepared_tree_is_never_handed_out(pack: Any, trees: Trees, cache: Path, tmp_path: Path) -> None:
    (trees.visible / "src" / "abacus.py").write_bytes(b"solution = 1\n")
    with pytest.raises(EnvironmentFault) as caught:
        anyio.run(copy_workspace, trees, tmp_path / "copy")
    assert caught.value.slug == "damaged-cache"
    assert not (tmp_path / "copy").exists()
    mended = anyio.run(prepare_trees, pack.tasks[0], cache)
    assert BROKEN in (mended.visible / "src" / "abacus.py").read_bytes()


@pytest.mark.parametrize("name", ["visible/.git/objects/extra", "defective/extra", "visible/.git/hooks/pre-commit"])
def test_anything_added_to_the_cache_is_noticed(pack: Any, trees: Trees, cache: Path, name: str) -> None:
    path = trees.visible.parent / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("x")
    again = anyio.run(prepare_trees, pack.tasks[0], cache)
    assert (again.visible_digest, again.commit) == (trees.visible_digest, trees.commit)
    assert not path.exists()


def test_preparing_twice_at_once_gives_one_tree(pack: Any, cache: Path) -> None:
    found: list[Trees] = []

    async def one() -> None:
        found.append(await prepare_trees(pack.tasks[0], cache))

    async def both() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(one)
            group.start_soon(one)

    anyio.run(both)
    assert found[0] == found[1]
    assert [item.name for item in (cache / "prepared").iterdir()] == [found[0].visible.parent.name]


PREPARE = (
    "import sys, anyio; from pathlib import Path; from pairtrial.tasks import load_pack, prepare_trees;"
    "print(anyio.run(prepare_trees, load_pack(Path(sys.argv[1])).tasks[0], Path(sys.argv[2])).git_digest)"
)


def test_preparing_in_three_processes_at_once_gives_one_tree(pack: Any, cache: Path) -> None:
    argv = [sys.executable, "-c", PREPARE, str(pack.folder), str(cache)]
    running = [subprocess.Popen(argv, stdout=subprocess.PIPE) for _ in range(3)]
    said = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    # The pack file and the index differ between preparations, so equal digests mean that one was used by all.
    assert len(set(said)) == 1


def test_a_kill_in_the_middle_leaves_nothing_that_is_taken_for_whole(pack: Any, cache: Path) -> None:
    for wait in (0.3, 0.5, 0.7):
        process = subprocess.Popen(
            [sys.executable, "-c", PREPARE, str(pack.folder), str(cache)], stdout=subprocess.PIPE
        )
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    trees = anyio.run(prepare_trees, pack.tasks[0], cache)
    assert git(trees.visible, "fsck", "--strict", "--no-progress") == ""
    assert [item.name for item in (cache / "prepared").iterdir()] == [trees.visible.parent.name]


@pytest.mark.parametrize("wait", [0.02, 0.1, 0.2])
def test_a_cancelled_preparation_leaves_nothing(pack: Any, cache: Path, wait: float) -> None:
    async def cut() -> None:
        with anyio.move_on_after(wait):
            await prepare_trees(pack.tasks[0], cache)

    anyio.run(cut)
    left = [item.name for item in (cache / "prepared").glob(".*")] if (cache / "prepared").exists() else []
    assert left == []
    anyio.run(prepare_trees, pack.tasks[0], cache)


def test_a_cache_that_cannot_be_written_is_the_machines_fault(pack: Any, cache: Path) -> None:
    cache.write_text("a file")
    with pytest.raises(EnvironmentFault) as caught:
        anyio.run(prepare_trees, pack.tasks[0], cache)
    assert caught.value.exit_code == ExitCode.ENVIRONMENT
    assert caught.value.hint is not None
    assert "PAIRTRIAL_CACHE" in caught.value.hint


@pytest.mark.parametrize(
    ("change", "slug"),
    [
        (
            {"defect": [{"file": "src/abacus.py", "line": 8, "column": 25, "old": ">=", "new": "<"}]},
            "defect-does-not-apply",
        ),
        ({"defect": [{"file": "src/none.py", "line": 8, "column": 25, "old": ">", "new": "<"}]}, "defect-no-file"),
        ({"hide": ["none.txt"]}, "cannot-hide"),
    ],
)
def test_a_task_that_does_not_apply_leaves_nothing(
    pack_folder: Any, cache: Path, change: dict[str, Any], slug: str
) -> None:
    pack_folder.task.update(change)
    with pytest.raises(TaskError) as caught:
        anyio.run(prepare_trees, pack_folder.load().tasks[0], cache)
    assert caught.value.slug == slug
    assert list((cache / "prepared").iterdir()) == []


def test_a_local_source_that_changed_is_refused_although_the_trees_are_cached(
    pack: Any, trees: Trees, cache: Path
) -> None:
    (pack.tasks[0].target.folder / "source" / "README.md").write_text("changed\n")
    with pytest.raises(TaskError, match=r"source\.tree"):
        anyio.run(prepare_trees, pack.tasks[0], cache)


def test_the_command_and_its_whole_environment(pack_folder: Any, cache: Path, bare_target: Any) -> None:
    pack_folder.target["pythonpath"] = ["src", "."]
    pack_folder.target["tests"]["ignore"] = {"tests/slow.py": "slow", "tests/test_abacus.py::test_x": "clock"}
    task = pack_folder.load().tasks[0]
    assert test_command(task) == [
        "python", "-m", "pytest", "-p", "no:cacheprovider",
        "--ignore=tests/slow.py", "--deselect=tests/test_abacus.py::test_x", "tests",
    ]  # fmt: skip
    trees = anyio.run(prepare_trees, task, cache)
    environment = anyio.run(build_environment, bare_target, cache, trees.defective)
    prepared = Prepared(
        task, trees.visible, trees.visible_digest, trees.git_digest, trees.defective, trees.defective_digest,
        trees.commit, environment,
    )  # fmt: skip
    rest = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    assert task_env(task, prepared, "/w", environment="/e") == {
        "PATH": "/e/bin:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": "/w/src:/w",
        **rest,
    }
    assert task_env(task, prepared, "/w")["PATH"].startswith(f"{environment.bin}:")


def test_prepare_gives_trees_and_environment(pack: Any, cache: Path, bare_target: Any) -> None:
    task = Task(pack.tasks[0].document, pack.tasks[0].folder, pack.tasks[0].prompt, bare_target)
    prepared = anyio.run(prepare, task, cache)
    assert prepared.environment.toolchain["packages"] == ["abacus-1.0"]
    assert prepared.task is task
    assert anyio.run(prepare, task, cache) == prepared
