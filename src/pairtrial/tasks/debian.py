"""Downloading and unpacking one Debian binary package.

The package is read here, not by dpkg: an ``ar`` archive whose ``data.tar`` goes through the same unpacking as every
other archive, so nothing of it can be written outside, and no script of it runs.
"""

from __future__ import annotations

import io
import shutil
from pathlib import Path

from pairtrial.core.disk import remove_tree
from pairtrial.core.errors import EnvironmentFault, TaskError
from pairtrial.tasks.archive import unpack
from pairtrial.tasks.model import DebianBinary
from pairtrial.tasks.registry import call, only_file, said

MAGIC = b"!<arch>\n"
MAX_DATA = 512 << 20


async def download_deb(document: DebianBinary, target: Path) -> None:
    """Write the package of this name and version to ``target``; its hash is not checked here."""
    folder = target.parent / "deb"
    folder.mkdir()
    wanted = f"{document.name}={document.version}"
    argv = ["apt-get", "download", "-q", wanted]
    code, _, complaint = await call(
        argv, folder, wants=wanted, hint="use a machine with apt, or put the .deb in the cache"
    )
    found = only_file(folder, ".deb")
    if code == 0 and found is not None:
        found.rename(target)
        return
    if "not found" in complaint or "Unable to locate" in complaint:
        raise TaskError(f"the configured apt archive has no {wanted}: {said(complaint)}",
                        hint="run `apt-get update` if it never was; else the release has moved on",
                        slug="no-such-release")  # fmt: skip
    raise EnvironmentFault(
        f"{wanted} cannot be downloaded: {said(complaint) or f'apt-get ended with {code}'}",
        hint="check the network and run `apt-get update`; what has been downloaded before needs no network",
        slug="registry-unreachable",
    )


def unpack_deb(archive: Path, target: Path, *, name: str, folder: str) -> None:
    """Unpack what lies in ``folder`` of the package into the new folder ``target``."""
    data = target.with_name(f"{target.name}.data")
    whole = target.with_name(f"{target.name}.whole")
    try:
        data.write_bytes(_data_member(archive.read_bytes(), name))
        unpack(data, whole, name=name)
        # `unpack` takes the single top folder (usr) off.
        _, _, below = folder.partition("/")
        inner = whole / below
        if not below or not inner.is_dir() or inner.is_symlink():
            raise TaskError(f"{name}: source.folder: {folder}: no such folder in the package", slug="archive-layout")
        shutil.move(inner, target)
    finally:
        remove_tree(data)
        remove_tree(whole)


def _data_member(package: bytes, name: str) -> bytes:
    """The bytes of ``data.tar.*``, with zstd taken off (the others are known to `unpack`)."""
    if not package.startswith(MAGIC):
        raise TaskError(f"{name}: not a Debian package", slug="archive-damaged")
    stream = io.BytesIO(package[len(MAGIC) :])
    while len(head := stream.read(60)) == 60:
        member = head[:16].decode("ascii", "replace").strip().rstrip("/")
        size = head[48:58].decode("ascii", "replace").strip()
        if not size.isdigit() or head[58:] != b"`\n":
            break
        body = stream.read(int(size))
        stream.read(int(size) % 2)
        if len(body) != int(size):
            break
        if member.startswith("data.tar"):
            return _without_zstd(body) if member.endswith(".zst") else body
    raise TaskError(f"{name}: damaged: it holds no data.tar", slug="archive-damaged")


def _without_zstd(body: bytes) -> bytes:
    import zstandard

    with zstandard.ZstdDecompressor().stream_reader(body) as reader:
        data: bytes = reader.read(MAX_DATA)
    return data
