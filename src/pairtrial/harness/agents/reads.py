"""Which files a tool call read, by the agent's own word.

An agent's reading tools name their files in the call's arguments. A shell is opaque: what a command read is not known, and
nothing is guessed. A call that failed read nothing.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Readers = Mapping[str, tuple[str, ...]]
"""Reading tool → the arguments that name a file or a list of files."""
MAX_NAMED = 100
"""Of one call so many names are taken."""


def read_paths(readers: Readers, server: str | None, name: str, arguments: object, status: str) -> tuple[str, ...]:
    """Files that a call read, as the agent names them; empty for a call that read none or failed."""
    if server is not None or status != "ok" or not isinstance(arguments, dict):
        return ()
    found: list[str] = []
    for argument in readers.get(name, ()):
        value: Any = arguments.get(argument)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str) and item:
                found.append(item)
    return tuple(found[:MAX_NAMED])


def located(call: Mapping[str, Any]) -> tuple[str, ...]:
    """Files of a reading call of the Agent Client Protocol: its ``locations``."""
    if call.get("kind") not in ("read", "search") or call.get("status") != "completed":
        return ()
    listed = call.get("locations")
    paths = [item.get("path") for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    return tuple(path for path in paths if isinstance(path, str) and path)[:MAX_NAMED]


def below(workspace: str, names: Iterable[str], tree: Path | None = None) -> tuple[str, ...]:
    """Names as paths relative to the workspace: sorted, each once, none outside it, no folder of ``tree``."""
    found = set()
    for name in names:
        path = posixpath.normpath(posixpath.join(workspace, name))
        inside = path.removeprefix(workspace.rstrip("/") + "/")
        if inside == path or "\0" in inside or "\\" in inside:
            continue
        if tree is not None and (tree / inside).is_dir():
            continue
        found.add(inside)
    return tuple(sorted(found))
