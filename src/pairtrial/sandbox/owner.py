"""Who made a work tree, and whether that process still lives.

Every sandbox has a folder of fixed-length random name below the scratch folder, and in it ``owner.json``. A folder
is made under a name that spells out its owner and renamed when that file is complete, so at no moment is there a
folder whose owner nobody can tell.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import socket
import subprocess
import sys
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pairtrial.core.canonical import sha256_hex

OWNER_FILE = "owner.json"
PREFIX = "r-"
MAKING = "n-"


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, told apart from a later one with the same number."""

    pid: int
    start: str
    """Start time of the process, in the kernel's own count."""
    boot: str
    """This start of the machine."""
    host: str
    space: str
    """The process-number space that ``pid`` belongs to."""

    @property
    def provably_dead(self) -> bool:
        """True only when this machine can tell: same host, and either an earlier boot or the process is gone."""
        here = current_owner()
        if self.host != here.host:
            return False
        if self.boot != here.boot:
            return True
        if self.space != here.space:
            return False
        return start_time(self.pid) != self.start


def start_time(pid: int) -> str | None:
    """When a process started; ``None`` when it is gone."""
    if sys.platform != "linux":
        command = ["/bin/ps", "-o", "lstart=", "-p", str(pid)]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


@cache
def _machine() -> tuple[str, str, str]:
    if sys.platform == "linux":
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = str(Path("/proc/self/ns/pid").readlink())
    else:
        shown = subprocess.run(["/usr/sbin/sysctl", "-n", "kern.boottime"], capture_output=True, text=True, check=False)
        boot, space = shown.stdout.strip(), "host"
    return boot, f"{socket.gethostname()} {platform.machine()}", space


def current_owner() -> Owner:
    """This process."""
    boot, host, space = _machine()
    return Owner(pid=os.getpid(), start=start_time(os.getpid()) or "", boot=boot, host=host, space=space)


def make_folder(scratch: Path, labels: dict[str, str]) -> Path:
    """A new folder of ours below ``scratch``; its name has the same length every time and tells nothing."""
    owner = current_owner()
    scratch.mkdir(parents=True, exist_ok=True)
    name = secrets.token_hex(8)
    making = scratch / f"{MAKING}{owner.pid}-{owner.start.replace(' ', '_')}-{_place(owner)}-{name}"
    making.mkdir(mode=0o700)
    write_owner(making, OWNER_FILE, labels)
    final = scratch / f"{PREFIX}{name}"
    making.rename(final)
    return final


def _place(owner: Owner) -> str:
    return sha256_hex(f"{owner.host}\0{owner.boot}\0{owner.space}".encode())[:12]


def owner_in_name(name: str) -> Owner | None:
    """Owner of a folder that was still being made; ``None`` when it was not made here since the last boot."""
    parts = name.removeprefix(MAKING).split("-")
    here = current_owner()
    if not name.startswith(MAKING) or len(parts) != 4 or not parts[0].isdigit() or parts[2] != _place(here):
        return None
    return Owner(int(parts[0]), parts[1].replace("_", " "), here.boot, here.host, here.space)


LABEL = "pairtrial.owner"
"""Label of a container that names its owner."""


def labels_of(labels: dict[str, str], folder: str) -> dict[str, str]:
    """The same record as labels of a container."""
    own = {LABEL: json.dumps(asdict(current_owner()), sort_keys=True), "pairtrial.folder": folder}
    return own | {f"pairtrial.{name}": value for name, value in labels.items()}


def owner_of(text: str) -> Owner | None:
    """Owner from a label; ``None`` when it does not say."""
    try:
        return Owner(**json.loads(text))
    except (ValueError, TypeError):
        return None


def write_owner(folder: Path, name: str, labels: dict[str, str]) -> None:
    """Say in ``folder`` that it is ours."""
    record = {"owner": asdict(current_owner()), "labels": labels}
    (folder / name).write_text(json.dumps(record, sort_keys=True))


def read_owner(folder: Path, name: str = OWNER_FILE) -> tuple[Owner, dict[str, Any]] | None:
    """Owner and labels of a folder; ``None`` when it does not say, and then nothing may be concluded."""
    try:
        record = json.loads((folder / name).read_text())
        labels = dict(record["labels"])
        return Owner(**record["owner"]), labels
    except (OSError, ValueError, TypeError, KeyError):
        return None
