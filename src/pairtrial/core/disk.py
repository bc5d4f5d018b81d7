"""Writing that survives a crash: what exists is whole.

A file is written beside its target, flushed to the disk and moved over it; a folder is built under a hidden name and
renamed. After ``kill -9`` at any moment there is the old state or the new one. Costs two ``fsync`` a file.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from pairtrial.core.errors import EnvironmentFault


def fsync_folder(folder: Path) -> None:
    """Flush the entries of a folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data`` in one step; raises `EnvironmentFault` when the disk refuses."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as handle:
                handle.write(data)
                handle.flush()
                os.fsync(handle.fileno())
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        fsync_folder(path.parent)
    except OSError as fault:
        raise EnvironmentFault(
            f"{path}: cannot be written ({fault.strerror})",
            hint="check the disk and the folder's permissions",
            slug="unwritable",
        ) from fault


def publish_folder(building: Path, final: Path) -> None:
    """Flush everything in ``building`` and rename it to ``final``, which must not exist (write-once)."""
    try:
        for root, _, names in os.walk(building):
            for name in names:
                descriptor = os.open(os.path.join(root, name), os.O_RDONLY)  # noqa: PTH118 - os.walk gives strings
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            fsync_folder(Path(root))
        if final.exists():
            raise EnvironmentFault(f"{final}: exists already; receipts are write-once", slug="write-once")
        building.rename(final)
        fsync_folder(final.parent)
    except OSError as fault:
        raise EnvironmentFault(f"{final}: cannot be written ({fault.strerror})", slug="unwritable") from fault


def cache_root() -> Path:
    """Where downloads, environments and prepared trees are kept between runs (``PAIRTRIAL_CACHE`` moves it)."""
    if named := os.environ.get("PAIRTRIAL_CACHE"):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "pairtrial"


def copy_tree(source: Path, target: Path) -> None:
    """Copy a tree with modes, times and links as they are; ``target`` must not exist."""
    shutil.copytree(source, target, symlinks=True)


def remove_tree(path: Path) -> None:
    """Remove a tree, also one whose folders were made unwritable by what ran in it."""

    def unlock(function: object, name: str, _: BaseException) -> None:
        parent = Path(name).parent
        parent.chmod(0o700)
        if Path(name).is_dir() and not Path(name).is_symlink():
            Path(name).chmod(0o700)
            shutil.rmtree(name, ignore_errors=True)
        else:
            Path(name).unlink(missing_ok=True)

    def unlock_legacy(function: object, name: str, info: tuple[type, BaseException, object]) -> None:
        unlock(function, name, info[1])

    if path.is_symlink() or path.is_file():
        path.unlink(missing_ok=True)
    elif path.exists():
        shutil.rmtree(path, onerror=unlock_legacy)
