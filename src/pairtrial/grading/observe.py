"""One run of a target's suite in a sandbox: lay the tree, run, read the report. Used for grading and for qualifying."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import anyio.to_thread

from pairtrial.core.canonical import tree_digest
from pairtrial.core.disk import remove_tree
from pairtrial.core.errors import EnvironmentFault, TaskError
from pairtrial.grading.frameworks import FRAMEWORKS, Framework
from pairtrial.grading.frameworks.base import Invocation, Run, Suite
from pairtrial.grading.frameworks.channel import read_frames, read_run
from pairtrial.grading.frameworks.parts import program, word
from pairtrial.grading.protect import protection, shadowed_names
from pairtrial.grading.work import apply_work
from pairtrial.sandbox.protocol import Sandbox
from pairtrial.tasks.workspace import Prepared, task_env, test_command

REPORT_CAP = 48 << 20
"""Bytes of report that one run may give; 64,000 tests need 6 MiB."""
PRINTED_KEPT = 32 << 10
"""Bytes kept from the start, and from the end, of what the runner printed."""


class Observed(NamedTuple):
    """What one run gave."""

    run: Run
    touched: tuple[str, ...]
    """Protected paths that the work changed; the pristine ones were run."""
    log: bytes
    """Start and end of what the runner printed: for people, may hold paths of this machine, never a result."""


def framework_of(prepared: Prepared) -> Framework:
    """The framework of the task's target."""
    return FRAMEWORKS[prepared.task.target.tests.framework]


Vary = Callable[[Invocation, Suite], Invocation]


async def run_suite(
    prepared: Prepared, patch: bytes, sandbox: Sandbox, *, timeout_s: float, label: str, vary: Vary | None = None
) -> Observed:
    """Run the whole suite once on the defective tree with ``patch``; whatever was in the sandbox before is removed.

    ``vary`` changes the command to run it under another condition (clock, order, load); a grading never does.
    """
    framework = framework_of(prepared)
    await sandbox.kill()
    for folder in (sandbox.workspace, sandbox.home, sandbox.tmp):
        await anyio.to_thread.run_sync(_empty, sandbox.host_path(folder), sandbox.mount_points(folder))
    await sandbox.put_tree(prepared.defective, sandbox.workspace)
    tree = sandbox.host_path(sandbox.workspace)
    await anyio.to_thread.run_sync(_check_copy, prepared, tree)
    touched = await anyio.to_thread.run_sync(partial(lay, prepared, patch, tree))
    environment = sandbox.inside_path(prepared.environment.root)
    await anyio.to_thread.run_sync(partial(link_modules, prepared, environment, tree))
    suite = Suite(
        workspace=sandbox.workspace,
        tools=f"{sandbox.tmp}/{word()}",
        tree=tree,
        env=task_env(prepared.task, prepared, sandbox.workspace, environment=environment),
        command=tuple(test_command(prepared.task)),
        required=prepared.task.fail_to_pass,
        own=frozenset(own_names(prepared)),
    )
    invocation = framework.invocation(suite)
    if vary is not None:
        invocation = vary(invocation, suite)
    for folder, files in ((suite.workspace, invocation.files), (suite.tools, invocation.tools)):
        for name, data in files.items():
            await sandbox.put_file(f"{folder}/{name}", data)
    before = await anyio.to_thread.run_sync(_digests, tree, test_paths(prepared))
    run, log = await _execute(sandbox, invocation, timeout_s, label)
    await sandbox.kill()
    after = await anyio.to_thread.run_sync(_digests, tree, test_paths(prepared))
    written = sorted(name for name, digest in before.items() if after.get(name) != digest)
    run = replace(run, patched=tuple(dict.fromkeys((*run.patched, *written[:20]))))
    return Observed(run, touched, log)


