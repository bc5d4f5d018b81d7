"""What a plan means in plain words, and what its author should know before it is frozen."""

from __future__ import annotations

from pairtrial import stats
from pairtrial.prereg.plan import Plan


def describe_plan(plan: Plan) -> list[str]:
    """The experiment in a few lines."""
    cells = len(plan.arms) * len(plan.tasks.ids) * plan.repetitions
    arms = ", ".join(f"{arm.name} ({arm.kind.value})" for arm in plan.arms)
    return [
        f"{plan.id}: {plan.question}",
        f"  arms        {arms}",
        f"  tasks       {len(plan.tasks.ids)}, {plan.repetitions} repetition(s), {cells} rollouts",
        f"  agent       {plan.agent.adapter} {plan.agent.version}, model {plan.agent.model}, "
        f"at most {plan.agent.limits.wall_s:g} s and {plan.agent.limits.turns} turns",
        f"  sandbox     {plan.sandbox.kind}",
        f"  test        {plan.analysis.primary}, alpha {plan.analysis.alpha:g}, Holm over {len(plan.analysis.family)}",
        f"  floor       {floor(plan)} discordant tasks",
    ]


def floor(plan: Plan) -> int:
    """Discordant tasks that are needed: the registered floor, or what the test itself needs when that is more."""
    return max(plan.analysis.floor_discordant, stats.floor_discordant(plan.analysis.alpha, len(plan.analysis.family)))


def warnings(plan: Plan, *, embedded: bool) -> list[str]:
    """What will limit the claim, known before a single rollout."""
    notes = []
    tasks = len(plan.tasks.ids)
    if tasks < floor(plan):
        notes.append(f"{tasks} tasks cannot give {floor(plan)} discordant ones: the result will be inconclusive")
    if not plan.replicates:
        notes.append("no replicate arm: nobody will know how often the control disagrees with itself")
    if embedded:
        notes.append("an embedded agent without a language model: the claim will be descriptive only")
    if plan.sandbox.kind == "local":
        notes.append("sandbox local does not isolate: the agent can read other files of this machine")
    return notes
