"""An agent that reads everything: run inside the sandbox of a rollout, it looks for pieces of text that must not be there.

It gets one JSON document on stdin and writes one to stdout. It reads files, archives, compiled Python, and every git
object, reachable or not. Below the folders in ``shallow`` (the machine's own programs, the same for every task) only
files that are called like a file of the task are read.
"""

# Runs inside the sandbox, with the standard library only.
# ruff: noqa: PTH118, PTH208, S607

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import stat
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

TRIM = b" \t\r+-|>\"'`,;"
"""Taken off both ends of every line: quotes, diff signs and list marks do not hide a line."""
MAX_FILE = 64 << 20
NEVER = ("/proc", "/sys", "/dev")
EXPANDERS: tuple[tuple[bytes, Callable[[io.BytesIO], Any]], ...] = (
    (b"\x1f\x8b", lambda raw: gzip.GzipFile(fileobj=raw)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ", lzma.LZMAFile),
)


class Reader:
    """Holds what is looked for, and what was found."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.shallow = tuple(request["shallow"])
        self.names = frozenset(request["names"])
        self.stems = tuple(name.partition(".")[0] + "." for name in request["names"])
        self.words = [word.encode() for word in request["words"]]
        self.needles: dict[bytes, list[tuple[int, list[bytes]]]] = {}
        for number, text in enumerate(request["needles"]):
            lines = normal(text.encode())
            if lines:
                self.needles.setdefault(lines[0], []).append((number, lines))
        self.hits: dict[str, list[int | str]] = {}
        self.files = 0
        self.total = 0

    # ---- files -----------------------------------------------------------------------------------------------------
    def walk(self, roots: Iterable[str]) -> None:
        pending = list(roots)
        while pending:
            folder = pending.pop()
            try:
                entries = list(os.scandir(folder))
            except OSError:
                continue
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        if entry.path not in NEVER:
                            pending.append(entry.path)
                    elif stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode) and self.wants(entry):
                        self.file(entry.path)
                except OSError:
                    continue

    def wants(self, entry: os.DirEntry[str]) -> bool:
        if not entry.path.startswith(self.shallow):
            return True
        return entry.name in self.names or (entry.name.endswith(".pyc") and entry.name.startswith(self.stems))

    def file(self, path: str) -> None:
        with open(path, "rb") as handle:  # noqa: PTH123
            data = handle.read(MAX_FILE)
        self.files += 1
        self.total += len(data)
        self.data(data, path, 2)

    def data(self, data: bytes, place: str, depth: int) -> None:
        """One file's bytes: as text, and unpacked where it is an archive."""
        self.text(data, place)
        if depth:
            for name, inner in unpacked(data):
                self.data(inner, f"{place}!{name}", depth - 1)

    def text(self, data: bytes, place: str) -> None:
        if b"\0" in data[:4096]:
            # Compiled Python keeps the names of its functions; other binaries (an index of git) hold names by nature.
            for word in self.words if place.endswith(".pyc") else ():
                if word in data:
                    self.hits.setdefault(place, []).append(word.decode())
            return
        lines = normal(data)
        for at, line in enumerate(lines):
            for number, wanted in self.needles.get(line, ()):
                if lines[at : at + len(wanted)] == wanted:
                    self.hits.setdefault(place, []).append(number)

    # ---- git -------------------------------------------------------------------------------------------------------
    def repository(self, workspace: str) -> dict[str, int]:
        """Read every object and count what could carry history."""
        before = frozenset(os.listdir(os.path.join(workspace, ".git")))
        lost = git(workspace, "fsck", "--lost-found", "--full", "--no-progress", "--unreachable").splitlines()
        objects = git(workspace, "cat-file", "--batch-all-objects", "--batch")
        paths = {}
        for row in git(workspace, "ls-tree", "-r", "-z", "HEAD").split(b"\0"):
            head, _, path = row.partition(b"\t")
            if path:
                paths[head.split()[2].decode()] = path.decode("utf-8", "replace")
        kinds: dict[str, int] = {"commit": 0, "tag": 0, "tree": 0, "blob": 0}
        stream = io.BytesIO(objects)
        while head := stream.readline():
            name, kind, size = head.decode().split()
            body = stream.read(int(size))
            stream.read(1)
            kinds[kind] += 1
            self.data(body, f"git:{paths.get(name, name)}", 2)
        return {
            "commits": kinds["commit"],
            "tags": kinds["tag"],
            "unreachable": sum(b"unreachable" in line or b"dangling" in line for line in lost),
            "references": len(git(workspace, "for-each-ref").splitlines()),
            "remotes": len(git(workspace, "remote").splitlines()),
            "stashes": len(git(workspace, "stash", "list").splitlines()),
            "reflog": len(git(workspace, "reflog", "--all").splitlines()),
            "logs": int("logs" in before),
            "alternates": int(os.path.exists(os.path.join(workspace, ".git/objects/info/alternates"))),  # noqa: PTH110
            "changes": len(git(workspace, "status", "--porcelain", "--ignored").splitlines()),
        }


def git(workspace: str, *arguments: str) -> bytes:
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", "-C", workspace, *arguments], capture_output=True, check=False
    )
    return done.stdout + (done.stderr if arguments[0] == "fsck" else b"")


def normal(data: bytes) -> list[bytes]:
    """The lines that say something, without indentation and marks."""
    return [line for raw in data.split(b"\n") if (line := raw.strip(TRIM))]


def unpacked(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Members of an archive, or the content of a compressed file."""
    try:
        if data.startswith(b"PK"):
            with zipfile.ZipFile(io.BytesIO(data)) as bundle:
                for member in bundle.infolist():
                    if not member.is_dir() and member.file_size <= MAX_FILE:
                        yield member.filename, bundle.read(member)
            return
        for magic, expand in EXPANDERS:
            if data.startswith(magic):
                yield "content", expand(io.BytesIO(data)).read(MAX_FILE)
                return
        if data[257:262] == b"ustar":
            with tarfile.open(fileobj=io.BytesIO(data)) as bundle_:
                for part in bundle_:
                    if part.isreg() and part.size <= MAX_FILE and (handle := bundle_.extractfile(part)):
                        yield part.name, handle.read()
    except (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError):
        return


def main() -> None:
    request = json.load(sys.stdin)
    reader = Reader(request)
    facts = reader.repository(request["workspace"]) if request["git"] else {}
    reader.walk(request["roots"])
    json.dump({"hits": reader.hits, "git": facts, "files": reader.files, "bytes": reader.total}, sys.stdout)


if __name__ == "__main__":
    main()
