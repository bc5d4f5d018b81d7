"""Where a target's tree comes from: fetched, verified, unpacked.

A kind of source is one class here: `fetch` brings verified bytes into the cache, `materialise` makes a tree of
them. Adding a kind adds a model in `model`, a class and a line in `source_for`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio.to_thread

from pairtrial.core.canonical import sha256_file, tree_digest, walk_tree
from pairtrial.core.disk import fsync_folder
from pairtrial.core.errors import EnvironmentFault, TaskError
from pairtrial.tasks.adapted import Adapted
from pairtrial.tasks.archive import DROPPED, unpack
from pairtrial.tasks.debian import download_deb, unpack_deb
from pairtrial.tasks.git_tree import GitTree
from pairtrial.tasks.locking import kept, make_folder, present
from pairtrial.tasks.model import DebianBinary, GitCommit, Local, NpmTarball, PypiSdist
from pairtrial.tasks.npm import download_npm
from pairtrial.tasks.pack import Target

MAX_DOWNLOAD_BYTES = 200 << 20
LOCAL_EXCLUDED = (*sorted(DROPPED), ".pytest_cache", ".mypy_cache", ".ruff_cache", ".venv", "node_modules")
"""Names that are no part of a local target, at any depth."""


class TargetSource(Protocol):
    """One kind of source."""

    async def check(self) -> None:
        """`TaskError` when what lies beside the pack is no longer what was pinned; asks no registry."""

    async def fetch(self, cache: Path) -> None:
        """Make sure that the verified bytes are at hand; a second call needs no network."""

    async def materialise(self, cache: Path, target: Path) -> None:
        """Make the unbroken tree in the new folder ``target``; owner and modes are ours."""

    def digest(self) -> str:
        """What identifies the tree."""


def source_for(target: Target) -> TargetSource:
    """The source of a target, with what the target leaves out or adapts."""
    source = _pinned(target)
    document = target.document
    return Adapted(source, document, target.id) if document.remove or document.adapt else source


def _pinned(target: Target) -> TargetSource:
    match target.source:
        case PypiSdist() as document:
            return _Archive(document.sha256, _named(target, document), partial(_sdist, document))
        case NpmTarball() as document:
            return _Archive(document.sha256, _named(target, document), partial(download_npm, document))
        case DebianBinary() as document:
            opener = partial(unpack_deb, folder=document.folder)
            return _Archive(document.sha256, _named(target, document), partial(download_deb, document), opener)
        case GitCommit() as document:
            return GitTree(document, target.folder, target.id)
        case Local() as document:
            return _Folder(document, target.folder / document.path, target.id)


def _named(target: Target, document: PypiSdist | NpmTarball | DebianBinary) -> str:
    return f"{target.id}: {document.name} {document.version}"


async def _sdist(document: PypiSdist, place: Path) -> None:
    from pairtrial.tasks.pypi import download_sdist

    await anyio.to_thread.run_sync(download_sdist, document, place, MAX_DOWNLOAD_BYTES)


class Opener(Protocol):
    """Unpacks an archive into a new folder."""

    def __call__(self, archive: Path, target: Path, *, name: str) -> None:
        """`TaskError` for an archive that is damaged or wants to write outside."""


class _Archive:
    """A file that is downloaded once and identified by its hash."""

    def __init__(
        self, sha256: str, name: str, download: Callable[[Path], Awaitable[None]], opener: Opener = unpack
    ) -> None:
        self._sha256 = sha256
        self._name = name
        self._fetch = download
        self._open = opener

    def _stored(self, cache: Path) -> Path:
        return cache / "sources" / "sha256" / self._sha256

    async def check(self) -> None:
        return None

    def digest(self) -> str:
        return self._sha256

    async def fetch(self, cache: Path) -> None:
        await kept(cache, "source", self._stored(cache), present, self._download)

    async def _download(self, building: Path, stored: Path) -> Path:
        temporary = building / "archive"
        await self._fetch(temporary)
        await anyio.to_thread.run_sync(self._keep, temporary, stored)
        return stored

    def _keep(self, temporary: Path, stored: Path) -> None:
        found = sha256_file(temporary)
        if found != self._sha256:
            raise TaskError(
                f"{self._name}: the index delivers an archive with SHA-256 {found}, pinned is {self._sha256}",
                hint="do not use what the index gives; check the pin against a source that you trust",
                slug="wrong-hash",
            )
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        temporary.rename(stored)
        fsync_folder(stored.parent)

    async def materialise(self, cache: Path, target: Path) -> None:
        await self.fetch(cache)
        await anyio.to_thread.run_sync(self._unpack, cache, target)

    def _unpack(self, cache: Path, target: Path) -> None:
        stored = self._stored(cache)
        found = sha256_file(stored)
        if found != self._sha256:
            stored.unlink(missing_ok=True)
            raise EnvironmentFault(
                f"{stored}: damaged in the cache (SHA-256 {found}); it has been removed",
                hint="run the command again to download it",
                slug="damaged-cache",
            )
        self._open(stored, target, name=self._name)


class _Folder:
    def __init__(self, document: Local, folder: Path, name: str) -> None:
        self._document = document
        self._folder = folder
        self._name = name

    def digest(self) -> str:
        return self._document.tree

    async def check(self) -> None:
        await anyio.to_thread.run_sync(self._verify)

    async def fetch(self, cache: Path) -> None:
        await self.check()

    async def materialise(self, cache: Path, target: Path) -> None:
        await anyio.to_thread.run_sync(self._copy, target)

    def _verify(self) -> None:
        if not self._folder.is_dir():
            raise TaskError(f"{self._name}: source.path: {self._folder}: no such folder", slug="missing-file")
        found = tree_digest(self._folder, exclude=LOCAL_EXCLUDED)
        if found != self._document.tree:
            raise TaskError(
                f"{self._name}: source.tree: the folder {self._folder} has the digest {found}, "
                f"pinned is {self._document.tree}",
                hint="restore the folder, or pin the new digest",
                slug="wrong-hash",
            )

    def _copy(self, target: Path) -> None:
        make_folder(target)
        for entry in walk_tree(self._folder, exclude=LOCAL_EXCLUDED):
            place = target / entry.path
            place.parent.mkdir(parents=True, exist_ok=True)
            if entry.kind == "link":
                self._copy_link(entry.path, entry.source, place)
            else:
                shutil.copyfile(entry.source, place)
                place.chmod(0o755 if entry.executable else 0o644)
        found = tree_digest(target)
        if found != self._document.tree:
            self._verify()
            raise TaskError(f"{self._name}: {self._folder} changed while it was copied", slug="wrong-hash")

    def _copy_link(self, relative: str, source: Path, place: Path) -> None:
        aim = os.readlink(source)
        inside = os.path.normpath(os.path.join(os.path.dirname(relative), aim))  # noqa: PTH118, PTH120 - text only
        if os.path.isabs(aim) or inside.startswith(".."):  # noqa: PTH117
            raise TaskError(f"{self._name}: {relative}: a link that points outside", slug="archive-escape")
        place.symlink_to(aim)
