"""The dependency lock of a target: read, never resolved.

A lock is what ``uv pip compile --generate-hashes`` writes. Only pinned, hashed requirements are accepted, because
anything else would let the same task have two environments.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

_HASH = re.compile(r"--hash=(\S+)")


class Pin(NamedTuple):
    """One requirement of a lock."""

    name: str
    """Canonical name."""
    version: str


def read_lock(text: str) -> tuple[tuple[Pin, ...], list[str]]:
    """The pins of a lock, and one line for every requirement that is not pinned and hashed."""
    pins: list[Pin] = []
    problems: list[str] = []
    for number, line in _logical_lines(text):
        try:
            pins.append(_pin(line))
        except ValueError as fault:
            problems.append(f"line {number}: {fault}")
    return tuple(pins), problems


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Requirements with their continuation lines joined, and the line on which each starts."""
    found: list[tuple[int, str]] = []
    parts: list[str] = []
    start = 1
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#.*$", "", raw).strip()
        if not parts:
            start = number
        more = line.endswith("\\")
        parts.append(line.removesuffix("\\").strip())
        if not more:
            joined = " ".join(part for part in parts if part)
            if joined:
                found.append((start, joined))
            parts = []
    joined = " ".join(part for part in parts if part)
    return [*found, (start, joined)] if joined else found


def _pin(line: str) -> Pin:
    if line.startswith("-"):
        raise ValueError(f"option {line.split()[0]!r} is not accepted; only pinned, hashed requirements are")
    hashes = _HASH.findall(line)
    specification = _HASH.sub("", line).strip()
    try:
        requirement = Requirement(specification)
    except InvalidRequirement:
        raise ValueError(f"{specification!r} is not a requirement") from None
    if requirement.url:
        raise ValueError(f"{requirement.name}: a URL is not accepted; pin a version")
    exact = [item for item in requirement.specifier if item.operator == "==" and "*" not in item.version]
    if len(exact) != 1 or len(list(requirement.specifier)) != 1:
        raise ValueError(f"{requirement.name}: not pinned with one '=='")
    if not hashes:
        raise ValueError(f"{requirement.name}: no hash; compile the lock with --generate-hashes")
    if not all(re.fullmatch(r"sha256:[0-9a-f]{64}", item) for item in hashes):
        raise ValueError(f"{requirement.name}: a hash is not 'sha256:' and 64 digits")
    return Pin(canonicalize_name(requirement.name), exact[0].version)
