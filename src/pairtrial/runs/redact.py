"""What must not reach a record: absolute paths of this machine, and secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class Redactor:
    """Replaces known paths and secret values in text, and counts what it replaced.

    Parameters
    ----------
    paths
        Absolute path → the word that stands for it (longest first, so a folder below another keeps its own word).
    secrets
        Name of a credential → its value. Only the name is ever printed. Encoded forms of a value are not covered.
    """

    paths: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    count: int = 0

    def text(self, value: str) -> str:
        """``value`` without the paths and secrets."""
        return self.data(value.encode(errors="surrogateescape")).decode(errors="replace")

    def data(self, value: bytes) -> bytes:
        """The same for bytes."""
        for name, secret in self.secrets.items():
            if len(secret) >= 4:
                value = self._replace(value, secret.encode(), f"<secret:{name}>".encode())
        for path in sorted(self.paths, key=len, reverse=True):
            if len(path) > 1:
                value = self._replace(value, path.encode(errors="surrogateescape"), self.paths[path].encode())
        return value

    def _replace(self, value: bytes, old: bytes, new: bytes) -> bytes:
        found = value.count(old)
        if found:
            self.count += found
            value = value.replace(old, new)
        return value


def machine_paths(**named: Path | str) -> dict[str, str]:
    """Path → placeholder for the given roots, each also in its resolved form, and the user's home."""
    table: dict[str, str] = {}
    for name, path in {**named, "home": Path.home()}.items():
        for form in {str(path), os.path.realpath(path)}:
            table.setdefault(form, f"<{name}>")
    return table
