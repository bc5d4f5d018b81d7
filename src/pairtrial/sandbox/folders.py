"""Workspace, HOME and TMPDIR of a sandbox in host folders, and safe traffic with them."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import anyio

from pairtrial.core.errors import SandboxError
from pairtrial.sandbox import disk, trees
from pairtrial.sandbox.owner import make_folder
from pairtrial.sandbox.protocol import SandboxSpec

FOLDERS = ("w", "h", "t")
"""Workspace, HOME and TMPDIR below a sandbox's own folder."""
CONTROL = "c"
MOUNTED = "d"
"""Where a tmpfs is mounted in it."""


class HostFolders:
    """Workspace, HOME and TMPDIR in host folders, and safe traffic with them. Every backend keeps its trees so."""

    workspace = ""
    home = ""
    tmp = ""

    def __init__(self, spec: SandboxSpec, kind: str) -> None:
        self.spec = spec
        self.kind = kind
        self.base: Path | None = None
        self.mounted = False
        self.watch: disk.DiskWatch | None = None
        self.owner: int | None = None
        """User that the commands run as, where it is not ours."""

    @property
    def root(self) -> Path:
        """Folder that holds the three: our own folder below scratch, or a tmpfs mounted in it."""
        if self.base is None:
            raise SandboxError(f"sandbox {self.spec.label}: used before prepare or after destroy", slug="not-prepared")
        return self.base / MOUNTED if self.mounted else self.base

    @property
    def control(self) -> Path:
        """Folder of ours beside the work tree: never on the disk that a command may fill."""
        if self.base is None:
            raise SandboxError(f"sandbox {self.spec.label}: used before prepare or after destroy", slug="not-prepared")
        return self.base / CONTROL

    def make_folders(self) -> None:
        """Make the three folders, on a tmpfs of its own where the disk is limited and we may mount one."""
        for mount in self.spec.mounts:
            if not mount.source.exists():
                raise SandboxError(f"{mount.source}: no such file or folder to mount", slug="missing-mount")
        labels = {"label": self.spec.label, "experiment": self.spec.experiment, "kind": self.kind}
        size = self.spec.limits.disk_bytes
        try:
            self.base = make_folder(self.spec.scratch.absolute(), labels)
            self.control.mkdir(mode=0o755)
            if size is not None and disk.may_mount():
                (self.base / MOUNTED).mkdir()
                self.mounted = disk.mount_tmpfs(self.base / MOUNTED, size)
            self._fill()
        except OSError as fault:
            raise SandboxError(
                f"{self.spec.scratch}: no room for a work tree ({fault.strerror})",
                hint="name another folder with --scratch",
                slug="scratch-unusable",
            ) from fault
        if size is not None:
            self.watch = disk.DiskWatch(self.root, size, mounted=self.mounted)

    def _fill(self) -> None:
        for name in FOLDERS:
            folder = self.root / name
            folder.mkdir(mode=0o755 if name == "w" else 0o700)
            if self.owner is not None:
                os.chown(folder, self.owner, self.owner)

    def _place(self, inside: str) -> tuple[Path, tuple[str, ...]]:
        path = PurePosixPath(inside)
        if ".." in path.parts or "\0" in inside or not path.is_absolute():
            raise SandboxError(f"{inside!r}: not an absolute path without '..'", slug="bad-path")
        for name, here in zip(FOLDERS, (self.workspace, self.home, self.tmp), strict=True):
            if path.is_relative_to(here):
                return self.root / name, path.relative_to(here).parts
        raise SandboxError(f"{inside}: outside workspace, HOME and TMPDIR", slug="bad-path")

    def host_path(self, inside: str) -> Path:
        """Where an inside path below workspace, HOME or TMPDIR lies on the host."""
        base, parts = self._place(inside)
        return base.joinpath(*parts)

    def inside_path(self, source: Path) -> str:
        """Where a host path below a mount's source is seen inside."""
        for mount in self.spec.mounts:
            if source.is_relative_to(mount.source):
                return str(PurePosixPath(mount.target) / source.relative_to(mount.source).as_posix())
        raise SandboxError(f"{source}: below no mount of this sandbox", slug="bad-path")

    def mount_points(self, folder: str) -> frozenset[str]:
        """Names in the inside folder ``folder`` at or below which something is mounted."""
        base = PurePosixPath(folder)
        below = (PurePosixPath(mount.target) for mount in self.spec.mounts)
        return frozenset(place.relative_to(base).parts[0] for place in below if base in place.parents)

    async def put_tree(self, source: Path, target: str) -> None:
        """Copy the content of a host folder to ``target``."""
        await anyio.to_thread.run_sync(self._put_tree, source, target)

    def _put_tree(self, source: Path, target: str) -> None:
        base, parts = self._place(target)
        try:
            with trees.descend(base, parts, create=True, owner=self.owner) as folder:
                trees.copy_tree(source, folder, owner=self.owner)
        except OSError as fault:
            raise SandboxError(f"{source}: cannot be copied to {target} ({fault})", slug="copy-failed") from fault

    async def put_file(self, target: str, data: bytes, *, executable: bool = False) -> None:
        """Write one file."""
        base, parts = self._place(target)
        if not parts:
            raise SandboxError(f"{target}: a folder, not a file", slug="bad-path")
        try:
            with trees.descend(base, parts[:-1], create=True, owner=self.owner) as folder:
                trees.write_file(folder, parts[-1], data, mode=0o755 if executable else 0o644, owner=self.owner)
        except OSError as fault:
            raise SandboxError(f"{target}: cannot be written ({fault.strerror})", slug="copy-failed") from fault

    async def get_tree(self, source: str, target: Path, *, max_bytes: int) -> tuple[str, ...]:
        """Copy an inside folder to the new host folder ``target``."""
        return await anyio.to_thread.run_sync(self._get_tree, source, target, max_bytes)

    def _get_tree(self, source: str, target: Path, max_bytes: int) -> tuple[str, ...]:
        base, parts = self._place(source)
        try:
            with trees.descend(base, parts, create=False):
                pass
            target.mkdir()
            with trees.opened(target) as folder:
                return trees.copy_tree(base.joinpath(*parts), folder, max_bytes=max_bytes, special="skip")
        except OSError as fault:
            raise SandboxError(f"{source}: cannot be copied to {target} ({fault})", slug="copy-failed") from fault

    async def settle(self) -> None:
        """Give what the host wrote into the folders to the user that commands run as."""
        if self.owner is not None:
            await anyio.to_thread.run_sync(self._settle)

    def _settle(self) -> None:
        for name in FOLDERS:
            try:
                with trees.opened(self.root / name) as folder:
                    trees.give(folder, self.owner or 0)
            except OSError as fault:
                raise SandboxError(
                    f"{self.root / name}: cannot be handed over ({fault})", slug="copy-failed"
                ) from fault

    async def remove_folders(self) -> None:
        """Remove our folder with everything in it."""
        if self.base is not None:
            await anyio.to_thread.run_sync(self._remove, self.base)
            self.base = None
            self.mounted = False

    def _remove(self, base: Path) -> None:
        if self.mounted:
            disk.unmount_below(base)
        trees.remove_tree(base)
