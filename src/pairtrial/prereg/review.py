"""What a plan means in plain words, what cannot work in it, and what its author should know before it is frozen."""

from __future__ import annotations

import json

from pairtrial import stats
from pairtrial.prereg.estimand import describe_estimand
from pairtrial.prereg.plan import Arm, Plan

LOW_POWER = 0.5
"""Below this power a significant result overstates the effect so much that the author is told by how much."""


def describe_plan(plan: Plan) -> list[str]:
    """The experiment in a few lines, with its estimand."""
    cells = len(plan.arms) * len(plan.tasks.ids) * plan.repetitions
    arms = ", ".join(f"{arm.name} ({arm.kind.value})" for arm in plan.arms)
    agent = plan.agent
    return [
        f"{plan.id} ({plan.stage}): {plan.question}",
        f"  arms        {arms}",
        f"  tasks       {len(plan.tasks.ids)}, {plan.repetitions} repetition(s), {cells} rollouts",
        f"  agent       {agent.adapter} {agent.version}, model {agent.model}, at most {agent.limits.wall_s:g} s and "
        f"{agent.limits.turns} turns",
        f"  sandbox     {plan.sandbox.kind}",
        f"  test        {plan.analysis.primary}, alpha {plan.analysis.alpha:g}, Holm over {len(plan.analysis.family)}",
        f"  floor       {floor(plan)} discordant tasks",
        *(line for arm in plan.arms for line in difference_lines(arm)),
        "estimand",
        *(f"  {line}" for line in estimand_lines(plan)),
    ]


def difference_lines(arm: Arm) -> list[str]:
    """What an arm has besides its provider, one sentence a setting; the same words in `check` and in every report."""
    return [
        f"second difference: arm {arm.name} also sets {option}={_plain(item.value)} ({item.reason.rstrip('.')})"
        for option, item in arm.differences.items()
    ]


def _plain(value: bool | int | str) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def estimand_lines(plan: Plan) -> list[str]:
    """The estimand of a plan in plain words."""
    treatments = tuple(arm.name for arm in plan.treatments)
    return describe_estimand(
        plan.estimand,
        control=plan.control.name,
        treatments=treatments,
        repetitions=plan.repetitions,
        flagged=tuple(arm.name for arm in plan.treatments if arm.differences),
    )


def floor(plan: Plan) -> int:
    """Discordant tasks that are needed: the registered floor, or what the test itself needs when that is more."""
    return max(plan.analysis.floor_discordant, stats.floor_discordant(plan.analysis.alpha, len(plan.analysis.family)))


def impossible(plan: Plan) -> list[str]:
    """What can never come out of this plan, so that registering it would only look like rigour."""
    problems = []
    tasks, analysis = len(plan.tasks.ids), plan.analysis
    if plan.stage == "confirmatory" and tasks < floor(plan):
        problems.append(
            f"tasks.ids: {tasks} tasks can never give the {floor(plan)} discordant ones that a result needs; "
            "add tasks, or register `stage: feasibility`"
        )
    margin = analysis.equivalence_margin
    if margin is not None and plan.repetitions == 1 and not stats.equivalence_attainable(tasks, margin, analysis.alpha):
        needed = stats.min_tasks_for_margin(margin, analysis.alpha)
        problems.append(
            f"analysis.equivalence_margin: {margin:g} cannot be shown with {tasks} tasks even if none is discordant; "
            f"it needs {needed} tasks, or a wider margin"
        )
    if margin is not None and plan.repetitions > 1:
        problems.append(
            "analysis.equivalence_margin: equivalence is tested with one repetition only; remove the margin or the repetitions"
        )
    if margin is not None and plan.wording.equivalent is None:
        problems.append("wording.equivalent: a margin is registered, so the sentence for equivalence must be too")
    return problems


def warnings(plan: Plan, *, embedded: bool) -> list[str]:
    """What will limit the claim, known before a single rollout, with numbers."""
    notes = []
    tasks = len(plan.tasks.ids)
    if plan.stage == "feasibility":
        notes.append("a feasibility stage: the claim will be descriptive only")
    if not plan.replicates:
        notes.append("no replicate arm: nobody will know how often the control disagrees with itself")
    if embedded:
        notes.append("an embedded agent without a language model: the claim will be descriptive only")
    if plan.sandbox.kind == "local":
        notes.append("sandbox local does not isolate: the agent can read other files of this machine")
    if plan.repetitions == 1:
        notes += [line for share in plan.analysis.plausible_discordance for line in _power_notes(plan, tasks, share)]
    return notes


def _power_notes(plan: Plan, tasks: int, share: float) -> list[str]:
    """Power for the largest effect that this discordance allows by half, and what a significant result would say."""
    alpha = plan.analysis.alpha / len(plan.analysis.family)
    reach = stats.chance_to_reach_floor(tasks, share, floor=floor(plan))
    effect = share / 2
    power = stats.power(tasks, share, effect, alpha)
    line = (
        f"with {100 * share:g} % discordant tasks, the floor of {floor(plan)} is reached in {100 * reach:.0f} % of runs, and a "
        f"true effect of {100 * effect:+.0f} pp is found in {100 * power:.0f} %"
    )
    if power < LOW_POWER:
        shown = stats.significance_inflation(tasks, share, effect, alpha)
        if shown.factor is not None:
            line += f"; a significant result would overstate it {shown.factor:.1f} times"
    return [line]
