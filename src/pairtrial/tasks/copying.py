"""Copying a tree while its digest is computed: every file is read once.

A tree of 500 source files is small files only, where the cost is system calls, not bytes. Reading each into memory,
hashing and writing it is faster than copying first and reading again to verify.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from pairtrial.core.canonical import walk_tree


def copy_verified(source: Path, target: Path, *, exclude: Iterable[str] = ()) -> str:
    """Copy files and links below ``source`` to ``target``, a new folder or an empty one, times included.

    Returns the tree digest (as `pairtrial.core.canonical.tree_digest`) of exactly the bytes that were written.
    """
    digest = hashlib.sha256()
    made: set[str] = set()
    root = os.fspath(target)
    os.makedirs(root, exist_ok=True)  # noqa: PTH103 - strings throughout: Path objects double the time
    if os.listdir(root):  # noqa: PTH208 - a sandbox makes its workspace, and nothing may lie in it already
        raise FileExistsError(errno.ENOTEMPTY, "not empty", root)
    for entry in walk_tree(source, exclude=exclude):
        folder = entry.path.rpartition("/")[0]
        if folder and folder not in made:
            os.makedirs(f"{root}/{folder}", exist_ok=True)  # noqa: PTH103
            made.add(folder)
        place = f"{root}/{entry.path}"
        content = _copy_link(entry.source, place) if entry.kind == "link" else _copy_file(entry.source, place)
        for part in (entry.kind.encode(), b"x" if entry.executable else b"-", os.fsencode(entry.path), content):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
    return digest.hexdigest()


def _copy_link(source: Path, place: str) -> bytes:
    aim = os.readlink(source)
    os.symlink(aim, place)  # noqa: PTH211
    facts = os.lstat(source)
    os.utime(place, ns=(facts.st_atime_ns, facts.st_mtime_ns), follow_symlinks=False)
    return os.fsencode(aim)


def _copy_file(source: Path, place: str) -> bytes:
    reader = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        facts = os.fstat(reader)
        content = os.read(reader, facts.st_size + 1)
        while len(content) < facts.st_size and (more := os.read(reader, facts.st_size)):
            content += more
    finally:
        os.close(reader)
    mode = stat.S_IMODE(facts.st_mode) & 0o777
    writer = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(writer, left) :]
        os.fchmod(writer, mode)
        os.utime(writer, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    finally:
        os.close(writer)
    return content
