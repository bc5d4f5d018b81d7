"""Capturing the work that an agent left, and laying it over another tree.

Both trees are read byte by byte; sizes and times are never trusted as a sign that nothing changed, and the
workspace's ``.git`` is never read. What the agent committed, staged, stashed or only saved is all the same: what lies
in the folder counts.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pairtrial.core.canonical import sha256_hex
from pairtrial.core.errors import GradeError
from pairtrial.grading.patch import EXECUTABLE, FILE, LINK, Blob, bad_patch, patched, read_patch, write_patch

CACHES: Mapping[str, str] = {
    ".git": "the agent's own bookkeeping, nested repositories' too; their files are captured as files",
    "__pycache__": "compiled Python",
    ".pytest_cache": "pytest's memory of the last run",
    ".hypothesis": "hypothesis' examples",
    ".mypy_cache": "mypy",
    ".ruff_cache": "ruff",
    ".tox": "tox environments",
    ".nox": "nox environments",
    "node_modules": "installed packages: part of the environment, not of the work",
    ".nyc_output": "coverage",
    "htmlcov": "coverage",
    ".coverage": "coverage",
}
"""Names of folders and files that are left out at any depth (and counted), each with the reason."""
CACHE_SUFFIXES = (".pyc", ".pyo")
"""Compiled Python outside ``__pycache__`` would run without a source that anybody can read."""
_TAGGED = "CACHEDIR.TAG"
_TAG_START = b"Signature: 8a477f597d28d172789f06886806bc55"


@dataclass(frozen=True, slots=True)
class WorkLimits:
    """Caps on what is captured; more than that raises `GradeError`."""

    changes: int = 20_000
    file_bytes: int = 32 << 20
    total_bytes: int = 96 << 20
    entries: int = 200_000
    """Files looked at in the workspace."""


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs."""

    path: str
    """POSIX path below the workspace; bytes that are not UTF-8 stand as ``\\xNN``."""
    kind: Literal["added", "modified", "deleted", "mode", "type"]


@dataclass(frozen=True, slots=True)
class Work:
    """All that an agent changed."""

    patch: bytes
    """Git format, binary, full object ids, no context lines; empty when nothing changed."""
    changes: tuple[Change, ...]
    ignored: tuple[str, ...]
    """What was left out: caches, and pipes or sockets, which have no content."""

    @property
    def digest(self) -> str:
        """SHA-256 of the patch."""
        return sha256_hex(self.patch)


def shown(path: bytes) -> str:
    """A path as text that any JSON file can hold."""
    return path.decode("utf-8", "backslashreplace")


def capture(
    pristine: Path, workspace: Path, *, placed: Mapping[str, bytes] | None = None, limits: WorkLimits | None = None
) -> Work:
    """Everything in which ``workspace`` differs from ``pristine``.

    ``placed`` names the files that the harness itself put into the workspace, with their content. One that is still as
    it was placed is not the agent's work and counts as unchanged; one that the agent edited is captured as it is.
    """
    caps = limits or WorkLimits()
    ours = {os.fsencode(path): data for path, data in (placed or {}).items()}
    ignored: list[bytes] = []
    before: dict[bytes, os.DirEntry[str]] = dict(_entries(pristine, [], caps))
    after = dict(_entries(workspace, ignored, caps))
    changes: list[tuple[bytes, Blob | None, Blob | None]] = []
    total = 0
    for path in sorted(before.keys() | after.keys()):
        old_entry, new_entry = before.get(path), after.get(path)
        if old_entry and new_entry and _same(old_entry, new_entry):
            continue
        new = _blob(new_entry, caps) if new_entry else None
        if path in ours and new is not None and new.mode != LINK and new.data == ours[path]:
            continue
        old = _blob(old_entry, caps) if old_entry else None
        if old == new:
            continue
        total += (len(old.data) if old else 0) + (len(new.data) if new else 0)
        changes.append((path, old, new))
        if len(changes) > caps.changes or total > caps.total_bytes:
            raise _too_large(f"more than {caps.changes} changed files or {caps.total_bytes} changed bytes")
    listed = tuple(Change(shown(path), _kind(old, new)) for path, old, new in changes)
    return Work(write_patch(changes), listed, tuple(shown(path) for path in sorted(ignored)))


def _too_large(why: str) -> GradeError:
    return GradeError(f"work: {why}", hint="nothing was captured; the limits are in WorkLimits", slug="work-too-large")


def _kind(old: Blob | None, new: Blob | None) -> Literal["added", "modified", "deleted", "mode", "type"]:
    if old is None:
        return "added"
    if new is None:
        return "deleted"
    if (old.mode == LINK) != (new.mode == LINK):
        return "type"
    return "modified" if old.data != new.data else "mode"


def _entries(root: Path, ignored: list[bytes], caps: WorkLimits) -> Iterator[tuple[bytes, os.DirEntry[str]]]:
    """Files and links below ``root``; links are not followed, caches and special files go to ``ignored``."""
    seen = 0
    pending = [(os.fspath(root), "")]
    while pending:
        folder, prefix = pending.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                path = prefix + entry.name
                seen += 1
                if seen > caps.entries:
                    raise _too_large(f"more than {caps.entries} files in the workspace")
                if entry.name in CACHES or entry.name.endswith(CACHE_SUFFIXES):
                    ignored.append(os.fsencode(path))
                elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                    yield os.fsencode(path), entry
                elif not entry.is_dir(follow_symlinks=False) or (entry.name == "target" and _is_tagged(entry)):
                    ignored.append(os.fsencode(path))
                else:
                    pending.append((entry.path, path + "/"))


