"""The pinned tree without what a target leaves out, and with the edits that let its tests run."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import anyio.to_thread

from pairtrial.core.canonical import digest_json
from pairtrial.core.disk import remove_tree
from pairtrial.core.errors import TaskError
from pairtrial.tasks.defects import apply_defect
from pairtrial.tasks.model import TargetDocument


class _Source(Protocol):
    async def check(self) -> None: ...

    async def fetch(self, cache: Path) -> None: ...

    async def materialise(self, cache: Path, target: Path) -> None: ...

    def digest(self) -> str: ...


class Adapted:
    """A source whose tree is changed the same way every time; what comes out is the unbroken tree."""

    def __init__(self, source: _Source, document: TargetDocument, name: str) -> None:
        self._source = source
        self._document = document
        self._name = name

    async def check(self) -> None:
        await self._source.check()

    async def fetch(self, cache: Path) -> None:
        await self._source.fetch(cache)

    async def materialise(self, cache: Path, target: Path) -> None:
        await self._source.materialise(cache, target)
        await anyio.to_thread.run_sync(self._change, target)

    def digest(self) -> str:
        edits = [span.model_dump(mode="json") for span in self._document.adapt]
        return digest_json({"source": self._source.digest(), "remove": sorted(self._document.remove), "adapt": edits})

    def _change(self, target: Path) -> None:
        for path in self._document.remove:
            place = target / path
            if not place.exists() and not place.is_symlink():
                raise TaskError(
                    f"{self._name}: remove: {path}: no such file or folder in the source", slug="no-such-path"
                )
            remove_tree(place)
        apply_defect(target, self._document.adapt, task=f"{self._name}: adapt")
