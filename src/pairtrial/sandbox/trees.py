"""Copying and removing trees that a hostile process may have shaped.

Everything goes through folder descriptors and names, so a link that was planted on the way is never followed: not when
we write into a workspace, not when we read the work back, not when we delete it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pairtrial.core.errors import SandboxError

MAX_DEPTH = 200
"""Folders inside folders; a deeper tree is refused when it is copied (it is removed all the same)."""
MAX_ENTRIES = 2_000_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class _Copy:
    owner: int | None
    max_bytes: int | None
    special: Literal["refuse", "skip"]
    total: int = 0
    entries: int = 0
    skipped: list[str] = field(default_factory=list)

    def count(self, path: str, size: int) -> None:
        self.entries += 1
        self.total += size
        if self.max_bytes is not None and self.total > self.max_bytes:
            raise SandboxError(f"{path}: the tree holds more than {self.max_bytes} bytes", slug="tree-too-large")
        if self.entries > MAX_ENTRIES:
            raise SandboxError(f"{path}: the tree holds more than {MAX_ENTRIES} entries", slug="tree-too-large")


@contextlib.contextmanager
def opened(path: Path | str, *, at: int | None = None) -> Iterator[int]:
    """Descriptor of a folder; a link is refused."""
    number = os.open(path, _FOLDER, dir_fd=at)
    try:
        yield number
    finally:
        os.close(number)


@contextlib.contextmanager
def descend(base: Path, parts: tuple[str, ...], *, create: bool, owner: int | None = None) -> Iterator[int]:
    """Descriptor of ``base/parts…``; missing folders are made where asked, links are refused."""
    with contextlib.ExitStack() as stack:
        here = stack.enter_context(opened(base))
        for part in parts:
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=here)
                    if owner is not None:
                        os.chown(part, owner, owner, dir_fd=here, follow_symlinks=False)
            try:
                here = stack.enter_context(opened(part, at=here))
            except OSError as fault:
                raise SandboxError(
                    f"{'/'.join(parts)}: {part} is a link or no folder ({fault.strerror})", slug="link-on-the-way"
                ) from fault
        yield here


def write_file(folder: int, name: str, data: bytes, *, mode: int, owner: int | None = None) -> None:
    """Replace ``name`` in an open folder by a new regular file."""
    remove_entry(folder, name)
    number = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder)
    with os.fdopen(number, "wb") as handle:
        handle.write(data)
        os.fchmod(number, mode)
        if owner is not None:
            os.fchown(number, owner, owner)


def remove_entry(folder: int, name: str) -> None:
    """Remove a file or link; an empty folder too."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        os.rmdir(name, dir_fd=folder)


def copy_tree(
    source: Path,
    target: int,
    *,
    owner: int | None = None,
    max_bytes: int | None = None,
    special: Literal["refuse", "skip"] = "refuse",
) -> tuple[str, ...]:
    """Copy the content of ``source`` into the open folder ``target``; gives what was left out.

    Modes (without set-id bits) and times are kept, links are copied as links. Devices, sockets and pipes are refused
    or skipped.
    """
    job = _Copy(owner, max_bytes, special)
    with opened(source) as folder:
        _copy_folder(job, folder, target, "", 0)
    return tuple(job.skipped)


def _copy_folder(job: _Copy, source: int, target: int, path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise SandboxError(f"{path[:80]}…: more than {MAX_DEPTH} folders deep", slug="tree-too-deep")
    with os.scandir(source) as listing:
        entries = [(entry.name, entry.stat(follow_symlinks=False)) for entry in listing]
    for name, info in entries:
        where = f"{path}/{name}" if path else name
        if stat.S_ISREG(info.st_mode):
            job.count(where, info.st_size)
            _copy_file(job, source, target, name, info)
        elif stat.S_ISDIR(info.st_mode):
            job.count(where, 0)
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=target)
            with opened(name, at=source) as below, opened(name, at=target) as there:
                _copy_folder(job, below, there, where, depth + 1)
                _dress(job, there, info)
        elif stat.S_ISLNK(info.st_mode):
            job.count(where, 0)
            remove_entry(target, name)
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
            if job.owner is not None:
                os.chown(name, job.owner, job.owner, dir_fd=target, follow_symlinks=False)
        elif job.special == "skip":
            job.skipped.append(where)
        else:
            raise SandboxError(f"{where}: neither file, folder nor link", slug="special-file")


