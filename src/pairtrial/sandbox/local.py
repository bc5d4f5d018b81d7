"""The sandbox without isolation: a process tree, a HOME and a TMPDIR of its own, and nothing left afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

import anyio

from pairtrial.core.errors import SandboxError
from pairtrial.sandbox import process, trees
from pairtrial.sandbox.launch import Launch
from pairtrial.sandbox.owner import make_folder
from pairtrial.sandbox.process import HostProcess
from pairtrial.sandbox.protocol import ExecResult, Isolation, LineCallback, SandboxSpec

FOLDERS = ("w", "h", "t")
"""Workspace, HOME and TMPDIR below a sandbox's own folder."""


class HostFolders:
    """Workspace, HOME and TMPDIR in host folders, and safe traffic with them. Every backend keeps its trees so."""

    workspace = ""
    home = ""
    tmp = ""

    def __init__(self, spec: SandboxSpec, kind: str) -> None:
        self.spec = spec
        self.kind = kind
        self.base: Path | None = None
        self.owner: int | None = None
        """User that the commands run as, where it is not ours."""

    @property
    def root(self) -> Path:
        """Our folder below the scratch folder."""
        if self.base is None:
            raise SandboxError(f"sandbox {self.spec.label}: used before prepare or after destroy", slug="not-prepared")
        return self.base

    def make_folders(self) -> Path:
        """Make the three folders."""
        labels = {"label": self.spec.label, "experiment": self.spec.experiment, "kind": self.kind}
        try:
            self.base = make_folder(self.spec.scratch.absolute(), labels)
            self.fill_base()
        except OSError as fault:
            raise SandboxError(
                f"{self.spec.scratch}: no room for a work tree ({fault.strerror})",
                hint="name another folder with --scratch",
                slug="scratch-unusable",
            ) from fault
        return self.base

    def fill_base(self) -> None:
        """Make workspace, HOME and TMPDIR in the folder of this sandbox."""
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

    async def remove_folders(self) -> None:
        """Remove our folder with everything in it."""
        if self.base is not None:
            await anyio.to_thread.run_sync(trees.remove_tree, self.base)
            self.base = None


class LocalSandbox(HostFolders):
    """Commands run on the host as the same user. The receipt says ``isolation: none``."""

    isolation = Isolation.NONE

    def __init__(self, spec: SandboxSpec) -> None:
        super().__init__(spec, "local")
        self._running: list[HostProcess] = []

    @property
    def facts(self) -> Mapping[str, str]:
        """What the receipt says."""
        return {
            "sandbox": self.kind,
            "isolation": self.isolation.value,
            "paths": "differ between rollouts, same length",
            "network": "open (not isolated)",
        }

    async def prepare(self) -> None:
        """Make the folders."""
        for mount in self.spec.mounts:
            if not mount.source.exists():
                raise SandboxError(f"{mount.source}: no such file or folder to mount", slug="missing-mount")
        base = self.make_folders()
        self.workspace, self.home, self.tmp = (str(base / name) for name in FOLDERS)

    def inside_path(self, source: Path) -> str:
        """Without isolation a host path is the inside path."""
        return str(source)

    def _launch(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Launch:
        own = {**env, "HOME": self.home, "TMPDIR": self.tmp}
        return Launch(tuple(argv), own, cwd or self.workspace, on_lost=partial(kill_stragglers, self.root))

    def _timeout(self, wanted: float) -> float:
        return min(wanted, self.spec.limits.wall_s)

    async def exec(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        stdin: bytes = b"",
        timeout_s: float,
        on_stdout: LineCallback | None = None,
        output_cap: int | None = None,
    ) -> ExecResult:
        """Run a command to its end and kill what it left."""
        running = process.begin(
            self._launch(argv, env, cwd),
            timeout_s=self._timeout(timeout_s),
            stdin=stdin,
            lines=on_stdout is not None,
            output_cap=output_cap or self.spec.limits.output_bytes,
        )
        self._running.append(running)
        try:
            return await running.wait(on_stdout)
        finally:
            self._running.remove(running)

    async def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        timeout_s: float,
        output_cap: int | None = None,
    ) -> HostProcess:
        """Start a command that can be talked to."""
        self._running = [one for one in self._running if not one.ended]
        running = await process.start(
            self._launch(argv, env, cwd),
            timeout_s=self._timeout(timeout_s),
            output_cap=output_cap or self.spec.limits.output_bytes,
        )
        self._running.append(running)
        return running

    async def serve_gateway(self, *, host_port: int | None = None, unix_socket: Path | None = None) -> str:
        """Without isolation the host's own port is in reach."""
        if host_port is None:
            raise SandboxError("the local sandbox reaches the gateway by its port", slug="gateway")
        return f"http://127.0.0.1:{host_port}"

    async def kill(self) -> None:
        """End every process that was started in it."""
        for running in self._running:
            await running.kill()
        self._running.clear()
        if self.base is not None:
            kill_stragglers(self.base)

    async def destroy(self) -> None:
        """Kill, then remove everything."""
        with anyio.CancelScope(shield=True):
            await self.kill()
            await self.remove_folders()


def kill_stragglers(base: Path) -> tuple[str, ...]:
    """Kill processes that belong to a work tree by their HOME or working folder; gives their names.

    A last net, for processes that lost their keeper. Linux only.
    """
    if sys.platform != "linux":
        return ()
    found: dict[int, str] = {}
    home = f"HOME={base}/h".encode()
    for _ in range(20):
        fresh = [pid for pid in _numbers() if pid not in found and _belongs(pid, base, home)]
        for pid in fresh:
            with contextlib.suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
                os.kill(pid, signal.SIGKILL)
        if not fresh:
            break
    return tuple(sorted(found.values()))


def _numbers() -> list[int]:
    names = (entry.name for entry in Path("/proc").iterdir())
    return [int(name) for name in names if name.isdigit() and int(name) != os.getpid()]


def _belongs(pid: int, base: Path, home: bytes) -> bool:
    try:
        if home in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            return True
        return Path(f"/proc/{pid}/cwd").readlink().is_relative_to(base)
    except OSError:
        return False
