"""Who a command is, and where it finds things, inside every isolating sandbox."""

from __future__ import annotations

import os
from pathlib import Path

WORKSPACE, HOME, TMP = "/workspace", "/home/agent", "/tmp"  # noqa: S108 - paths inside
AGENT = 61000
"""User that commands run as when we are root; nobody's on an ordinary machine."""
SHM_BYTES = 64 << 20
"""Size of ``/dev/shm``: private to each command or container, and empty at its start."""
FILES = {
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "hosts": "127.0.0.1 localhost\n",
}


def write_identity(folder: Path, user: int) -> None:
    """Write the files by which a command knows itself: two users, one host."""
    people = f"root:x:0:0:root:/root:/bin/sh\nagent:x:{user}:{user}:agent:{HOME}:/bin/sh\n"
    if user == 0:
        people = people.splitlines()[0] + "\n"
    (folder / "passwd").write_text(people)
    (folder / "group").write_text(f"root:x:0:\nagent:x:{user}:\n" if user else "root:x:0:\n")
    for name, text in FILES.items():
        (folder / name).write_text(text)


def user_of_commands() -> int:
    """User that commands run as on this machine: ours, or a made-up one where we are root."""
    return AGENT if os.geteuid() == 0 else os.geteuid()