async def _execute(sandbox: Sandbox, invocation: Invocation, timeout_s: float, label: str) -> tuple[Run, bytes]:
    """Start the supervisor, read its frames."""
    seal = secrets.token_bytes(32)
    config = {
        "argv": list(invocation.argv),
        "env": dict(invocation.env),
        "cwd": sandbox.workspace,
        "gift": invocation.gift,
        "seal": seal.hex(),
        "cap": REPORT_CAP,
        "keep": PRINTED_KEPT,
    }
    result = await sandbox.exec(
        ["python", "-I", "-S", "-c", program("supervisor.py")],
        env=invocation.env,
        cwd=sandbox.workspace,
        stdin=json.dumps(config).encode(),
        timeout_s=timeout_s,
        output_cap=REPORT_CAP + (16 << 20),
    )
    frames = read_frames(result.stdout, seal)
    end = frames.end or {}
    limit: str | None = "memory" if result.oom else result.limit or ("wall" if result.timed_out else None)
    if limit is None and (result.truncated or end.get("truncated")):
        limit = "output"
    run = Run(
        label=label,
        exit_code=end.get("exit"),
        signal=end.get("signal"),
        limit=limit,
        seal="whole" if frames.sealed else "broken" if result.exit_code == 0 else "absent",
        chained=False,
        ended=False,
    )
    return read_run(run, invocation, frames.report), frames.printed + result.stderr[-4096:]


def lay(prepared: Prepared, patch: bytes, workspace: Path) -> tuple[str, ...]:
    """Apply the work to a copy of the defective tree; gives the protected paths that stay pristine."""
    task, document = prepared.task, prepared.task.target.document
    mended = {span.file for span in task.defect}
    is_protected = protection(
        pristine=prepared.defective,
        test_paths=test_paths(prepared),
        extra=document.protected,
        pythonpath=document.pythonpath,
        shadowed=shadowed_names(site_packages(prepared)),
    )
    for file in sorted(mended):
        if is_protected(file.encode()):
            raise TaskError(
                f"{task.id}: defect: {file} is a protected path, so no fix of it could ever count",
                hint="choose another place for the defect, or another target",
                slug="defect-protected",
            )
    return apply_work(patch, workspace, skip=is_protected)


def test_paths(prepared: Prepared) -> list[str]:
    """The target's own test files and folders, below the workspace."""
    task = prepared.task
    mended = {span.file for span in task.defect}
    framework = framework_of(prepared)
    files = {framework.file_of(item) for item in (*task.fail_to_pass, *task.pass_to_pass)}
    tests = {*task.target.tests.paths, *task.document.hide, *(file for file in files if file is not None)}
    # A path that is collected for its doctests is source, not test: there the work must count.
    return sorted(path for path in tests if not any(file == path or file.startswith(path + "/") for file in mended))


def _digests(tree: Path, paths: Iterable[str]) -> Mapping[str, bytes]:
    """Digest of every file at or below some paths: a suite may leave new files, but what it is made of stays."""
    places = [tree / path for path in paths if path.strip("/") not in ("", ".") and "*" not in path]
    files = {
        file for place in places for file in (place, *place.rglob("*")) if file.is_file() and not file.is_symlink()
    }
    return {
        file.relative_to(tree).as_posix(): hashlib.blake2b(file.read_bytes(), digest_size=16).digest() for file in files
    }


def link_modules(prepared: Prepared, environment: str, tree: Path) -> None:
    """Node looks for packages in a folder above the importing file, never on a search path."""
    if (prepared.environment.root / "node_modules").is_dir() and not (tree / "node_modules").exists():
        (tree / "node_modules").symlink_to(f"{environment}/node_modules")


def own_names(prepared: Prepared) -> Iterable[str]:
    """Top names that the target itself provides although the environment has them too (pluggy under pytest)."""
    provided: set[str] = set()
    for folder in prepared.task.target.document.pythonpath:
        root = prepared.defective / folder
        if root.is_dir():
            provided |= {entry.name.removesuffix(".py") for entry in root.iterdir()}
    installed = {entry.name.removesuffix(".py") for site in site_packages(prepared) for entry in site.iterdir()}
    return {name for name in provided & installed if name.isidentifier()}


def site_packages(prepared: Prepared) -> list[Path]:
    """The ``site-packages`` folders of the environment."""
    return sorted(prepared.environment.root.glob("lib/python*/site-packages"))


def _check_copy(prepared: Prepared, workspace: Path) -> None:
    """Whoever wrote into the cache since it was made (a test of an earlier grading, say) must not decide this one."""
    if tree_digest(workspace) != prepared.defective_digest:
        raise EnvironmentFault(
            f"{prepared.defective}: the prepared tree has been changed since it was made",
            hint="remove the folder; it is prepared again",
            slug="damaged-cache",
        )


def _empty(folder: Path, keep: frozenset[str]) -> None:
    """Remove all but what leads to a mount: without its folder on the host a container loses the mount itself."""
    for entry in folder.iterdir():
        if entry.name not in keep:
            remove_tree(entry)
