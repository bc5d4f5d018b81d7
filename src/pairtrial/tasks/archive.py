"""Unpacking an archive that somebody else made.

Nothing is written through the archive library: every member is checked (tar members also by the standard library's
``data`` filter), and its bytes are copied into a file that we open ourselves. So owners, set-user-id bits and times of
the archive never reach the disk. Links are made last, after every file, and only when they stay below the root:
nothing can be written through a link. Known ways past the filter alone (links to links, hard links through
links, over-long paths) therefore lead nowhere.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from pairtrial.core.errors import EnvironmentFault, TaskError

CHUNK = 1 << 20
DROPPED = frozenset({".git", "__pycache__"})
"""Left out at any depth: history, and compiled code that could hold the unbroken line."""


@dataclass(frozen=True, slots=True)
class UnpackLimits:
    """Caps on what an archive may grow into."""

    files: int = 50_000
    total_bytes: int = 1 << 30
    ratio: float = 200.0
    """Unpacked bytes per packed byte, once more than ``ratio_from`` bytes are unpacked."""
    ratio_from: int = 16 << 20


class Readable(Protocol):
    """What is asked of a stream of bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """At most ``size`` bytes; empty at the end."""


@dataclass
class _Writer:
    """Writes members below ``root`` and keeps count."""

    name: str
    root: Path
    packed_bytes: int
    limits: UnpackLimits
    written: int = 0
    members: int = 0
    seen: set[str] = field(default_factory=set)
    links: list[tuple[str, str]] = field(default_factory=list)

    def refuse(self, why: str, slug: str) -> TaskError:
        return TaskError(f"{self.name}: {why}; the archive is refused", slug=slug)

    def relative(self, raw: str) -> str | None:
        """The member's path below the root, or None when it is left out."""
        path = PurePosixPath(raw)
        if path.is_absolute() or ".." in path.parts or "\0" in raw or "\\" in raw or len(raw) > 1000:
            raise self.refuse(f"member {raw[:200]!r} points outside", "archive-escape")
        self.members += 1
        if self.members > self.limits.files:
            raise self.refuse(f"more than {self.limits.files} members", "archive-bomb")
        if DROPPED.intersection(path.parts) or path.suffix == ".pyc":
            return None
        return path.as_posix()

    def claim(self, relative: str) -> None:
        if relative in self.seen:
            raise self.refuse(f"member {relative!r} occurs twice", "archive-duplicate")
        self.seen.add(relative)

    def count(self, size: int) -> None:
        self.written += size
        if self.written > self.limits.total_bytes:
            raise self.refuse(f"grows beyond {self.limits.total_bytes} bytes", "archive-bomb")
        if self.written > self.limits.ratio_from and self.written > self.limits.ratio * max(self.packed_bytes, 1):
            raise self.refuse(f"grows more than {self.limits.ratio:g} times", "archive-bomb")

    def folder(self, relative: str) -> None:
        try:
            (self.root / relative).mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise self.refuse(f"member {relative!r} is a file and a folder", "archive-duplicate") from None

    def file(self, relative: str, source: IO[bytes], executable: bool) -> None:
        self.claim(relative)
        target = self.root / relative
        self.folder(str(PurePosixPath(relative).parent))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            descriptor = os.open(target, flags, 0o755 if executable else 0o644)
        except FileExistsError:
            raise self.refuse(f"member {relative!r} occurs twice", "archive-duplicate") from None
        with os.fdopen(descriptor, "wb") as handle:
            while piece := source.read(CHUNK):
                self.count(len(piece))
                handle.write(piece)
            os.fchmod(handle.fileno(), 0o755 if executable else 0o644)

    def link(self, relative: str, target: str) -> None:
        inside = os.path.normpath(str(PurePosixPath(relative).parent / target))
        # Inside means: below the top folder, which is taken off at the end.
        top = PurePosixPath(relative).parts[0]
        if PurePosixPath(target).is_absolute() or PurePosixPath(inside).parts[:1] != (top,) or "\0" in target:
            raise self.refuse(f"link {relative!r} points outside, to {target[:200]!r}", "archive-escape")
        self.claim(relative)
        self.links.append((relative, target))

    def make_links(self) -> None:
        """Last of all; a link below another link is refused, because its real place is not where it seems to be."""
        names = {relative for relative, _ in self.links}
        for relative, target in self.links:
            place = PurePosixPath(relative).parent
            whole = PurePosixPath(os.path.normpath(str(place / target)))
            if any(str(parent) in names for parent in [*PurePosixPath(relative).parents, whole, *whole.parents]):
                raise self.refuse(f"link {relative!r} leads through another link", "archive-escape")
            self.folder(str(place))
            try:
                (self.root / relative).symlink_to(target)
            except FileExistsError:
                raise self.refuse(f"member {relative!r} occurs twice", "archive-duplicate") from None


