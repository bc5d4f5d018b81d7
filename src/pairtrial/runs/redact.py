"""What must not reach a record: absolute paths of this machine, and secrets."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from urllib.parse import quote


@dataclass(slots=True)
class Redactor:
    """Replaces known paths and secret values in text, and counts what it replaced.

    Parameters
    ----------
    paths
        Absolute path → the word that stands for it (longest first, so a folder below another keeps its own word).
    secrets
        Name of a credential → its value. Only the name is ever printed. Base64 at any offset, hexadecimal and URL-quoted
        forms are covered; a value that is split over two records, or encoded in another way, is not.
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
                for form in encoded_forms(secret.encode()):
                    value = self._replace(value, form, f"<secret:{name}>".encode())
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


@cache
def encoded_forms(secret: bytes) -> tuple[bytes, ...]:
    """A secret as it stands, and as it appears inside the usual encodings of a longer text.

    Base64 turns three bytes into four characters, so a value has one of three forms depending on where it begins; the
    characters at both ends depend on what surrounds it and are left out.
    """
    forms = {secret, quote(secret, safe="").encode(), secret.hex().encode(), secret.hex().upper().encode()}
    for offset in range(3):
        whole = base64.b64encode(b"\0" * offset + secret)
        core = whole[-(-offset * 8 // 6) : (offset + len(secret)) * 8 // 6]
        if len(core) >= 12:
            forms |= {core, core.translate(bytes.maketrans(b"+/", b"-_"))}
    return tuple(sorted(forms, key=len, reverse=True))


def machine_paths(**named: Path | str) -> dict[str, str]:
    """Path → placeholder for the given roots, each also in its resolved form, and the user's home."""
    table: dict[str, str] = {}
    for name, path in {**named, "home": Path.home()}.items():
        for form in {str(path), os.path.realpath(path)}:
            table.setdefault(form, f"<{name}>")
    return table
