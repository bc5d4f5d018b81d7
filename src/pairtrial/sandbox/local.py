"""The sandbox without isolation: a process tree, a HOME and a TMPDIR of its own, and nothing left afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pairtrial.core.errors import SandboxError
from pairtrial.sandbox.folders import FOLDERS
from pairtrial.sandbox.hosted import HostedSandbox
from pairtrial.sandbox.launch import Launch
from pairtrial.sandbox.protocol import Isolation, SandboxSpec


class LocalSandbox(HostedSandbox):
    """Commands run on the host as the same user. The receipt says ``isolation: none``."""

    isolation = Isolation.NONE

    def __init__(self, spec: SandboxSpec) -> None:
        super().__init__(spec, "local")

    @property
    def facts(self) -> Mapping[str, str]:
        """What the receipt says."""
        return {
            "sandbox": self.kind,
            "isolation": self.isolation.value,
            "paths": "differ between rollouts, same length",
            "network": "open (not isolated)",
            **self._limit_facts,
        }

    async def prepare(self) -> None:
        """Make the folders."""
        self.make_folders()
        self.workspace, self.home, self.tmp = (str(self.root / name) for name in FOLDERS)
        self.make_group(always=True)

    def inside_path(self, source: Path) -> str:
        """Without isolation a host path is the inside path."""
        return str(source)

    def mount_points(self, folder: str) -> frozenset[str]:
        """Nothing is mounted."""
        return frozenset()

    def _launch(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Launch:
        return Launch(tuple(argv), env, cwd or str(self.root / "w"), on_lost=self._catch)

    def _catch(self) -> tuple[str, ...]:
        """Kill what escaped by killing its keeper."""
        names = kill_stragglers(self.root)
        if self.group is not None:
            self.group.kill()
        return names

    async def serve_gateway(self, *, host_port: int | None = None, unix_socket: Path | None = None) -> str:
        """Without isolation the host's own port is in reach."""
        if host_port is None:
            raise SandboxError("the local sandbox reaches the gateway by its port", slug="gateway")
        return f"http://127.0.0.1:{host_port}"

    async def kill(self) -> None:
        """End every process that was started in it."""
        await super().kill()
        if self.base is not None and self.group is None:
            kill_stragglers(self.root)


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
