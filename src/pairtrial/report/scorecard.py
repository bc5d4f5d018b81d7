"""The scorecard: the normalised result of a run, as data. Every report is made from it and from nothing else."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from pairtrial.core.canonical import canonical_json
from pairtrial.core.model import Model, Sha256, Slug
from pairtrial.prereg.wording import ClaimKind

SCORECARD_FILE = "scorecard.json"


class ArmCounts(Model):
    """Where the cells of one arm went: planned = graded + invalid + not run."""

    arm: Slug
    kind: str
    planned: int
    graded: int
    resolved: int
    """Of the graded."""
    finished: int
    """Graded cells in which the agent believed that it was done; not a result."""
    invalid: dict[str, int]
    """Status → cells whose last attempt ended so."""
    not_run: int
    excluded: int
    """Graded cells left out because another arm of their block is not graded."""
    attempts: int
    """All attempts, also those that were run again."""
    regrades: int = 0
    """Gradings that were made up for after a fault of ours, without the agent."""
    interrupted: int
    """Attempts that were started and left no receipt (the run was killed)."""
    stop_reasons: dict[str, int]
    context_used: int | None
    """Graded cells with at least one call to the arm's servers; null for an arm without servers."""
    touched_tests: int
    """Graded cells whose work touched protected paths (put back before grading)."""

    @model_serializer(mode="wrap")
    def _without_none(self, inner: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Where nothing was graded again the counts have the bytes that they had before that could be."""
        values: dict[str, Any] = inner(self)
        if not self.regrades:
            values.pop("regrades", None)
        return values


class ExcludedBlock(Model):
    """A block that does not count, and why."""

    task: Slug
    repetition: int
    statuses: dict[str, str]
    """Arm → status, `not_run` where there is none."""


class TaskRow(Model):
    """One task: resolved cells of its complete blocks by arm."""

    task: Slug
    category: str | None
    blocks: int
    """Complete blocks."""
    resolved: dict[str, int]
    finished: dict[str, int]


class IntervalRecord(Model):
    """An interval for a difference of proportions; null with a reason where there is none."""

    method: str
    level: float
    low: float | None
    high: float | None
    reason: str | None


class Comparison(Model):
    """One arm against the control; the unit is the task."""

    treatment: Slug
    control: Slug
    registered: bool
    tasks: int
    wins: int
    """Tasks on which the treatment resolved more repetitions than the control."""
    losses: int
    ties: int
    discordant: int
    delta: float | None
    """Mean over tasks of (treatment − control), as a proportion."""
    test: str
    p: float | None
    p_holm: float | None
    p_midp: float | None
    s_value: float | None
    """−log2 p: bits of evidence against equality."""
    floor: int
    """Discordant tasks that are needed before any result could be significant and registered."""
    intervals: tuple[IntervalRecord, ...]
    equivalence_p: float | None
    effect: Annotated[ClaimKind, Field(strict=False)]
    """What test, floor and margin say, before the evidence gates."""
    disagreement: str | None
    """One line where an interval and the test would tell different stories."""


class Replicate(Model):
    """What the control does when it is run again under another name."""

    arm: Slug
    blocks: int
    flips: int
    """Blocks in which control and replicate got different grades."""
    rate: float | None
    low: float | None
    high: float | None
    limit: float
    odd_one_out: dict[str, Any]
    """Treatment → test of whether the treatment is the odd one among the three more often than one time in three."""
    mcnemar_p: float | None


class Ratio(Model):
    """Arm over control, paired by task."""

    tasks: int
    geometric: float | None
    low: float | None
    high: float | None
    median: float | None
    """Median over tasks of the ratio."""
    of_means: float | None
    """Ratio of the arms' means: one long task can own it."""
    censored: int
    """Rollouts of the two arms that a time limit cut off."""
    reason: str | None


class Metric(Model):
    """A registered secondary metric: described, never decisive."""

    name: str
    unit: str
    arms: dict[str, dict[str, float | None]]
    """Arm → median, mean and count over complete blocks."""
    ratios: dict[str, Ratio]


class MissingRuns(Model):
    """The result over every way to fill in the missing runs."""

    missing: int
    low: float | None
    """Difference when every missing run speaks against the treatment."""
    high: float | None
    p_low: float | None
    p_high: float | None
    tipping_point: int | None
    """Missing runs that must have succeeded to change the verdict; null: none can, or several repetitions."""


class Sensitivity(Model):
    """What the result of one comparison rests on. Exploratory."""

    treatment: Slug
    missing: MissingRuns
    delta_treatment_first: float | None
    delta_control_first: float | None
    blocks_treatment_first: int
    blocks_control_first: int
    clusters: int | None
    """Repositories that the tasks come from."""
    clustered_low: float | None
    clustered_high: float | None
    clustered_reliable: bool | None
    delta_pooled_control: float | None
    """Difference against the mean of control and replicate."""
    clean_cache: dict[str, float | None]
    """Arm → mean cost of a rollout in USD with every token at the price of a fresh one; null where nothing is metered.
    The second arm of a block reads what the first one cached, so plain cost favours whoever comes later."""
    within_task_p: float | None
    """Q test over relabelled runs inside tasks: speaks about these very tasks."""


class Claim(Model):
    """The one sentence that the evidence authorises for a comparison."""

    treatment: Slug
    kind: Annotated[ClaimKind, Field(strict=False)]
    sentence: str
    test_sentence: str | None
    """What test, floor and margin say by themselves, where a gate keeps it from being the claim."""
    gates: tuple[str, ...]
    """Evidence gates that said no."""


class Scorecard(Model):
    """Everything that is said about a run."""

    schema_: Annotated[Literal["pairtrial.scorecard.v1"], Field(alias="schema")]
    plan_id: Sha256
    plan: Slug
    question: str
    stage: str
    estimand: tuple[str, ...]
    """Population, treatments, outcome, intercurrent events and summary measure in plain words."""
    conflict_of_interest: str
    agent: dict[str, str]
    agent_limits: str
    """What a result with this agent cannot say."""
    embedded: bool
    isolation: tuple[str, ...]
    exceptions: tuple[str, ...] = ()
    """Tasks that are not qualified and are used all the same, each with the registered reason."""
    differences: tuple[str, ...] = ()
    """Declared settings that one arm alone has besides its provider, one sentence each; the claims carry them too."""
    amendments: tuple[str, ...]
    """Every amendment in one line each, oldest first."""
    committed: bool | None
    """Whether the lock was committed when the rollouts started; null outside a git repository."""
    complete: bool
    """Every cell has a final receipt."""
    blocks_planned: int
    blocks_complete: int
    excluded: tuple[ExcludedBlock, ...]
    arms: tuple[ArmCounts, ...]
    tasks: tuple[TaskRow, ...]
    comparisons: tuple[Comparison, ...]
    replicates: tuple[Replicate, ...]
    variance: dict[str, dict[str, float]]
    """Treatment → variance components of its task differences; empty with one repetition."""
    secondary: tuple[Metric, ...]
    sensitivity: tuple[Sensitivity, ...]
    positions: dict[str, tuple[int, ...]]
    """Arm → how often it stood in each position of a block."""
    invalidation_p: dict[str, float | None]
    """Arm → exact test of unequal invalidation against the control."""
    toolchains: tuple[dict[str, str], ...]
    claims: tuple[Claim, ...]

    @model_serializer(mode="wrap")
    def _without_empty(self, inner: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A scorecard without exceptions and differences has the bytes that it had before there were any."""
        values: dict[str, Any] = inner(self)
        for name in ("exceptions", "differences"):
            if not getattr(self, name):
                values.pop(name, None)
        return values

    def to_bytes(self) -> bytes:
        """Canonical JSON, one line; two scorings of one run give the same bytes."""
        return canonical_json(self.model_dump(mode="json", by_alias=True)) + b"\n"

    def arm(self, name: str) -> ArmCounts:
        """Counts of one arm."""
        return next(counts for counts in self.arms if counts.arm == name)
