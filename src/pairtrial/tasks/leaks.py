"""Does a file that a provider hands to the agent, or keeps beside its server, spell out the fix of a task?

A mechanical comparison, by line: with what ``task.yaml`` itself says (ids of task and hidden tests, file and line of the
edit, the edit beside the name of its function), and with the fingerprints of the unbroken source that qualification
wrote. It needs no network and no source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pairtrial.core.canonical import sha256_hex
from pairtrial.tasks.pack import Task
from pairtrial.tasks.qualification import Fingerprints, Qualification

WINDOW = 8
"""Tokens of one run around an edit."""
MIN_LINE, MAX_LINE = 5, 40
"""Tokens of a whole line that is a sign by itself."""
NEAR = 3
"""Lines that count as one passage of prose."""
_TOKEN = re.compile(r"\w+|[<>=!]=|\*\*|//|->|:=|&&|\|\||[^\w\s]")


def tokens_of(text: str) -> list[str]:
    """Words, numbers and operators, without white space: layout does not hide a line."""
    return _TOKEN.findall(text)


def digest16(text: str) -> str:
    """First 64 bits of the SHA-256."""
    return sha256_hex(text.encode())[:16]


def fingerprint(words: Sequence[str]) -> str:
    """A run of tokens: how many, and their digest."""
    return f"{len(words)}:{digest16(chr(0).join(words))}"


@dataclass(frozen=True, slots=True)
class Leak:
    """One line that gives a task away."""

    file: str
    line: int
    task: str
    why: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: gives away task {self.task}: {self.why}"


def leaks_in(file: str, data: bytes, tasks: Iterable[tuple[Task, Qualification | None]]) -> list[Leak]:
    """Every line of a text file that gives a task away; a binary file holds no line."""
    if b"\0" in data[:4096]:
        return []
    text = data.decode("utf-8", "replace")
    lines = text.split("\n")
    found: list[Leak] = []
    words = [(number, word) for number, line in enumerate(lines, 1) for word in tokens_of(line)]
    runs: dict[int, Mapping[str, int]] = {}
    for task, qualification in tasks:
        seen = set()
        hits = [*_named(task, lines), *_printed(qualification.fingerprints if qualification else None, words, runs)]
        for number, why in sorted(hits):
            if number not in seen:
                seen.add(number)
                found.append(Leak(file, number, task.id, why))
    return sorted(found, key=lambda leak: (leak.line, leak.task))


def _named(task: Task, lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """What can be told from the task's own document."""
    words = {task.id: "the task's own id"}
    for test_id in task.fail_to_pass:
        name = re.split(r"::| > ", test_id.partition("[")[0])[-1].strip()
        if len(name) > 5 and re.fullmatch(r"[\w.]+", name):
            words[name] = f"hidden test {name}"
    text = "\n".join(lines)
    named = [(re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])"), why) for word, why in words.items() if word in text]
    lower = text.lower()
    for span in task.defect:
        if span.file.rpartition("/")[2].lower() in lower:
            named.append((_place(span.file, span.line), "file and line of the edit"))
        if span.scope and span.old.strip() in text and span.new.strip() in text:
            yield from _explained(span.scope, span.old.strip(), span.new.strip(), lines)
    if named:
        for number, line in enumerate(lines, 1):
            yield from ((number, why) for pattern, why in named if pattern.search(line))


def _place(file: str, line: int) -> re.Pattern[str]:
    """``name.py:12``, ``name.py#L12``, ``line 12 of name.py`` and ``name.py ... line 12`` on one line."""
    name = re.escape(file.rpartition("/")[2])
    return re.compile(
        rf"{name}(:|#L?|\", line |.{{0,40}}\blines? ){line}(?!\d)|\blines? {line}\b.{{0,40}}{name}", re.IGNORECASE
    )


def _explained(scope: str, old: str, new: str, lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The function's name near both halves of the edit, each in quotes: "in `join`, `not in` became `in`"."""
    if not old or not new:
        return
    holder = re.compile(rf"(?<!\w){re.escape(scope.rpartition('.')[2])}(?!\w)")
    halves = [re.compile(rf"[`'\"]\s*{re.escape(half)}\s*[`'\"]") for half in (old, new)]
    for number in range(len(lines)):
        if not any(half.search(lines[number]) for half in halves):
            continue
        near = "\n".join(lines[max(0, number - NEAR + 1) : number + NEAR])
        if holder.search(near) and all(half.search(near) for half in halves):
            yield number + 1, f"the edit in {scope}, before and after"


def _printed(
    prints: Fingerprints | None, words: Sequence[tuple[int, str]], runs: dict[int, Mapping[str, int]]
) -> Iterator[tuple[int, str]]:
    """What can be told from the fingerprints of the unbroken source."""
    if prints is None:
        return
    for print_ in prints.windows:
        size = int(print_.partition(":")[0])
        if size not in runs:
            texts = [word for _, word in words]
            runs[size] = {fingerprint(texts[at : at + size]): words[at][0] for at in range(len(texts) - size, -1, -1)}
        if (number := runs[size].get(print_)) is not None:
            yield number, "the source around the edit"
    if prints.symbols:
        wanted = frozenset(prints.symbols)
        for number, word in words:
            if len(word) > 3 and digest16(word) in wanted:
                yield number, f"{word}, a name that only the fix has"
