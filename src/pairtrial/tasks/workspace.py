"""From a task to the trees that agents and graders get.

``defective`` is the target with the defect in it and all its tests, for grading. ``visible`` is the same without the
hidden tests, as a git repository with exactly one commit: author, date and message are constants, and there is no
other object, reference, reflog, remote, tag, hook or template from which the fix could be read.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread

from pairtrial.core.canonical import digest_json, tree_digest, walk_tree
from pairtrial.core.disk import remove_tree, write_atomic
from pairtrial.core.errors import EnvironmentFault, TaskError
from pairtrial.sandbox.process import run
from pairtrial.tasks.copying import copy_verified
from pairtrial.tasks.defects import apply_defect
from pairtrial.tasks.environment import Environment, build_environment
from pairtrial.tasks.hiding import cut_lines, hide_files, hide_other_tests, hide_tests
from pairtrial.tasks.locking import kept, publish
from pairtrial.tasks.model import Framework, Toolchain
from pairtrial.tasks.pack import Task
from pairtrial.tasks.sources import source_for

RECORD = "prepared.json"
_FORMAT = 1
_GIT_TIMEOUT_S = 300.0
COMMIT_DATE = 946684800
"""2000-01-01T00:00:00Z: date of the commit and of every file, so that neither tells when a task was prepared."""
_IDENTITY = ("Maintainer", "maintainer@example.invalid")
_MESSAGE = "Initial import"
_EXCLUDED = {Toolchain.NODE: "/node_modules\n", Toolchain.RUST: "/target\n/Cargo.lock\n"}
"""What a toolchain puts into a workspace beside the work; ``git status`` does not show it."""
# Files are copied for every rollout: only size and whole seconds of the time may decide that one is unchanged, else
# the first `git status` of every rollout would read the whole tree. An edit gets today's time and is always seen.
_GIT_CONFIG = f"""[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
\tcheckStat = minimal
\ttrustctime = false
[user]
\tname = {_IDENTITY[0]}
\temail = {_IDENTITY[1]}
[gc]
\tauto = 0
[maintenance]
\tauto = false
"""


@dataclass(frozen=True, slots=True)
class Trees:
    """The prepared trees of a task; they lie in the cache and must not be written to."""

    task: Task
    visible: Path
    """Git repository with one commit, without the hidden tests."""
    visible_digest: str
    """Tree digest of ``visible`` without ``.git``: the same on every machine."""
    git_digest: str
    """Tree digest of ``visible/.git``: of this preparation only."""
    defective: Path
    """Same tree with all original tests and no ``.git``."""
    defective_digest: str
    commit: str
    """Id of the one commit: the same on every machine."""


@dataclass(frozen=True, slots=True)
class Prepared(Trees):
    """What `prepare` made: trees and environment."""

    environment: Environment


async def prepare(task: Task, cache: Path) -> Prepared:
    """Everything that a rollout or a grading of ``task`` needs, from the cache or made now.

    Safe when several processes do it at once; what was killed half-way is built again. Reads all that it finds in
    the cache to verify it, so call it once a task and run.
    """
    trees = await prepare_trees(task, cache)
    environment = await build_environment(task.target, cache, trees.defective)
    return Prepared(**{item.name: getattr(trees, item.name) for item in fields(trees)}, environment=environment)


async def prepare_trees(task: Task, cache: Path) -> Trees:
    """As `prepare`, without the environment: enough to read or to copy a task."""
    source = source_for(task.target)
    await source.check()
    key = digest_json({"format": _FORMAT, "source": source.digest(), **_ingredients(task)})
    final = cache / "prepared" / key[:32]
    record = await kept(cache, "prepared", final, _load, partial(_build, task, cache))
    return Trees(
        task=task,
        visible=final / "visible",
        visible_digest=record["visible"],
        git_digest=record["git"],
        defective=final / "defective",
        defective_digest=record["defective"],
        commit=record["commit"],
    )


async def unbroken_tree(task: Task, cache: Path, target: Path) -> None:
    """The target as upstream made it, in the new folder ``target``.

    Only for qualifying tasks, outside of any rollout: no unpacked copy of it is ever kept in the cache.
    """
    await source_for(task.target).materialise(cache, target)


async def copy_workspace(prepared: Trees, target: Path) -> None:
    """Copy the visible tree with its repository to the new folder ``target``; its digest is checked on the way."""
    await anyio.to_thread.run_sync(_copy_workspace, prepared, target)


def _copy_workspace(prepared: Trees, target: Path) -> None:
    found = copy_verified(prepared.visible, target, exclude=(".git",))
    git = copy_verified(prepared.visible / ".git", target / ".git")
    if found != prepared.visible_digest or git != prepared.git_digest:
        remove_tree(target)
        raise EnvironmentFault(
            f"{prepared.visible}: the prepared tree has been changed since it was made",
            hint="remove the folder; it is prepared again",
            slug="damaged-cache",
        )


def task_env(task: Task, prepared: Prepared, workspace: str, *, environment: str | None = None) -> dict[str, str]:
    """The whole environment of a command in the workspace.

    ``workspace`` and ``environment`` are the absolute paths as the command sees them; the latter defaults to where
    the environment lies on this machine.
    """
    root = environment if environment is not None else os.fspath(prepared.environment.root)
    folders = [workspace if item == "." else f"{workspace}/{item}" for item in task.target.document.pythonpath]
    return {
        "PATH": os.pathsep.join([f"{root}/bin", "/usr/local/bin", "/usr/bin", "/bin"]),
        "PYTHONPATH": os.pathsep.join(folders),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        **_SETTINGS.get(task.target.document.environment.kind, {}),
    }


_SETTINGS: Mapping[Toolchain, Mapping[str, str]] = {
    Toolchain.NODE: {"npm_config_offline": "true", "npm_config_update_notifier": "false"},
    Toolchain.GO: {"GOPROXY": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false", "GOTELEMETRY": "off"},
    Toolchain.RUST: {"CARGO_NET_OFFLINE": "true", "CARGO_TERM_COLOR": "never"},
}
"""Settings of a toolchain: it downloads nothing, neither packages nor itself."""


_COMMANDS: Mapping[Framework, tuple[tuple[str, ...], str | None, bool]] = {
    Framework.PYTEST: (("python", "-m", "pytest"), "--ignore", True),
    Framework.UNITTEST: (("python", "-m", "unittest"), None, False),
    Framework.NODE_TEST: (("node", "--test"), None, True),
    Framework.VITEST: (("node", "node_modules/vitest/vitest.mjs", "run"), "--exclude", True),
    Framework.JEST: (("node", "node_modules/jest/bin/jest.js"), "--testPathIgnorePatterns", True),
    Framework.MOCHA: (("node", "node_modules/mocha/bin/mocha.js"), "--ignore", True),
    Framework.GO_TEST: (("go", "test"), None, True),
    Framework.CARGO_TEST: (("cargo", "test"), None, False),
}
"""How a framework's command starts, its option to leave a file out, and whether ``paths`` end it (else its arguments
say what to run, and ``paths`` only say what belongs to the tests)."""


def test_command(task: Task) -> list[str]:
    """The command that runs the target's tests, from the root of the workspace."""
    tests = task.target.tests
    start, option, takes_paths = _COMMANDS[tests.framework]
    left_out = []
    if tests.framework is Framework.PYTEST:
        left_out = [f"--deselect={item}" if "::" in item else f"--ignore={item}" for item in tests.ignore]
    elif option is not None:
        left_out = [f"{option}={item}" for item in tests.ignore]
    return [*start, *tests.args, *left_out, *(tests.paths if takes_paths else ())]


