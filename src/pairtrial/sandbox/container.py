"""One container: what it is made with, and its processes seen from this machine.

Who is in it, who was killed for memory, and a way to end them. The engine has no call
that ends one command, and none that says whether a command was killed for memory. Both are read from the container's
control group, which a local engine keeps where we can see it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pairtrial.sandbox.cgroups import Counters, field_of, oom_kills
from pairtrial.sandbox.identity import SHM_BYTES
from pairtrial.sandbox.protocol import SandboxSpec

KEEPER = 61001
"""User of the container's own first processes. Not the command's user, so no command can end them."""


OVERHEAD_PIDS = 5
"""Processes of ours in a container: its init, its sleeper, and what stands around a command."""
OVERHEAD_BYTES = 16 << 20
PERIOD_NS = 1_000_000_000
NETWORKS = {"none": "none", "gateway": "none", "open": "bridge"}


class Place(NamedTuple):
    """A folder or file of the host that is mounted in."""

    source: Path
    target: str
    writable: bool = False


def container_config(
    spec: SandboxSpec, image_id: str, places: Sequence[Place], labels: Mapping[str, str], *, mounted: bool
) -> dict[str, Any]:
    """What the engine is asked for; ``mounted`` when the work tree is a tmpfs of its own, which counts as memory."""
    limits = spec.limits
    tmpfs: dict[str, str] = {}
    if any(place.target.startswith("/root/") for place in places):
        tmpfs["/root"] = "rw,size=1m,mode=0755"  # most images keep /root to root, and a mount below it out of reach
    host: dict[str, Any] = {
        "Mounts": [
            {"Type": "bind", "Source": str(source), "Target": target, "ReadOnly": not writable}
            for source, target, writable in places
        ],
        "NetworkMode": NETWORKS[spec.network],
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "ReadonlyRootfs": True,
        "Init": True,
        "ShmSize": SHM_BYTES,
        "Tmpfs": tmpfs,
        "LogConfig": {"Type": "none", "Config": {}},
        "RestartPolicy": {"Name": "no"},
    }
    if limits.memory_bytes is not None:
        extra = OVERHEAD_BYTES + (limits.disk_bytes or 0 if mounted else 0)
        host["Memory"] = host["MemorySwap"] = limits.memory_bytes + extra
    if limits.pids is not None:
        host["PidsLimit"] = limits.pids + OVERHEAD_PIDS
    if limits.cpus is not None:
        host["NanoCpus"] = int(limits.cpus * PERIOD_NS)
    if limits.disk_bytes is not None and not mounted:
        host["Ulimits"] = [{"Name": "fsize", "Soft": limits.disk_bytes, "Hard": limits.disk_bytes}]
    return {
        "Image": image_id,
        "Entrypoint": ["/bin/sleep"],
        "Cmd": ["2147483647"],
        "User": f"{KEEPER}:{KEEPER}",
        "WorkingDir": "/",
        "Hostname": "sandbox",
        "Labels": dict(labels),
        "HostConfig": host,
    }


class Inmates:
    """Processes of a running container, by way of its control groups."""

    def __init__(self, init_pid: int, root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc")) -> None:
        self.init = init_pid
        self.proc = proc
        self.version, self.folders = _folders(init_pid, root, proc)

    @property
    def visible(self) -> bool:
        """False where the engine keeps its control groups out of our sight (another machine, rootless)."""
        return "pids" in self.folders

    def counters(self) -> Counters:
        """How often limits were hit so far."""
        memory, pids = self.folders.get("memory"), self.folders.get("pids")
        return Counters(
            oom_kills=0 if memory is None else oom_kills(memory, self.version),
            pids_refused=0 if pids is None else field_of(pids / "pids.events", "max"),
        )

    def commands(self) -> list[int]:
        """Everything in the container but its own first processes."""
        keeper = self._user(self.init)
        found = []
        for pid in self._members():
            user = self._user(pid)
            if pid != self.init and user is not None and user != keeper:
                found.append(pid)
        return found

    def below(self, pid: int) -> list[int]:
        """Those of them that descend from ``pid``, and ``pid``."""
        parents = {member: self._parent(member) for member in self.commands()}
        found = [pid]
        for ancestor in found:
            found += [member for member, parent in parents.items() if parent == ancestor and member not in found]
        return [member for member in found if member in parents]

    def name(self, pid: int) -> str:
        """What a process calls itself."""
        with contextlib.suppress(OSError):
            return (self.proc / str(pid) / "comm").read_text(errors="replace").strip()
        return "?"

    def tell(self, pids: list[int], number: int) -> None:
        """Send a signal."""
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, number)

    def end(self, root: int | None = None, *, patience_s: float = 5.0) -> bool:
        """Kill all commands, or those below ``root``; False when some stay."""
        give_up = time.monotonic() + patience_s
        while pids := self.commands() if root is None else self.below(root):
            if time.monotonic() > give_up:
                return False
            self.tell(pids, signal.SIGKILL)
            time.sleep(0.002)
        return True

    def _members(self) -> list[int]:
        with contextlib.suppress(OSError, KeyError):
            return [int(word) for word in (self.folders["pids"] / "cgroup.procs").read_text().split()]
        return []

    def _user(self, pid: int) -> int | None:
        """User of a live process; ``None`` for a dead one."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            lines = (self.proc / str(pid) / "status").read_text(errors="replace").splitlines()
            found = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
            return None if found["State"][:1] in "ZX" else int(found["Uid"].split()[0])
        return None

    def _parent(self, pid: int) -> int | None:
        with contextlib.suppress(OSError, IndexError, ValueError):
            return int((self.proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        return None


def _folders(pid: int, root: Path, proc: Path) -> tuple[int, dict[str, Path]]:
    found: dict[str, Path] = {}
    version = 1
    with contextlib.suppress(OSError):
        for line in (proc / str(pid) / "cgroup").read_text().splitlines():
            _, names, path = line.split(":", 2)
            for name in names.split(","):
                if name in ("memory", "pids"):
                    found[name] = root / name / path.lstrip("/")
            if not names and "pids" not in found and (root / path.lstrip("/") / "pids.max").exists():
                version = 2
                found = dict.fromkeys(("memory", "pids"), root / path.lstrip("/"))
    return version, {name: place for name, place in found.items() if place.is_dir()}
