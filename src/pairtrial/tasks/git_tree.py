"""The tree of one commit, without anything of its history.

The commit id is a hash over every byte of the tree, so it is the pin. Objects are fetched into an empty repository of
ours and written out one by one: no checkout, hence no filter, no attribute, no hook and no end-of-line rule of anybody
changes a byte.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import anyio.to_thread

from pairtrial.core.disk import remove_tree
from pairtrial.core.errors import EnvironmentFault, TaskError
from pairtrial.sandbox.process import run
from pairtrial.sandbox.protocol import ExecResult
from pairtrial.tasks.archive import DROPPED
from pairtrial.tasks.locking import kept, make_folder, present
from pairtrial.tasks.model import GitCommit
from pairtrial.tasks.registry import said, tool_env

TIMEOUT_S = 900.0
MAX_TREE = 1 << 30
MAX_FILES = 50_000
_SAFE = ("protocol.ext.allow=never", "core.hooksPath=/dev/null", "gc.auto=0", "maintenance.auto=false",
         "transfer.fsckObjects=true", "fetch.recurseSubmodules=false")  # fmt: skip


class GitTree:
    """A commit of a repository, or of a bundle beside ``target.yaml``."""

    def __init__(self, document: GitCommit, folder: Path, name: str) -> None:
        self._document = document
        self._folder = folder
        self._name = name

    def digest(self) -> str:
        return self._document.commit

    def _stored(self, cache: Path) -> Path:
        return cache / "sources" / "git" / self._document.commit

    async def check(self) -> None:
        """A bundle must be there; that it holds the commit is seen when it is read."""
        if self._document.bundle is not None and not (self._folder / self._document.bundle).is_file():
            raise TaskError(f"{self._name}: source.bundle: {self._document.bundle}: no such file", slug="missing-file")

    async def fetch(self, cache: Path) -> None:
        await kept(cache, "source", self._stored(cache), present, self._download)

    async def _download(self, building: Path, stored: Path) -> Path:
        await self._fetch(building / "git")
        return (building / "git").rename(stored)

    async def _fetch(self, repository: Path) -> None:
        document = self._document
        form = "sha256" if len(document.commit) == 64 else "sha1"
        await self._git(repository.parent, ["init", "-q", "--bare", "--template=", f"--object-format={form}", "git"])
        if document.bundle is not None:
            origin = os.fspath((self._folder / document.bundle).resolve())
            wanted = ["+refs/*:refs/bundle/*"]
        else:
            origin, wanted = str(document.url), [document.commit]
        code, complaint = await self._try(repository, ["fetch", "-q", "--no-tags", "--depth=1", origin, *wanted])
        if code != 0 and document.bundle is not None:
            # A bundle cannot be cut; it is read whole.
            code, complaint = await self._try(repository, ["fetch", "-q", "--no-tags", origin, *wanted])
        there, _ = await self._try(repository, ["cat-file", "-e", f"{document.commit}^{{commit}}"])
        if there == 0:
            return
        if document.bundle is not None or "not our ref" in complaint or "couldn't find remote ref" in complaint:
            raise TaskError(
                f"{self._name}: source.commit: {document.commit[:12]} is not in "
                f"{document.bundle or 'the repository'}: {said(complaint)}",
                hint="pin a commit that a branch or tag of it reaches",
                slug="no-such-release",
            )
        raise EnvironmentFault(
            f"{self._name}: commit {document.commit[:12]} cannot be fetched: {said(complaint)}",
            hint="check the network and your access; what has been fetched before is used without a network",
            slug="registry-unreachable",
        )

    async def materialise(self, cache: Path, target: Path) -> None:
        await self.fetch(cache)
        repository = self._stored(cache)
        listing = await self._git(repository, ["ls-tree", "-r", "-z", "--full-tree", self._document.commit])
        entries = []
        for row in listing.split(b"\0"):
            if row:
                head, _, path = row.partition(b"\t")
                mode, kind, name = head.split()
                entries.append((mode, kind, name, path))
        self._refuse_odd(entries)
        names = b"".join(name + b"\n" for _, _, name, _ in entries)
        blobs = await self._git(repository, ["cat-file", "--batch"], stdin=names)
        try:
            await anyio.to_thread.run_sync(self._write, entries, blobs, target)
        except BaseException:
            remove_tree(target)
            raise

    def _refuse_odd(self, entries: Sequence[tuple[bytes, bytes, bytes, bytes]]) -> None:
        if len(entries) > MAX_FILES:
            raise TaskError(f"{self._name}: more than {MAX_FILES} files in the commit", slug="archive-bomb")
        for _, kind, _, path in entries:
            shown = path.decode("utf-8", "backslashreplace")
            if kind == b"commit":
                raise TaskError(
                    f"{self._name}: {shown} is a submodule, which the commit does not contain",
                    hint="make a bundle or a local folder that holds everything",
                    slug="submodule",
                )
            if any(part in (b"..", b".", b"") for part in path.split(b"/")):
                raise TaskError(f"{self._name}: {shown} points outside", slug="archive-escape")

    def _write(self, entries: Sequence[tuple[bytes, bytes, bytes, bytes]], blobs: bytes, target: Path) -> None:
        make_folder(target)
        at = 0
        links: list[tuple[Path, bytes, bytes]] = []
        for mode, _, name, path in entries:
            end = blobs.index(b"\n", at)
            found, _, size = blobs[at:end].split()
            if found != name:
                raise TaskError(f"{self._name}: git gave another object than asked for", slug="wrong-hash")
            body = blobs[end + 1 : end + 1 + int(size)]
            at = end + 2 + int(size)
            relative = path.decode("utf-8", "surrogateescape")
            if DROPPED.intersection(relative.split("/")) or relative.endswith(".pyc"):
                continue
            place = target / relative
            place.parent.mkdir(parents=True, exist_ok=True)
            if mode == b"120000":
                links.append((place, body, path))
            else:
                place.write_bytes(body)
                place.chmod(0o755 if mode == b"100755" else 0o644)
        for place, body, path in links:
            aim = os.fsdecode(body)
            inside = os.path.normpath(os.path.join(os.path.dirname(os.fsdecode(path)), aim))  # noqa: PTH118, PTH120
            if os.path.isabs(aim) or inside.startswith(".."):  # noqa: PTH117
                raise TaskError(f"{self._name}: {os.fsdecode(path)}: a link that points outside", slug="archive-escape")
            place.symlink_to(aim)

    async def _git(self, folder: Path, arguments: Sequence[str], *, stdin: bytes = b"") -> bytes:
        done = await self._run(folder, arguments, stdin)
        if done.exit_code != 0:
            complaint = said(done.stderr.decode(errors="replace"))
            raise EnvironmentFault(f"{self._name}: git {arguments[0]} failed: {complaint}", slug="git-failed")
        return done.stdout

    async def _try(self, folder: Path, arguments: Sequence[str]) -> tuple[int, str]:
        done = await self._run(folder, arguments, b"")
        return (-1 if done.exit_code is None else done.exit_code), done.stderr.decode(errors="replace")

    async def _run(self, folder: Path, arguments: Sequence[str], stdin: bytes) -> ExecResult:
        options = [word for setting in _SAFE for word in ("-c", setting)]
        env = {**tool_env(), "GIT_TERMINAL_PROMPT": "0", "GIT_CEILING_DIRECTORIES": os.fspath(folder.parent)}
        argv = ["git", *options, *arguments]
        return await run(argv, env=env, cwd=folder, stdin=stdin, timeout_s=TIMEOUT_S, output_cap=MAX_TREE)
