"""Control groups: the memory, process and CPU limits of a sandbox, and the counters that say which one fired.

Version 1 (one hierarchy a controller) and version 2 (one for all) differ in every name; both are covered here and
nowhere else. Where no group can be made (no root, no delegation) `available` says why, and the sandbox falls back to
per-process limits and says so in its facts.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from pairtrial.core.errors import SandboxError
from pairtrial.sandbox.owner import Owner, current_owner
from pairtrial.sandbox.protocol import Limits

PREFIX = "pairtrial-"
V1_CONTROLLERS = ("pids", "memory", "cpu")
PERIOD_US = 100_000


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Where this process may make groups."""

    version: int
    parents: dict[str, Path]
    """Controller to the folder below which its groups are made; in version 2 all are the same folder."""


@dataclass(frozen=True, slots=True)
class Counters:
    """How often limits were hit so far."""

    oom_kills: int = 0
    pids_refused: int = 0


def _mounts(proc: Path) -> list[tuple[str, Path, set[str]]]:
    found = []
    for line in (proc / "mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind in ("cgroup", "cgroup2"):
            found.append((kind, Path(place), set(options.split(","))))
    return found


def _own_paths(proc: Path) -> dict[str, str]:
    found = {}
    for line in (proc / "self" / "cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            found[name] = path
    return found


def find_hierarchies(proc: Path = Path("/proc")) -> Hierarchies | None:
    """Where groups can be made; ``None`` when nowhere."""
    try:
        mounts, own = _mounts(proc), _own_paths(proc)
    except OSError:
        return None
    v1: dict[str, Path] = {}
    for controller in V1_CONTROLLERS:
        for kind, place, options in mounts:
            if kind == "cgroup" and controller in options and (parent := _usable(place, own.get(controller, "/"))):
                v1[controller] = parent
    if "pids" in v1:
        return Hierarchies(1, v1)
    for kind, place, _ in mounts:
        if kind == "cgroup2" and (parent := _usable_v2(place, own.get("", "/"))):
            return Hierarchies(2, dict.fromkeys(V1_CONTROLLERS, parent))
    return None


def _usable(place: Path, own: str) -> Path | None:
    for candidate in (place / own.lstrip("/"), place):
        if candidate.is_dir() and os.access(candidate, os.W_OK):
            return candidate
    return None


def _usable_v2(place: Path, own: str) -> Path | None:
    """Our own group, or its parent: a group that holds processes cannot hand controllers to groups below it."""
    here = place / own.lstrip("/")
    for candidate in (here, here.parent):
        if not candidate.is_relative_to(place) or not os.access(candidate / "cgroup.procs", os.W_OK):
            continue
        with contextlib.suppress(OSError):
            (candidate / "cgroup.subtree_control").write_text("+memory +pids +cpu")
        with contextlib.suppress(OSError):
            given = {word.lstrip("+") for word in (candidate / "cgroup.subtree_control").read_text().split()}
            if {"memory", "pids"} <= given:
                return candidate
    return None


class Group:
    """One control group (in version 1: one a controller) for the commands of one sandbox."""

    def __init__(self, hierarchies: Hierarchies, name: str) -> None:
        self.version = hierarchies.version
        self._folders = {controller: parent / f"{PREFIX}{name}" for controller, parent in hierarchies.parents.items()}

    @property
    def folders(self) -> tuple[str, ...]:
        """What a command enters."""
        return tuple(dict.fromkeys(str(folder) for folder in self._folders.values()))

    def make(self, limits: Limits, *, extra_memory: int = 0, extra_pids: int = 0) -> None:
        """Make the group and set its limits; ``extra`` is what our own helpers in it need."""
        try:
            for folder in self._folders.values():
                folder.mkdir(exist_ok=True)
            if limits.memory_bytes is not None:
                self._limit_memory(limits.memory_bytes + extra_memory)
            if limits.pids is not None:
                self._write("pids", "pids.max", str(limits.pids + extra_pids))
            if limits.cpus is not None:
                self._limit_cpus(limits.cpus)
        except (OSError, KeyError) as fault:
            self.remove()
            raise SandboxError(f"control group cannot be set up: {fault}", slug="cgroup") from fault

    def _write(self, controller: str, name: str, value: str) -> None:
        (self._folders[controller] / name).write_text(value)

    def _limit_memory(self, size: int) -> None:
        if self.version == 2:
            self._write("memory", "memory.max", str(size))
            with contextlib.suppress(OSError):
                self._write("memory", "memory.swap.max", "0")
            return
        self._write("memory", "memory.limit_in_bytes", str(size))
        with contextlib.suppress(OSError):  # absent without swap accounting
            self._write("memory", "memory.memsw.limit_in_bytes", str(size))

    def _limit_cpus(self, cpus: float) -> None:
        quota = str(max(1000, int(cpus * PERIOD_US)))
        if self.version == 2:
            self._write("cpu", "cpu.max", f"{quota} {PERIOD_US}")
            return
        self._write("cpu", "cpu.cfs_period_us", str(PERIOD_US))
        self._write("cpu", "cpu.cfs_quota_us", quota)

    def counters(self) -> Counters:
        """How often limits were hit so far."""
        memory, pids = self._folders.get("memory"), self._folders["pids"]
        return Counters(
            oom_kills=0 if memory is None else oom_kills(memory, self.version),
            pids_refused=field_of(pids / "pids.events", "max"),
        )

    def members(self) -> list[int]:
        """Processes in it."""
        with contextlib.suppress(OSError):
            return [int(word) for word in (self._folders["pids"] / "cgroup.procs").read_text().split()]
        return []

    def kill(self) -> bool:
        """Kill everything in it; True when nothing is left."""
        give_up = time.monotonic() + 5
        while pids := self.members():
            if time.monotonic() > give_up:
                return False
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)
        return True

    def remove(self) -> None:
        """Kill what is in it and remove it."""
        self.kill()
        for folder in dict.fromkeys(self._folders.values()):
            for _ in range(200):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:  # the last process is not yet reaped
                    time.sleep(0.01)
                else:
                    break


def oom_kills(folder: Path, version: int) -> int:
    """Processes that the kernel killed for memory in a group so far."""
    return field_of(folder / ("memory.oom_control" if version == 1 else "memory.events"), "oom_kill")


def field_of(path: Path, name: str) -> int:
    """A number from a file of names and numbers; 0 when it is not there."""
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0


def group_name(folder: str) -> str:
    """Name of the group of a work tree; it spells out the owner, for there is nowhere to write it down."""
    owner = current_owner()
    space = "".join(letter for letter in owner.space if letter.isdigit())
    return f"{folder}.{owner.pid}.{owner.start}.{space}"


def sweep_groups(hierarchies: Hierarchies) -> list[str]:
    """Remove the groups of provably dead owners; gives their names."""
    swept = []
    here = current_owner()
    space = "".join(letter for letter in here.space if letter.isdigit())
    names: set[str] = set()
    for parent in hierarchies.parents.values():
        names |= {entry.name.removeprefix(PREFIX) for entry in parent.glob(PREFIX + "*") if entry.is_dir()}
    for name in sorted(names):
        parts = name.split(".")
        if len(parts) != 4 or not parts[1].isdigit() or parts[3] != space:
            continue
        if Owner(int(parts[1]), parts[2], here.boot, here.host, here.space).provably_dead:
            Group(hierarchies, name).remove()
            swept.append(name)
    return swept