def _is_tagged(entry: os.DirEntry[str]) -> bool:
    """Cargo's build folder says itself that it is a cache."""
    try:
        with (Path(entry.path) / _TAGGED).open("rb") as handle:
            return handle.read(len(_TAG_START)) == _TAG_START
    except OSError:
        return False


def _mode(entry: os.DirEntry[str]) -> int:
    if entry.is_symlink():
        return LINK
    return EXECUTABLE if entry.stat(follow_symlinks=False).st_mode & stat.S_IXUSR else FILE


def _same(old: os.DirEntry[str], new: os.DirEntry[str]) -> bool:
    """True when type, executable bit and every byte agree."""
    if _mode(old) != _mode(new):
        return False
    if old.is_symlink():
        return os.readlink(old.path) == os.readlink(new.path)
    if old.stat(follow_symlinks=False).st_size != new.stat(follow_symlinks=False).st_size:
        return False
    with os.fdopen(_open(old), "rb") as left, os.fdopen(_open(new), "rb") as right:
        while piece := left.read(1 << 20):
            if piece != right.read(len(piece)):
                return False
        return not right.read(1)


def _open(entry: os.DirEntry[str]) -> int:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        try:
            return os.open(entry.path, flags)
        except PermissionError:
            # An agent that took away its own right to read does not lose its work.
            Path(entry.path).chmod(stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode) | stat.S_IRUSR)
            return os.open(entry.path, flags)
    except OSError as fault:
        why = f"work: {shown(os.fsencode(entry.name))}: cannot be read ({fault.strerror})"
        raise GradeError(why, slug="work-unreadable") from None


def _blob(entry: os.DirEntry[str], caps: WorkLimits) -> Blob:
    if entry.is_symlink():
        return Blob(LINK, os.fsencode(os.readlink(entry.path)))
    with os.fdopen(_open(entry), "rb") as handle:
        data = handle.read(caps.file_bytes + 1)
    if len(data) > caps.file_bytes:
        raise _too_large(f"{shown(os.fsencode(entry.name))} is larger than {caps.file_bytes >> 20} MiB")
    return Blob(_mode(entry), data)


def apply_work(patch: bytes, tree: Path, *, skip: Callable[[bytes], bool] | None = None) -> tuple[str, ...]:
    """Apply ``patch`` to ``tree``; paths for which ``skip`` says True are left as they are and returned.

    Everything is worked out and checked in memory before the first byte is written. Nothing is written through a
    symbolic link, whether the tree or the patch made it. Raises `GradeError` when the patch does not fit exactly.
    """
    sections = read_patch(patch)
    passed_over = {section.path for section in sections if skip is not None and skip(section.path)}
    wanted = (section for section in sections if section.path not in passed_over)
    after = patched(wanted, lambda path: _there(tree, path))
    try:
        for path in sorted((path for path, blob in after.items() if blob is None), reverse=True):
            _check_parents(tree, path)
            place = tree / os.fsdecode(path)
            place.unlink()
            _prune(tree, place.parent)
        for path, blob in sorted(after.items()):
            if blob is not None:
                _write(tree, path, blob)
    except OSError as fault:
        raise bad_patch(f"cannot be applied ({fault.strerror})") from fault
    return tuple(shown(path) for path in sorted(passed_over))


def _parents(tree: Path, path: bytes) -> Iterator[Path]:
    parent = tree
    for part in path.split(b"/")[:-1]:
        parent = parent / os.fsdecode(part)
        yield parent


def _there(tree: Path, path: bytes) -> Blob | None:
    if any(parent.is_symlink() or not parent.is_dir() for parent in _parents(tree, path)):
        return None
    place = tree / os.fsdecode(path)
    try:
        status = place.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        return Blob(LINK, os.fsencode(os.readlink(place)))
    if stat.S_ISDIR(status.st_mode):
        return None
    with os.fdopen(os.open(place, os.O_RDONLY | os.O_NOFOLLOW), "rb") as handle:
        return Blob(EXECUTABLE if status.st_mode & stat.S_IXUSR else FILE, handle.read())


def _check_parents(tree: Path, path: bytes) -> None:
    for parent in _parents(tree, path):
        if parent.is_symlink():
            raise bad_patch(f"{shown(path)!r} lies behind the symbolic link {parent.name!r}")


def _prune(tree: Path, folder: Path) -> None:
    """Remove folders that a deletion left empty, as git does: a file may want to stand in their place."""
    while folder != tree:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


def _write(tree: Path, path: bytes, blob: Blob) -> None:
    _check_parents(tree, path)
    place = tree / os.fsdecode(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    if blob.mode == LINK:
        place.symlink_to(os.fsdecode(blob.data))
        return
    mode = 0o755 if blob.mode == EXECUTABLE else 0o644
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as handle:
        handle.write(blob.data)
        os.fchmod(handle.fileno(), mode)
