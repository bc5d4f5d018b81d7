"""What must not be readable: pieces of the hidden tests and of the unbroken source, and how they are recognised.

Everything is computed from the trees themselves (what was taken out of the visible one, what the edit replaced), so it
is the same for every language.
"""

from __future__ import annotations

import difflib
import keyword
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pairtrial.core.canonical import walk_tree
from pairtrial.grading.qualify.programs.reader import normal
from pairtrial.tasks.leaks import MAX_LINE, MIN_LINE, WINDOW, digest16, fingerprint, tokens_of
from pairtrial.tasks.model import Span
from pairtrial.tasks.qualification import Fingerprints

BLOCK = 3
"""Lines of one piece of a hidden test."""
MIN_BLOCK = 40
"""Characters below which a piece says nothing."""
AROUND = 3
"""Lines of the unbroken source on either side of the edited one."""
SHARE = 0.5
"""Share of a hidden passage's pieces in one file from which on the passage counts as readable there."""


@dataclass(frozen=True, slots=True)
class Passage:
    """Text that was taken out of the agent's tree, or that the edit replaced."""

    name: str
    """For messages: file and first line."""
    pieces: tuple[str, ...]
    """Runs of lines; the passage is readable where ``SHARE`` of them are found in one file."""


def hidden_passages(defective: Path, visible: Path) -> tuple[Passage, ...]:
    """What the visible tree lacks of the tree with all tests."""
    passages: list[Passage] = []
    for entry in walk_tree(defective, exclude=(".git",)):
        if entry.kind != "file":
            continue
        before = entry.source.read_bytes()
        other = visible / entry.path
        after = other.read_bytes() if other.is_file() else b""
        if before == after or b"\0" in before[:4096]:
            continue
        for at, lines in _removed(normal(before), normal(after)):
            if pieces := tuple(_pieces(lines)):
                passages.append(Passage(f"{entry.path} (hidden, from its line {at + 1})", pieces))
    return tuple(passages)


def _removed(before: Sequence[bytes], after: Sequence[bytes]) -> Iterator[tuple[int, Sequence[bytes]]]:
    matcher = difflib.SequenceMatcher(a=before, b=after, autojunk=False)
    for kind, start, end, _, _ in matcher.get_opcodes():
        if kind in ("delete", "replace"):
            yield start, before[start:end]


def _pieces(lines: Sequence[bytes]) -> Iterator[str]:
    for at in range(max(1, len(lines) - BLOCK + 1)):
        piece = b"\n".join(lines[at : at + BLOCK])
        if len(piece) >= MIN_BLOCK:
            yield piece.decode("utf-8", "replace")


def gold_passages(unbroken: Path, spans: Sequence[Span]) -> tuple[Passage, ...]:
    """The unbroken line of every edit with the lines around it."""
    passages = []
    for span in spans:
        lines = (unbroken / span.file).read_text("utf-8", "replace").split("\n")
        at = span.line - 1
        before = [line for line in lines[:at] if normal(line.encode())][-AROUND:]
        after = [line for line in lines[at + 1 + span.old.count("\n") :] if normal(line.encode())][:AROUND]
        middle = lines[at : at + 1 + span.old.count("\n")]
        passages.append(Passage(f"{span.file} (unbroken, line {span.line})", ("\n".join([*before, *middle, *after]),)))
    return tuple(passages)


# ---- fingerprints of the fix, for files that a provider hands to the agent ------------------------------------------


def fingerprints(unbroken: Path, defective: Path, visible: Path, spans: Sequence[Span]) -> Fingerprints:
    """Runs of tokens that hold an edit, before and after it, and names that only the unbroken line has."""
    windows: set[str] = set()
    symbols: set[str] = set()
    known: set[str] | None = None
    for file in sorted({span.file for span in spans}):
        here = [span for span in spans if span.file == file]
        before = (unbroken / file).read_text("utf-8", "replace")
        after = (defective / file).read_text("utf-8", "replace")
        windows |= set(_runs(before, after)) | set(_runs(after, before))
        names = {name for span in here for name in re.findall(r"[^\W\d]\w{3,}", span.old)}
        if names:
            known = _words(visible) if known is None else known
            symbols |= {digest16(name) for name in names - known}
    return Fingerprints(windows=tuple(sorted(windows)), symbols=tuple(sorted(symbols)))


def _runs(text: str, other: str) -> Iterator[str]:
    """Fingerprints of the runs of ``text`` that hold a place where it differs from ``other``."""
    words = tokens_of(text)
    for first, last in _changed(words, tokens_of(other)):
        # Two tokens of context stand on either side: a bare operator is no sign of anything.
        for at in range(max(0, last + 2 - WINDOW), min(first - 2, len(words) - WINDOW) + 1):
            yield fingerprint(words[at : at + WINDOW])
        if last - first > WINDOW - 4:
            for at in range(first, last - WINDOW + 1):
                yield fingerprint(words[at : at + WINDOW])
    lines, others = text.split("\n"), set(other.split("\n"))
    for line in lines:
        if line not in others and says_much(line_words := tokens_of(line)):
            yield fingerprint(line_words)


def says_much(words: Sequence[str]) -> bool:
    """Whether a line alone is a sign: long enough, with names in it."""
    names = {word for word in words if len(word) > 2 and word.isidentifier() and not keyword.iskeyword(word)}
    return MIN_LINE <= len(words) <= MAX_LINE and len(names) > 1


def _changed(before: list[str], after: list[str]) -> Iterator[tuple[int, int]]:
    """Places of ``before`` (first token, first after it) that are otherwise in ``after``."""
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < min(len(before), len(after)) - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    middle = difflib.SequenceMatcher(
        a=before[head : len(before) - tail], b=after[head : len(after) - tail], autojunk=False
    )
    for kind, start, end, _, _ in middle.get_opcodes():
        if kind != "equal":
            yield start + head, end + head


def _words(tree: Path) -> set[str]:
    found: set[str] = set()
    for entry in walk_tree(tree, exclude=(".git",)):
        if entry.kind == "file":
            found |= set(re.findall(r"[^\W\d]\w{3,}", entry.source.read_bytes().decode("utf-8", "replace")))
    return found
