"""The preregistered plan: everything that could move a result, and nothing else.

A plan is one YAML file in ``prereg/``. Paths in it are relative to that file. Reading it finds every problem at once;
what needs the tasks, the providers or the agent to be read is checked by `pairtrial.prereg.check`.
"""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, StringConstraints, model_serializer, model_validator

from pairtrial.core.model import Model, Slug, load_yaml
from pairtrial.core.status import Status
from pairtrial.prereg.estimand import Estimand
from pairtrial.prereg.wording import Wording

Path_ = Annotated[str, StringConstraints(pattern=r"^[^/\\\x00][^\\\x00]*$")]
"""Path relative to the plan's own folder; may climb with ``..`` (plans and packs are siblings)."""
Text = Annotated[str, StringConstraints(min_length=10, strip_whitespace=True)]
Usd = Annotated[Decimal, Field(ge=0, strict=False)]
Option = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
"""Name of an adapter's setting."""


class ArmKind(StrEnum):
    """What an arm is for."""

    CONTROL = "control"
    TREATMENT = "treatment"
    REPLICATE = "replicate"


class Difference(Model):
    """A setting of the agent that one arm alone has: a second difference beside its provider."""

    value: bool | int | str
    reason: Text
    """Why this arm cannot do without it; every report prints it."""


