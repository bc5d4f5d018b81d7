"""Canonical JSON (RFC 8785) and the digests that identify things.

A tree digest hashes, for every entry in byte order of its POSIX path, ``type``, ``mode``, ``path`` and
``content``, each preceded by its length as eight big-endian bytes. The length prefix keeps two different
trees from giving one byte stream (``a`` + ``bc`` against ``ab`` + ``c``).
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import rfc8785

CHUNK = 1 << 20


def canonical_json(value: Any) -> bytes:
    """RFC 8785 bytes of a JSON value; NaN and infinities raise ``ValueError``."""
    return rfc8785.dumps(value)


def is_canonical(data: bytes, value: Any) -> bool:
    """Whether ``data`` is the canonical JSON of ``value`` (which was parsed from it).

    The standard library's encoder writes the same bytes for nearly every document and is fifty times faster; only
    where it does not (some floats, keys beyond the basic plane) the real one is asked.
    """
    quick = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return quick.encode("utf-8", "surrogatepass") == data or canonical_json(value) == data


def sha256_hex(data: bytes) -> str:
    """Lowercase hexadecimal SHA-256."""
    return hashlib.sha256(data).hexdigest()


def digest_json(value: Any) -> str:
    """SHA-256 of the canonical JSON of ``value``."""
    return sha256_hex(canonical_json(value))


def sha256_file(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while piece := handle.read(CHUNK):
            digest.update(piece)
    return digest.hexdigest()


class TreeEntry(NamedTuple):
    """One file or symbolic link below a root."""

    path: str
    """POSIX path relative to the root."""
    kind: str
    """``file`` or ``link``."""
    executable: bool
    source: Path


def walk_tree(root: Path, *, exclude: Iterable[str] = ()) -> Iterator[TreeEntry]:
    """Files and links below ``root`` in byte order of their paths; links are never followed.

    ``exclude`` holds names of folders and files that are left out at any depth (``.git``, ``__pycache__``).
    Sockets, pipes and devices are passed over: they have no content to identify.
    """
    names = frozenset(exclude)
    found: list[TreeEntry] = []

    def visit(folder: str, prefix: str) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name in names:
                    continue
                relative = prefix + entry.name
                if entry.is_symlink():
                    found.append(TreeEntry(relative, "link", False, Path(entry.path)))
                elif entry.is_dir(follow_symlinks=False):
                    visit(entry.path, relative + "/")
                elif entry.is_file(follow_symlinks=False):
                    mode = entry.stat(follow_symlinks=False).st_mode
                    found.append(TreeEntry(relative, "file", bool(mode & stat.S_IXUSR), Path(entry.path)))

    visit(os.fspath(root), "")
    found.sort(key=lambda item: os.fsencode(item.path))
    yield from found


def tree_digest(root: Path, *, exclude: Iterable[str] = ()) -> str:
    """Length-prefixed SHA-256 of the files and links below ``root`` (empty folders do not count)."""
    digest = hashlib.sha256()

    def put(part: bytes) -> None:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)

    for entry in walk_tree(root, exclude=exclude):
        put(entry.kind.encode())
        put(b"x" if entry.executable else b"-")
        put(os.fsencode(entry.path))
        if entry.kind == "link":
            put(os.fsencode(os.readlink(entry.source)))
        else:
            with entry.source.open("rb") as handle:
                size = os.fstat(handle.fileno()).st_size
                digest.update(size.to_bytes(8, "big"))
                while piece := handle.read(CHUNK):
                    digest.update(piece)
    return digest.hexdigest()
