"""npm's lock file: read, never resolved. Every package is pinned with its integrity, and none that is needed is missing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_INTEGRITY = re.compile(r"sha512-[A-Za-z0-9+/]{86}==")


class Package(NamedTuple):
    """One place below ``node_modules``."""

    place: str
    name: str
    version: str


def read_npm_lock(text: str) -> tuple[tuple[Package, ...], list[str]]:
    """The packages of a lock file (version 3), and one line for everything that is not pinned."""
    try:
        document = json.loads(text)
        entries = dict(document["packages"])
    except (ValueError, KeyError, TypeError):
        return (), ["not npm's lock file (package-lock.json)"]
    if document.get("lockfileVersion") != 3:
        return (), [f"lockfileVersion is {document.get('lockfileVersion')!r}, must be 3; make it with npm 7 or later"]
    packages: list[Package] = []
    problems: list[str] = []
    for place, entry in sorted(entries.items()):
        if not place:
            continue
        name = str(entry.get("name") or place.rpartition("node_modules/")[2])
        problems += [f"{place}: {fault}" for fault in _faults(place, entry)]
        packages.append(Package(place, name, str(entry.get("version", ""))))
    problems += _missing(entries)
    return tuple(packages), problems


def _faults(place: str, entry: Mapping[str, Any]) -> list[str]:
    faults = []
    if entry.get("link") or not place.startswith("node_modules/"):
        faults.append("a link or a workspace is not accepted; pin a release")
    if "resolved" in entry:
        faults.append("names an address; make the lock with `npm install --omit-lockfile-registry-resolved`")
    if not re.fullmatch(r"\d+\.\d+\.\d+[0-9A-Za-z.+-]*", str(entry.get("version", ""))):
        faults.append("has no exact version")
    if not _INTEGRITY.fullmatch(str(entry.get("integrity", ""))):
        faults.append("has no SHA-512 integrity")
    return faults


def _missing(entries: Mapping[str, Any]) -> list[str]:
    """Requirements that node would not find from where they are needed."""
    problems = []
    for place, entry in sorted(entries.items()):
        kinds = ("dependencies", "peerDependencies") if place else ("dependencies", "devDependencies")
        optional = entry.get("peerDependenciesMeta", {})
        for kind in kinds:
            for name in sorted(entry.get(kind, {})):
                if kind == "peerDependencies" and optional.get(name, {}).get("optional"):
                    continue
                if not _is_found(place, name, entries):
                    problems.append(f"{place or 'the root'} needs {name}, which is not pinned")
    return problems


def _is_found(place: str, name: str, entries: Mapping[str, Any]) -> bool:
    while True:
        if f"{place}/node_modules/{name}".lstrip("/") in entries:
            return True
        if not place:
            return False
        place = place.rpartition("node_modules/")[0].rstrip("/")


def root_manifest(text: str) -> str:
    """The ``package.json`` that belongs to a lock."""
    root = json.loads(text)["packages"].get("", {})
    kept = ("name", "version", "dependencies", "devDependencies")
    manifest = {name: root[name] for name in kept if name in root}
    return json.dumps({"name": "environment", "version": "1.0.0", **manifest, "private": True})