test_command.__test__ = False  # type: ignore[attr-defined]  # the name is no test of ours


def _ingredients(task: Task) -> dict[str, Any]:
    """What the trees depend on, beside the source: not the title, the prompt or the environment."""
    return {
        "defect": [span.model_dump(mode="json") for span in task.defect],
        "fail_to_pass": list(task.fail_to_pass),
        "baseline": digest_json(list(task.target.baseline)),
        "hide": list(task.document.hide),
        **({"cut": [item.model_dump(mode="json") for item in task.document.cut]} if task.document.cut else {}),
        **({"excluded": excluded} if (excluded := _EXCLUDED.get(task.target.document.environment.kind)) else {}),
    }


def _load(final: Path) -> dict[str, str] | None:
    """The record of a prepared task whose trees are still what they were; None means: make it again."""
    try:
        record = json.loads((final / RECORD).read_bytes())
        whole = (
            tree_digest(final / "visible", exclude=(".git",)) == record["visible"]
            and tree_digest(final / "visible" / ".git") == record["git"]
            and tree_digest(final / "defective") == record["defective"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record if whole else None


async def _build(task: Task, cache: Path, building: Path, final: Path) -> dict[str, str]:
    root = building / "prepared"
    root.mkdir()
    defective, visible = root / "defective", root / "visible"
    await source_for(task.target).materialise(cache, defective)
    await anyio.to_thread.run_sync(_fold, task, defective, visible)
    commit = await _commit(visible)
    if excluded := _EXCLUDED.get(task.target.document.environment.kind):
        (visible / ".git" / "info").mkdir()
        (visible / ".git" / "info" / "exclude").write_text(excluded, encoding="utf-8")
    record = await anyio.to_thread.run_sync(_describe, defective, visible, commit)
    write_atomic(root / RECORD, json.dumps(record, indent=1, sort_keys=True).encode())
    await anyio.to_thread.run_sync(publish, root, final)
    return record


def _fold(task: Task, defective: Path, visible: Path) -> None:
    apply_defect(defective, task.defect, task=task.id)
    shutil.copytree(defective, visible, symlinks=True)
    _hide(task, visible)
    for root in (defective, visible):
        _drop_empty_folders(root)
        for entry in walk_tree(root):
            os.utime(entry.source, (COMMIT_DATE, COMMIT_DATE), follow_symlinks=False)


def _hide(task: Task, visible: Path) -> None:
    framework, document = task.target.tests.framework, task.document
    if framework in (Framework.PYTEST, Framework.UNITTEST):
        hide_tests(visible, task.fail_to_pass, task.pass_to_pass, task=task.id)
    else:
        handled = [item.file for item in document.cut] + list(document.hide)
        by_file = framework not in (Framework.GO_TEST, Framework.CARGO_TEST)
        if not by_file and not handled:
            raise TaskError(
                f"{task.id}: nothing hides the tests of fail_to_pass",
                hint=f"{framework.value} ids name no file: say under 'cut' or 'hide' what the agent must not see",
                slug="cannot-hide",
            )
        if by_file:
            hide_other_tests(visible, task.fail_to_pass, handled, task=task.id)
    cut_lines(visible, document.cut, task=task.id)
    hide_files(visible, document.hide, task=task.id)


def _drop_empty_folders(root: Path) -> None:
    """Git keeps no empty folder, and no digest sees one."""
    for folder, _, _ in os.walk(root, topdown=False):
        if folder != os.fspath(root) and not os.listdir(folder):  # noqa: PTH208 - os.walk gives strings
            Path(folder).rmdir()


def _describe(defective: Path, visible: Path, commit: str) -> dict[str, str]:
    return {
        "visible": tree_digest(visible, exclude=(".git",)),
        "git": tree_digest(visible / ".git"),
        "defective": tree_digest(defective),
        "commit": commit,
    }


async def _commit(visible: Path) -> str:
    """Make the one commit by plumbing, so that no reflog, hook or editor message ever exists."""
    await _git(visible, ["init", "--quiet", "--template=", "--initial-branch=main"])
    (visible / ".git" / "config").write_text(_GIT_CONFIG, encoding="utf-8")
    # --force: what the target's own .gitignore names is part of its source distribution.
    await _git(visible, ["add", "--all", "--force", "--", "."])
    tree = await _git(visible, ["write-tree"])
    commit = await _git(visible, ["commit-tree", tree, "-m", _MESSAGE])
    await _git(visible, ["update-ref", "refs/heads/main", commit])
    await _git(visible, ["repack", "-a", "-d", "-q", "--threads=1"])
    await anyio.to_thread.run_sync(_tidy_repository, visible / ".git")
    await _git(visible, ["fsck", "--strict", "--no-progress"])
    if await _git(visible, ["status", "--porcelain", "--ignored", "--untracked-files=all"]):
        raise TaskError(f"{visible}: the prepared tree is not clean", slug="dirty-workspace")
    return commit


def _tidy_repository(git: Path) -> None:
    for name in ("logs", "hooks", "branches", "description", "COMMIT_EDITMSG", "ORIG_HEAD", "info"):
        remove_tree(git / name)


async def _git(folder: Path, arguments: Sequence[str]) -> str:
    options = ["-c", "core.logAllRefUpdates=false", "-c", "core.autocrlf=false", "-c", "core.safecrlf=false"]
    done = await run(["git", *options, *arguments], cwd=folder, env=_git_environment(folder), timeout_s=_GIT_TIMEOUT_S)
    if done.exit_code == 127:
        raise EnvironmentFault("git cannot be started", hint="install git", slug="no-git")
    if done.exit_code != 0:
        said = " ".join(done.stderr.decode(errors="replace").split())[-500:]
        raise EnvironmentFault(f"git {arguments[0]} failed while preparing: {said}", slug="git-failed")
    return done.stdout.decode(errors="replace").strip()


def _git_environment(folder: Path) -> Mapping[str, str]:
    """Nothing of the user's git (templates, signing, hooks, line ends) may reach the commit."""
    name, mail = _IDENTITY
    date = f"{COMMIT_DATE} +0000"
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.fspath(folder),
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": os.fspath(folder.parent),
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": mail,
        "GIT_AUTHOR_DATE": date,
        "GIT_COMMITTER_NAME": name,
        "GIT_COMMITTER_EMAIL": mail,
        "GIT_COMMITTER_DATE": date,
    }
