"""One builder at a time: a lock file for everything that is put into the cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from pairtrial.core.disk import remove_tree
from pairtrial.core.errors import EnvironmentFault

_POLL_S = 0.05
_T = TypeVar("_T")


@asynccontextmanager
async def locked(cache: Path, name: str) -> AsyncIterator[None]:
    """Hold the lock ``name`` of the cache; other tasks, threads and processes wait.

    The kernel gives the lock back when its holder dies, so there is no stale lock to clean up.
    """
    folder = make_folder(cache / "locks")
    try:
        descriptor = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as fault:
        raise _unwritable(folder, fault) from fault
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await anyio.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


async def kept(
    cache: Path, kind: str, final: Path, load: Callable[[Path], _T | None], build: Callable[[Path, Path], Awaitable[_T]]
) -> _T:
    """What ``load`` finds at ``final``, else what ``build`` puts there; one builder at a time, the others wait for it.

    ``build`` gets a fresh folder beside ``final``, which is removed in the end, and ``final``, to which it renames what
    is whole.
    """
    found = await anyio.to_thread.run_sync(load, final)
    if found is not None:
        return found
    async with locked(cache, f"{kind}-{final.name}"):
        found = await anyio.to_thread.run_sync(load, final)
        if found is not None:
            return found
        building = await anyio.to_thread.run_sync(_building_folder, final)
        try:
            return await build(building, final)
        finally:
            await _discard(building)


def present(path: Path) -> Path | None:
    """``path`` where it exists: the ``load`` of what has no record to check it by."""
    return path if path.exists() else None


def publish(root: Path, final: Path) -> None:
    """Give what was built its name in the cache."""
    if final.exists():
        # Whatever is there could not be loaded: half of an older build, or damaged by hand.
        remove_tree(final)
    root.rename(final)


def make_folder(path: Path) -> Path:
    """``path``, made when needed; `EnvironmentFault` when the disk refuses."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise _unwritable(path, fault) from fault
    return path


def _building_folder(final: Path) -> Path:
    """A fresh folder beside ``final`` to build it in.

    To be called with the lock of ``final`` held: what an earlier builder left behind when it was killed is removed.
    """
    parent = make_folder(final.parent)
    prefix = f".{final.name}."
    for left in parent.glob(f"{prefix}*"):
        remove_tree(left)
    try:
        return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    except OSError as fault:
        raise _unwritable(parent, fault) from fault


async def _discard(building: Path) -> None:
    """Remove what was being built, also when the work is being cancelled."""
    with anyio.CancelScope(shield=True):
        await anyio.to_thread.run_sync(partial(shutil.rmtree, building, ignore_errors=True))


def _unwritable(path: Path, fault: OSError) -> EnvironmentFault:
    return EnvironmentFault(
        f"{path}: the cache cannot be written ({fault.strerror})",
        hint="check the disk, or name another folder in PAIRTRIAL_CACHE",
        slug="unwritable-cache",
    )
