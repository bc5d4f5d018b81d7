"""The sentence that each outcome authorises, registered in the plan before a number exists."""

from __future__ import annotations

import string
from enum import StrEnum
from typing import Annotated, Self

from pydantic import StringConstraints, model_validator

from pairtrial.core.model import Model


class ClaimKind(StrEnum):
    """What the evidence authorises; one definition for scorer, gate and report."""

    DIFFERENCE = "difference"
    SMALL_DIFFERENCE = "small_difference"
    """A difference was shown, and so was that it is smaller than the registered margin."""
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"
    DESCRIPTIVE = "descriptive"
    """An evidence gate says that the numbers may be described but prove nothing about the question."""
    INVALID = "invalid"


FIELDS = frozenset(
    {
        "treatment", "control", "tasks", "wins", "losses", "ties", "discordant", "floor", "delta_pp", "low_pp",
        "high_pp", "p", "alpha", "margin_pp", "direction", "reason", "control_rate", "treatment_rate",
    }
)  # fmt: skip
"""What a sentence may speak of, in braces."""

FORBIDDEN = ("no effect", "no difference", "as good as", "proves", "proven")
"""Words that none of the statistics here can carry."""

Sentence = Annotated[str, StringConstraints(min_length=10, max_length=600, strip_whitespace=True)]


class Wording(Model):
    """One sentence a claim, with ``{fields}`` that the score fills in."""

    difference: Sentence
    small_difference: Sentence | None = None
    equivalent: Sentence | None = None
    inconclusive: Sentence
    descriptive: Sentence
    invalid: Sentence

    def template(self, kind: ClaimKind) -> str:
        """The sentence registered for ``kind``; a kind without one falls back to ``inconclusive``."""
        text: str | None = getattr(self, kind.value)
        return text if text is not None else self.inconclusive

    @model_validator(mode="after")
    def _known_fields(self) -> Self:
        problems = []
        for kind in ClaimKind:
            text = getattr(self, kind.value)
            if text is None:
                continue
            try:
                used = {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}
            except ValueError as fault:
                problems.append(f"{kind.value}: {fault}")
                continue
            for name in sorted(used - FIELDS):
                problems.append(f"{kind.value}: {{{name}}} is no field; known are {', '.join(sorted(FIELDS))}")
            problems += [
                f"{kind.value}: the words {words!r} claim more than any test here can show"
                for words in FORBIDDEN
                if words in text.lower() and f"not evidence of {words}" not in text.lower()
                and f"{words} was shown" not in text.lower()
            ]  # fmt: skip
        if problems:
            raise ValueError("; ".join(problems))
        return self
