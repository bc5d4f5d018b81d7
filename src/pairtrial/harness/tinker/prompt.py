"""What tinker reads out of a prompt: the words, the example and the command of the visible tests."""

from __future__ import annotations

import keyword
import re
import shlex
from dataclasses import dataclass

_FENCE = re.compile(r"^(?P<mark>`{3,}|~{3,})[ \t]*(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=mark)[ \t]*$", re.M | re.S)
_WORD = re.compile(r"[A-Za-z]{3,}")
_COMMON = """
the and for are but not you all any can had has have her was one our out its that this with from they will would there
their what when where which while about into than then them these those should could does did doing done only same
such some more most other each every also after before because instead expected actual result results value values
returns return returned gives given got get gets call called calls calling use used using works work working wrong bug
broken fix fixed fails fail failing failed error errors code function functions method methods file files test tests
testing run runs running example examples python pytest repository project package module assert print none true false
"""
_DULL = frozenset(_COMMON.split()) | frozenset(word.lower() for word in keyword.kwlist)


@dataclass(frozen=True, slots=True)
class Prompt:
    """The parts of a prompt."""

    prose: str
    """Everything outside of fenced blocks."""
    example: str | None
    """Body of the first ``python`` block: fails now, passes once the fault is repaired."""
    command: tuple[str, ...]
    """Command of the visible tests; empty when the prompt names none."""

    @property
    def query(self) -> str:
        """What a search server is asked."""
        return "\n\n".join(part for part in (self.prose, self.example) if part)

    @property
    def words(self) -> frozenset[str]:
        """Words of three letters and more that say something; identifiers are cut at underscores."""
        return frozenset(word.lower() for word in _WORD.findall(self.query)) - _DULL


def parse_prompt(text: str) -> Prompt:
    """Cut a prompt into its parts; the order of the blocks does not matter."""
    text = text.replace("\r\n", "\n")
    example: str | None = None
    command: tuple[str, ...] = ()
    for block in _FENCE.finditer(text):
        words = block["info"].split()
        language = words[0].lower() if words else ""
        if language in {"python", "py"} and example is None:
            example = block["body"]
        elif language in {"sh", "shell", "bash", "console"} and not command:
            command = _command(block["body"])
    prose = re.sub(r"\n{3,}", "\n\n", _FENCE.sub("", text)).strip()
    return Prompt(prose=prose, example=example, command=command)


def _command(body: str) -> tuple[str, ...]:
    for line in body.splitlines():
        line = line.strip().removeprefix("$ ")
        if line and not line.startswith("#"):
            try:
                return tuple(shlex.split(line))
            except ValueError:
                return ()
    return ()
