"""Removing what a killed run left: work trees, mounts, control groups, containers, and the processes that hold them.

Only what belongs to a provably dead process of this machine goes. A folder that does not say whose it is stays, and so
does one that another machine or another process-number space made.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pairtrial.core.errors import SandboxError
from pairtrial.sandbox import disk, trees
from pairtrial.sandbox.cgroups import find_hierarchies, sweep_groups
from pairtrial.sandbox.folders import MOUNTED
from pairtrial.sandbox.local import kill_stragglers
from pairtrial.sandbox.owner import LABEL, MAKING, PREFIX, Owner, owner_in_name, owner_of, read_owner, write_owner

SCRATCH = "pairtrial-"
SCRATCH_OWNER = ".owner.json"


@dataclass(frozen=True, slots=True)
class Swept:
    """What was removed, and what could not be judged."""

    folders: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    """Folders of our kind that do not say whose they are, or that could not be removed."""

    @property
    def anything(self) -> bool:
        """True when something was removed."""
        return bool(self.folders or self.processes or self.groups or self.containers)


def sweep(scratch: Path, *, containers: bool = True) -> Swept:
    """Remove what provably dead owners left below ``scratch``, and their containers and control groups.

    Containers anywhere go first, for they hold the folders; ``containers=False`` does not ask the engine.
    """
    boxes = _sweep_containers() if containers else []
    folders: list[str] = []
    processes: list[str] = []
    left: list[str] = []
    for folder in sorted(scratch.iterdir()) if scratch.is_dir() else ():
        if folder.is_symlink() or not folder.is_dir() or not folder.name.startswith((PREFIX, MAKING)):
            continue
        owner = _owner(folder)
        if owner is None:
            left.append(folder.name)
        elif owner.provably_dead:
            for base in (folder, folder / MOUNTED):
                processes += kill_stragglers(base)
            try:
                disk.unmount_below(folder)
                trees.remove_tree(folder)
                folders.append(folder.name)
            except SandboxError:
                left.append(folder.name)
    hierarchies = find_hierarchies()
    groups = [] if hierarchies is None else sweep_groups(hierarchies)
    return Swept(tuple(folders), tuple(processes), tuple(groups), tuple(boxes), tuple(left))


def new_scratch(base: Path) -> Path:
    """A new folder for the work trees of one run; first, what killed runs left below ``base`` is removed.

    The folder says whose it is, as every work tree does. Raises `SandboxError` where it cannot be made.
    """
    _sweep_containers()
    try:
        for folder in sorted(base.glob(SCRATCH + "*")):
            if folder.is_symlink() or not folder.is_dir() or folder.stat().st_uid != os.geteuid():
                continue
            sweep(folder, containers=False)
            said = read_owner(folder, SCRATCH_OWNER)
            if (
                said is not None
                and said[0].provably_dead
                and {path.name for path in folder.iterdir()} == {SCRATCH_OWNER}
            ):
                trees.remove_tree(folder)
        made = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=base)).resolve()
        write_owner(made, SCRATCH_OWNER, {})
    except OSError as fault:
        raise SandboxError(
            f"{base}: no scratch folder can be made ({fault.strerror})",
            hint="name another folder with --scratch",
            slug="scratch-unusable",
        ) from fault
    return made


def _owner(folder: Path) -> Owner | None:
    said = read_owner(folder)
    return said[0] if said is not None else owner_in_name(folder.name)


def _sweep_containers() -> list[str]:
    from pairtrial.sandbox.engine import engine, engine_present, speaking

    if not engine_present():
        return []
    swept = []
    with contextlib.suppress(SandboxError):  # a sick engine is told to those who want it
        known = engine()
        with speaking("listing containers"):
            found = known.api.containers(all=True, filters={"label": LABEL})
        for item in found:
            owner = owner_of(item["Labels"][LABEL])
            if owner is not None and owner.provably_dead:
                with contextlib.suppress(SandboxError), speaking("removing a container"):
                    known.api.remove_container(item["Id"], force=True, v=True)
                    swept.append(str(item["Names"][0]).lstrip("/"))
    return swept
