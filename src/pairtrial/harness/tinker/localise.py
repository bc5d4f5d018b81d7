"""Where to look: the words of the prompt against file names, and what a search server answered."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pairtrial.harness.tinker.candidates import Candidate
from pairtrial.harness.tinker.sources import SourceFile

FILE_NAME_FACTOR = 4.0
OUTSIDE_FACTOR = 0.1
ANSWER_STRENGTH = 12.0
ANSWER_DECAY = 3.0
ANSWERS_USED = 10
_PART = re.compile(r"[a-z]+")
_SUBSTRING_LETTERS = 4
"""A word this long may also stand inside of a longer name (``size`` in ``filesize``); a shorter one must be a part of it."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One place in a server's answer."""

    path: str
    line: int | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Focus:
    """What is known about where the fault may be."""

    words: frozenset[str] = frozenset()
    ranks: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(file, function) → rank in the server's answer, from 0."""

    def weight(self, candidate: Candidate) -> float:
        """Relative weight of a candidate."""
        weight = candidate.prior
        if names_file(candidate.path, self.words):
            weight *= FILE_NAME_FACTOR
        if candidate.function is None:
            return weight * OUTSIDE_FACTOR
        rank = self.ranks.get((candidate.path, candidate.function))
        return weight if rank is None else weight * (1 + ANSWER_STRENGTH * math.exp(-rank / ANSWER_DECAY))


def names_file(path: str, words: frozenset[str]) -> bool:
    """Whether a word of the prompt is in the file's name (its folders do not count)."""
    stem = path.rsplit("/", 1)[-1].rsplit(".", 1)[0].lower()
    if words.intersection(_PART.findall(stem)):
        return True
    return any(len(word) >= _SUBSTRING_LETTERS and word in stem for word in words)


def ranks_of(hits: Iterable[Hit], sources: Sequence[SourceFile]) -> dict[tuple[str, str], int]:
    """Rank of every function that the answer names; a place that is in no function is passed over."""
    by_path = {source.path: source for source in sources}
    ranks: dict[tuple[str, str], int] = {}
    for hit in hits:
        if len(ranks) == ANSWERS_USED:
            break
        source = by_path.get(hit.path.removeprefix("./"))
        name = _function_name(hit, source) if source is not None else None
        if source is not None and name is not None:
            ranks.setdefault((source.path, name), len(ranks))
    return ranks


def _function_name(hit: Hit, source: SourceFile) -> str | None:
    if hit.line is not None:
        function = source.function_at(hit.line)
        if function is not None:
            return function.name
    return next((function.name for function in source.functions if function.name == hit.name), None)
