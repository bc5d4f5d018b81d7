"""The disk limit of a sandbox: a sized tmpfs where we may mount one, else a look at the tree every now and then."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from pairtrial.core.errors import SandboxError
from pairtrial.sandbox.protocol import LimitName

MNT_DETACH = 2
MS_NOSUID, MS_NODEV = 2, 4


def may_mount() -> bool:
    """True where this process can mount a tmpfs."""
    return sys.platform == "linux" and os.geteuid() == 0


def mount_tmpfs(folder: Path, size: int) -> bool:
    """Mount a tmpfs of ``size`` bytes; False where the machine does not let us."""
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"size={size},mode=0755".encode()
    refused: int = libc.mount(b"pairtrial", os.fsencode(folder), b"tmpfs", MS_NOSUID | MS_NODEV, options)
    return refused == 0


def unmount_below(folder: Path) -> None:
    """Detach every mount at or below ``folder``, deepest first."""
    if sys.platform != "linux":
        return
    base = str(folder)
    places = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        place = line.split()[1].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        if place == base or place.startswith(base + "/"):
            places.append(place)
    libc = ctypes.CDLL(None, use_errno=True) if places else None
    for place in sorted(places, key=len, reverse=True):
        if libc is not None and libc.umount2(os.fsencode(place), MNT_DETACH):
            raise SandboxError(f"{place}: cannot be unmounted", slug="cleanup-failed")


def used_bytes(folder: Path, enough: int) -> int:
    """Bytes that a tree takes on disk, counted until there are more than ``enough``."""
    total = 0
    todo = [str(folder)]
    while todo and total <= enough:
        try:
            with os.scandir(todo.pop()) as listing:
                for entry in listing:
                    try:
                        info = entry.stat(follow_symlinks=False)
                        if entry.is_dir(follow_symlinks=False):
                            todo.append(entry.path)
                    except OSError:
                        continue
                    total += info.st_blocks * 512
        except OSError:
            continue
    return total


class DiskWatch:
    """Tells when a work tree is full."""

    def __init__(self, folder: Path, limit: int, *, mounted: bool) -> None:
        self.folder = folder
        self.limit = limit
        self.mounted = mounted
        self.was_full = False

    def look(self) -> LimitName | None:
        """``disk`` when the command must be ended; on a sized tmpfs the kernel refuses by itself."""
        if self.mounted:
            state = os.statvfs(self.folder)
            self.was_full |= state.f_bavail * state.f_frsize < max(1 << 16, self.limit >> 8)
            return None
        if used_bytes(self.folder, self.limit) > self.limit:
            self.was_full = True
            return "disk"
        return None