def _copy_file(job: _Copy, source: int, target: int, name: str, info: os.stat_result) -> None:
    # O_NONBLOCK: should the file have become a pipe since it was listed, opening it must not hang
    read = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=source)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            write = os.open(name, flags, 0o600, dir_fd=target)
        except FileExistsError:
            remove_entry(target, name)
            write = os.open(name, flags, 0o600, dir_fd=target)
        try:
            _copy_bytes(read, write, info.st_size)
            _dress(job, write, info)
        finally:
            os.close(write)
    finally:
        os.close(read)


def _copy_bytes(read: int, write: int, size: int) -> None:
    left = size
    if hasattr(os, "copy_file_range") and size > 1 << 16:  # shares the blocks where the file system can
        with contextlib.suppress(OSError):
            while left and (done := os.copy_file_range(read, write, left)):
                left -= done
    while left and (piece := os.read(read, min(left, 1 << 20))):
        left -= len(piece)
        view = memoryview(piece)
        while view:
            view = view[os.write(write, view) :]


def _dress(job: _Copy, number: int, info: os.stat_result) -> None:
    if job.owner is not None:
        os.fchown(number, job.owner, job.owner)
    os.fchmod(number, stat.S_IMODE(info.st_mode) & 0o777)
    os.utime(number, ns=(info.st_atime_ns, info.st_mtime_ns))


def give(folder: int, owner: int, depth: int = 0) -> None:
    """Give everything in an open folder to ``owner``: what we wrote there, a command that is another user must own."""
    with os.scandir(folder) as listing:
        entries = list(listing)
    for entry in entries:
        info = entry.stat(follow_symlinks=False)
        if info.st_uid != owner:
            os.chown(entry.name, owner, owner, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(info.st_mode) and depth < MAX_DEPTH:
            with contextlib.suppress(FileNotFoundError), opened(entry.name, at=folder) as below:
                give(below, owner, depth + 1)


def remove_tree(path: Path) -> None:
    """Remove a tree whatever its modes and depth; raises `SandboxError` when something stays."""
    try:
        shutil.rmtree(path)
        return
    except FileNotFoundError:
        if not path.is_symlink() and not path.exists():
            return
    except (OSError, RecursionError):
        pass
    try:
        _flatten(path)
    except OSError as fault:
        raise SandboxError(
            f"{path}: cannot be removed ({fault.strerror})", hint="remove it by hand", slug="cleanup-failed"
        ) from fault


def _flatten(path: Path) -> None:
    """Remove by moving every folder up to the top first: no recursion, no long path, two descriptors."""
    number = 0
    path.chmod(0o700)
    with opened(path) as top:
        while names := os.listdir(top):  # noqa: PTH208 - a descriptor
            for name in names:
                if not stat.S_ISDIR(os.stat(name, dir_fd=top, follow_symlinks=False).st_mode):
                    os.unlink(name, dir_fd=top)
                    continue
                with contextlib.suppress(OSError):
                    os.chmod(name, 0o700, dir_fd=top)
                with opened(name, at=top) as here:
                    for inner in os.listdir(here):  # noqa: PTH208 - a descriptor
                        if stat.S_ISDIR(os.stat(inner, dir_fd=here, follow_symlinks=False).st_mode):
                            with contextlib.suppress(OSError):
                                os.chmod(inner, 0o700, dir_fd=here)
                            number += 1
                            os.rename(inner, f".flat-{os.getpid()}-{number}", src_dir_fd=here, dst_dir_fd=top)
                        else:
                            os.unlink(inner, dir_fd=here)
                os.rmdir(name, dir_fd=top)
    path.rmdir()