class _Metered:
    """A decompressed stream that stops before it has filled the memory (a tar header may ask for gigabytes)."""

    def __init__(self, source: Readable, writer: _Writer) -> None:
        self._source = source
        self._writer = writer
        self._read = 0

    def read(self, size: int = -1) -> bytes:
        pieces: list[bytes] = []
        left = size if size >= 0 else 1 << 62
        limits = self._writer.limits
        while left and (piece := self._source.read(min(left, CHUNK))):
            pieces.append(piece)
            left -= len(piece)
            self._read += len(piece)
            packed = max(self._writer.packed_bytes, 1)
            # Headers and padding count as well: 1024 bytes a member on top of the content.
            if self._read > limits.total_bytes + limits.files * 1024 or (
                self._read > limits.ratio_from and self._read > limits.ratio * packed
            ):
                raise self._writer.refuse(f"grows beyond {self._read} bytes", "archive-bomb")
        return b"".join(pieces)


_OPENERS: tuple[tuple[bytes, Callable[[IO[bytes]], Readable]], ...] = (
    (b"\x1f\x8b", lambda raw: gzip.GzipFile(fileobj=raw)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ", lzma.LZMAFile),
)


def unpack(archive: Path, target: Path, *, name: str, limits: UnpackLimits | None = None) -> None:
    """Unpack a tar or zip archive into ``target``, a new folder; its single top folder is taken off.

    ``name`` stands for the archive in messages. Raises `TaskError` for an archive that is damaged, too large or that
    wants to write outside; ``target`` is then incomplete and for the caller to remove.
    """
    if not hasattr(tarfile, "data_filter"):
        raise EnvironmentFault("this Python has no tar filters", hint="use Python 3.11.4 or later", slug="old-python")
    target.mkdir()
    inner = target / ".unpacking"
    inner.mkdir()
    writer = _Writer(name, inner, archive.stat().st_size, limits or UnpackLimits())
    try:
        with archive.open("rb") as raw:
            head = raw.read(6)
            raw.seek(0)
            if head.startswith(b"PK"):
                _unpack_zip(raw, writer)
            else:
                opener = next((item for magic, item in _OPENERS if head.startswith(magic)), None)
                _unpack_tar(opener(raw) if opener else raw, writer)
        writer.make_links()
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError) as fault:
        raise writer.refuse(f"damaged or not an archive ({fault})", "archive-damaged") from fault
    except (UnicodeError, gzip.BadGzipFile) as fault:
        raise writer.refuse(f"damaged ({fault})", "archive-damaged") from fault
    _lift(inner, target, writer)


def _lift(inner: Path, target: Path, writer: _Writer) -> None:
    tops = list(inner.iterdir())
    if len(tops) != 1 or not tops[0].is_dir() or tops[0].is_symlink():
        found = ", ".join(sorted(item.name for item in tops)[:5]) or "nothing"
        raise writer.refuse(f"must hold exactly one top folder, holds {found}", "archive-layout")
    # Renamed aside first: the top folder may hold an entry called like the temporary one.
    for item in tops[0].iterdir():
        if item.name == inner.name:
            raise writer.refuse(f"member {item.name!r} is not accepted", "archive-layout")
        item.rename(target / item.name)
    tops[0].rmdir()
    inner.rmdir()


def _unpack_tar(source: Readable, writer: _Writer) -> None:
    files: dict[str, bool] = {}
    with tarfile.open(fileobj=_Metered(source, writer), mode="r|") as bundle:  # type: ignore[call-overload]
        for member in bundle:
            relative = writer.relative(member.name)
            if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
                raise writer.refuse(f"member {member.name!r} is a device or a pipe", "archive-escape")
            try:
                tarfile.data_filter(member, os.fspath(writer.root))
            except tarfile.FilterError as fault:
                raise writer.refuse(str(fault), "archive-escape") from fault
            if relative is None:
                continue
            if member.isdir():
                writer.folder(relative)
            elif member.issym():
                writer.link(relative, member.linkname)
            elif member.islnk():
                origin = PurePosixPath(member.linkname).as_posix()
                if origin not in files:
                    raise writer.refuse(f"hard link {relative!r} to a file that is not there", "archive-escape")
                with (writer.root / origin).open("rb") as original:
                    writer.file(relative, original, files[origin])
            else:
                content = bundle.extractfile(member)
                if content is None:
                    raise writer.refuse(f"member {relative!r} has no content", "archive-damaged")
                files[relative] = bool(member.mode & stat.S_IXUSR)
                writer.file(relative, content, files[relative])


def _unpack_zip(source: IO[bytes], writer: _Writer) -> None:
    with zipfile.ZipFile(source) as bundle:
        for member in bundle.infolist():
            relative = writer.relative(member.filename)
            mode = member.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
                raise writer.refuse(f"member {member.filename!r} is a device or a pipe", "archive-escape")
            if member.flag_bits & 1:
                raise writer.refuse(f"member {member.filename!r} is encrypted", "archive-damaged")
            if relative is None:
                continue
            if member.is_dir():
                writer.folder(relative)
            elif stat.S_ISLNK(mode):
                with bundle.open(member) as content:
                    writer.link(relative, content.read(4096).decode())
            else:
                with bundle.open(member) as content:
                    writer.file(relative, content, bool(mode & stat.S_IXUSR))
