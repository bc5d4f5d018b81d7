"""What qualification found about the tasks of a pack: the document ``qualification.json`` beside ``pack.yaml``.

It is written by `pairtrial.grading.qualify` and read when a plan is checked or frozen. An entry holds no time and no
count of this machine's files, so qualifying again gives the same bytes; how long it took stands beside the entries.
Of a target it holds digests only, never text.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from pairtrial.core.canonical import canonical_json, digest_json
from pairtrial.core.errors import TaskError
from pairtrial.core.model import Model, Sha256, Slug, describe
from pairtrial.tasks.pack import Pack, Task

FILE = "qualification.json"
MIN_REPEAT = 3
"""Repetitions below which nothing is called stable."""
Digest16 = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
"""First 64 bits of a SHA-256: enough to recognise, nothing to read."""
Run = Annotated[str, Field(pattern=r"^[0-9]{1,2}:[0-9a-f]{16}$")]
"""Number of tokens, and the digest of the run."""


class Fault(StrEnum):
    """What keeps a task from being used, worst first."""

    LEAKING = "leaking"
    """The workspace, or something else that an agent can read, gives the answer or the hidden tests away."""
    INVALID = "invalid"
    """The task is not what its author says: other tests fail, or the unbroken tree does not pass."""
    FLAKY = "flaky"
    """Some outcome depends on chance, order, clock, time zone, locale, place, hash seed or load."""
    TOO_FEW = "too-few-repetitions"
    """Fewer repetitions than a verdict needs."""


class Problem(Model):
    """One thing that is wrong with a task."""

    fault: Annotated[Fault, Field(strict=False)]
    text: str


class Rounds(Model):
    """Runs of the whole suite under one condition."""

    condition: str
    """``as-graded`` (in file order), ``varied`` (order, clock, time zone and locale, path and hash seed) or ``load``."""
    defective: int = Field(ge=0)
    """Runs with the defect in which exactly fail_to_pass failed."""
    defective_runs: int = Field(ge=0)
    unbroken: int = Field(ge=0)
    """Runs without the defect in which the whole baseline passed; shared by the tasks of a target."""
    unbroken_runs: int = Field(ge=0)
    note: str = ""
    """What this condition could not vary here."""


class Fingerprints(Model):
    """By what a leak of the fix is recognised, without the text of the target."""

    windows: Annotated[tuple[Run, ...], Field(strict=False)] = ()
    """Pieces of the unbroken and of the defective text around the edit, as hashed runs of tokens."""
    symbols: Annotated[tuple[Digest16, ...], Field(strict=False)] = ()
    """Names that stand in the unbroken line and nowhere in the agent's tree."""


class Qualification(Model):
    """What was found about one task."""

    definition: Sha256
    """Digest of the task as it was qualified."""
    workspace: Sha256
    """Digest of the tree that an agent sees."""
    environment: Sha256
    grader: Sha256
    conditions: Sha256
    """Digest of everything that was varied, and how."""
    repeat: int = Field(ge=1)
    sandbox: str
    """Where the suites ran."""
    clock: str
    """How another clock was made."""
    rounds: Annotated[tuple[Rounds, ...], Field(strict=False)]
    noop: str
    """What grading said about an agent that does nothing."""
    gold: str
    """What grading said about the unbroken source."""
    visible_tests: int = Field(ge=0)
    """Tests that run in the agent's tree; none of fail_to_pass is among them."""
    example: str
    """What the prompt's example did before and after."""
    reader: str
    """Which sandbox the agent that reads everything ran in; ``none`` where this machine has no isolating one."""
    runtime: str = ""
    """Identity of the agents' runtime that it looked through; empty where that was our own environment."""
    needles: int = Field(ge=0)
    """Pieces of hidden tests and of unbroken source that it looked for."""
    exposed: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """What system folders of the qualifying machine showed beside the task: a matter of where rollouts run."""
    fingerprints: Fingerprints
    problems: Annotated[tuple[Problem, ...], Field(strict=False)] = ()

    @property
    def verdict(self) -> str:
        """``qualified``, or the worst fault."""
        found = {problem.fault for problem in self.problems}
        return next((fault.value for fault in Fault if fault in found), "qualified")

    @property
    def digest(self) -> str:
        """What the lock holds of it."""
        return digest_json(self.model_dump(mode="json", by_alias=True))


class QualificationDocument(Model):
    """Everything that was found about a pack."""

    schema_: Literal["pairtrial.qualification.v1"] = Field(alias="schema")
    pack: Slug
    tasks: dict[Slug, Qualification]
    seconds: dict[Slug, float] = Field(default_factory=dict)
    """How long each task took when it was last run, not taken from the cache; no part of any digest."""

    def to_bytes(self) -> bytes:
        """Canonical JSON, ending in a newline."""
        return canonical_json(self.model_dump(mode="json", by_alias=True)) + b"\n"


def read_qualifications(pack: Pack) -> dict[str, Qualification]:
    """The entries beside the pack; empty when it was never qualified, `TaskError` for a file that is not ours."""
    document = read_document(pack)
    return dict(document.tasks) if document else {}


def read_document(pack: Pack) -> QualificationDocument | None:
    """The whole file; None when there is none."""
    path = pack.folder / FILE
    try:
        document = QualificationDocument.model_validate(json.loads(path.read_bytes()), strict=False)
    except FileNotFoundError:
        return None
    except ValidationError as fault:
        raise TaskError("\n".join(f"{path}: {line}" for line in describe(fault)), slug="bad-qualification") from None
    except (OSError, ValueError) as fault:
        raise TaskError(f"{path}: cannot be read ({fault})", slug="bad-qualification") from None
    if document.pack != pack.id:
        raise TaskError(f"{path}: pack: is {document.pack!r}, the pack is {pack.id!r}", slug="bad-qualification")
    return document


def why_unqualified(task: Task, found: Qualification | None) -> str | None:
    """Why a task may not be frozen; None when it may."""
    if found is None:
        return "was never qualified"
    if found.definition != task.digest:
        return "has been changed since it was qualified"
    if found.repeat < MIN_REPEAT:
        return f"was qualified with {found.repeat} repetition(s), {MIN_REPEAT} are needed"
    if found.problems:
        first = found.problems[0].text
        more = f" (and {len(found.problems) - 1} more)" if len(found.problems) > 1 else ""
        return f"is {found.verdict}: {first}{more}"
    return None