class Arm(Model):
    """One column of the experiment."""

    name: Slug
    kind: Annotated[ArmKind, Field(strict=False)]
    provider: Path_ | None = None
    """Folder of the provider; required for a treatment, refused elsewhere."""
    differences: dict[Option, Difference] = Field(default_factory=dict)
    """Setting of the agent → the value that this arm has instead of the plan's; treatments only, and only what the
    agent's manifest lists under ``may_differ``. The claim about the arm carries it."""

    @model_validator(mode="after")
    def _provider_fits(self) -> Self:
        if (self.kind is ArmKind.TREATMENT) != (self.provider is not None):
            raise ValueError(f"arm {self.name!r}: a treatment names its provider, every other arm has none")
        if self.differences and self.kind is not ArmKind.TREATMENT:
            raise ValueError(
                f"arm {self.name!r}: differences: only a treatment may differ; a {self.kind.value} is started with the "
                "plan's agent.options; remove them"
            )
        return self

    @model_serializer(mode="wrap")
    def _without_empty(self, inner: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """No differences leave no trace: a lock from before they existed keeps its bytes."""
        values: dict[str, Any] = inner(self)
        if not self.differences:
            values.pop("differences", None)
        return values


class AgentLimits(Model):
    """What one rollout may use. Reaching a limit stops the agent; the work that it left is graded."""

    wall_s: Annotated[float, Field(gt=0, le=86_400, strict=False)]
    """Seconds of wall clock."""
    turns: Annotated[int, Field(gt=0)]
    """Turns of a model agent, repair steps of the embedded one."""


class AgentSpec(Model):
    """The agent, the same in every arm."""

    adapter: Slug
    version: str
    """The exact version that the startup event must report."""
    model: str
    """The exact model id that the startup event must report."""
    limits: AgentLimits
    options: dict[Option, bool | int | str] = Field(default_factory=dict)
    """Settings of the adapter, the same in every arm that declares no difference; each adapter's page lists its own."""
    served: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Further names by which the pinned model may answer (dated ids of an alias). Any other ends the rollout."""
    endpoint: Annotated[str, StringConstraints(pattern=r"^https?://[^\s]+$")] | None = None
    """Where the gateway forwards to; absent: the provider's own address."""
    credential: Annotated[str, StringConstraints(pattern=r"^[A-Z_][A-Z0-9_]*$")] | None = None
    """Environment variable that holds the key; absent: the one in the agent's manifest."""


class TaskSelection(Model):
    """Which tasks the experiment speaks about."""

    pack: Path_
    ids: Annotated[tuple[Slug, ...], Field(min_length=1, strict=False)]
    exceptions: dict[Slug, Text] = Field(default_factory=dict)
    """Task that is not qualified → why the experiment uses it all the same; every report prints it."""

    @model_validator(mode="after")
    def _unique(self) -> Self:
        doubles = sorted({task for task in self.ids if self.ids.count(task) > 1})
        if doubles:
            raise ValueError(f"task {', '.join(doubles)} stands twice; list each task once")
        strangers = sorted(self.exceptions.keys() - set(self.ids))
        if strangers:
            raise ValueError(f"exceptions: {', '.join(strangers)} is no task of this plan; remove it")
        return self

    @model_serializer(mode="wrap")
    def _without_empty(self, inner: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """No exceptions leave no trace: a lock from before they existed keeps its bytes."""
        values: dict[str, Any] = inner(self)
        if not self.exceptions:
            values.pop("exceptions", None)
        return values


class SandboxPlan(Model):
    """The isolation that the plan wants. A weaker one is refused, never substituted."""

    kind: Literal["local", "bubblewrap", "docker"]
    image: str | None = None
    """Image by digest; docker only."""
    memory_mb: Annotated[int, Field(gt=0)] | None = None
    cpus: Annotated[float, Field(gt=0, strict=False)] | None = None
    pids: Annotated[int, Field(ge=16)] | None = None
    """Processes and threads at once, of the agent and everything that it starts."""
    disk_mb: Annotated[int, Field(ge=16)] | None = None
    """Workspace, HOME and TMPDIR together."""

    @model_validator(mode="after")
    def _image_fits(self) -> Self:
        if (self.kind == "docker") != (self.image is not None):
            raise ValueError("image: required for docker and refused for every other kind")
        return self


class Retries(Model):
    """Outcome-blind: only what the infrastructure lost may run again, every attempt is kept."""

    max_attempts: Annotated[int, Field(ge=1, le=5)] = 1
    statuses: Annotated[tuple[Annotated[Status, Field(strict=False)], ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _infrastructure_only(self) -> Self:
        wrong = [status.value for status in self.statuses if not status.is_infrastructure]
        if wrong:
            raise ValueError(
                f"{', '.join(wrong)} may not run again: a second draw for an outcome is a false result; "
                "allowed are sandbox_lost, cleanup_failure and setup_failure"
            )
        return self


class Budget(Model):
    """Money. The budget stops whole blocks, in schedule order."""

    ceiling_usd: Usd
    per_rollout_usd: Usd
    prices: Path_ | None = None
    """Price table; required for an agent that asks a model."""


class Gates(Model):
    """Checks that must have passed before a run may start."""

    purity: bool = False
    """Demands the record that `pairtrial purity` writes, for exactly this lock."""


class Analysis(Model):
    """How the result is computed. Fixed before the first rollout."""

    alpha: Annotated[float, Field(gt=0, lt=0.5, strict=False)] = 0.05
    primary: Literal["mcnemar-exact", "sign-flip-exact"]
    """`mcnemar-exact` for one repetition, `sign-flip-exact` on task sums for several."""
    level: Annotated[float, Field(gt=0.5, lt=1, strict=False)] = 0.95
    """Coverage of the intervals."""
    bca_ties: Literal["mid", "strict"] = "mid"
    family: Annotated[tuple[Slug, ...], Field(min_length=1, strict=False)]
    """Treatments compared with the control under Holm; all of them."""
    floor_discordant: Annotated[int, Field(ge=1)] = 6
    """Discordant tasks below which the verdict is inconclusive whatever the test says."""
    max_aa_flip_rate: Annotated[float, Field(gt=0, le=1, strict=False)] = 0.35
    """Flip rate of the replicate arm above which the instrument is called too noisy for a claim."""
    equivalence_margin: Annotated[float, Field(gt=0, lt=1, strict=False)] | None = None
    """Margin of TOST as a difference of proportions; absent: equivalence is not tested."""
    min_complete_blocks: Annotated[float, Field(gt=0, le=1, strict=False)] = 0.8
    """Share of the planned blocks that must be complete for a claim."""
    power_target: Annotated[float, Field(gt=0.5, lt=1, strict=False)] = 0.8
    """Power at which the minimal detectable effect is printed before the plan is frozen."""
    plausible_discordance: Annotated[
        tuple[Annotated[float, Field(gt=0, le=1, strict=False)], ...], Field(min_length=1, strict=False)
    ] = (0.1, 0.2, 0.3)
    """Shares of discordant tasks that the author holds possible; power is printed for each."""
    secondary: Annotated[tuple[Literal["steps", "wall_s", "tool_calls", "cost_usd"], ...], Field(strict=False)] = ()
    """Metrics printed beside the result; they decide nothing."""


class Plan(Model):
    """One experiment, registered before it runs."""

    schema_: Annotated[Literal["pairtrial.plan.v1"], Field(alias="schema")]
    id: Slug
    stage: Literal["feasibility", "confirmatory"]
    """A feasibility stage may be too small to show anything; its claim is descriptive whatever it finds."""
    question: Text
    conflict_of_interest: Text
    agent: AgentSpec
    prompt: Path_
    """Template with ``{{ task }}`` and ``{{ test_command }}``."""
    arms: Annotated[tuple[Arm, ...], Field(min_length=2, strict=False)]
    tasks: TaskSelection
    repetitions: Annotated[int, Field(ge=1, le=100)] = 1
    sandbox: SandboxPlan
    seed: Annotated[str, StringConstraints(pattern=r"^[^\n]{1,100}$")]
    """Seed of the schedule and of every rollout."""
    budget: Budget
    retries: Retries = Retries()
    gates: Gates = Gates()
    estimand: Estimand
    analysis: Analysis
    wording: Wording

    @property
    def control(self) -> Arm:
        """The one control arm."""
        return next(arm for arm in self.arms if arm.kind is ArmKind.CONTROL)

    @property
    def treatments(self) -> tuple[Arm, ...]:
        """Treatment arms in plan order."""
        return tuple(arm for arm in self.arms if arm.kind is ArmKind.TREATMENT)

    @property
    def replicates(self) -> tuple[Arm, ...]:
        """Replicate (A/A) arms in plan order."""
        return tuple(arm for arm in self.arms if arm.kind is ArmKind.REPLICATE)

    def agent_of(self, name: str) -> AgentSpec:
        """The agent as an arm starts it: the plan's, with the differences that the arm declares and no other."""
        arm = next(arm for arm in self.arms if arm.name == name)
        if not arm.differences:
            return self.agent
        values = {option: item.value for option, item in arm.differences.items()}
        return self.agent.model_copy(update={"options": {**self.agent.options, **values}})

    @model_validator(mode="after")
    def _arms_fit(self) -> Self:
        names = [arm.name for arm in self.arms]
        problems = [f"arm {name!r} stands twice" for name in sorted({n for n in names if names.count(n) > 1})]
        controls = sum(arm.kind is ArmKind.CONTROL for arm in self.arms)
        if controls != 1:
            problems.append(f"arms: exactly one control is needed, found {controls}")
        if not self.treatments:
            problems.append("arms: at least one treatment is needed")
        treatments = {arm.name for arm in self.treatments}
        if set(self.analysis.family) != treatments or len(self.analysis.family) != len(treatments):
            problems.append(
                f"analysis.family: must list every treatment exactly once ({', '.join(sorted(treatments))}); "
                "leaving one out would hide a comparison from the correction"
            )
        wanted = "mcnemar-exact" if self.repetitions == 1 else "sign-flip-exact"
        if self.analysis.primary != wanted:
            problems.append(f"analysis.primary: with {self.repetitions} repetition(s) the test is {wanted}")
        if self.budget.per_rollout_usd > self.budget.ceiling_usd:
            problems.append("budget.per_rollout_usd: larger than budget.ceiling_usd")
        if problems:
            raise ValueError("; ".join(problems))
        return self


def load_plan(path: Path) -> Plan:
    """Read a plan; raises `PlanError` with one line a problem."""
    return load_yaml(path, Plan)
