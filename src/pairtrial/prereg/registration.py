"""A frozen plan as a registration for people: the fields of the OSF preregistration form, as Markdown or one HTML page."""

from __future__ import annotations

from pairtrial.prereg.lock import Lock
from pairtrial.prereg.review import difference_lines, estimand_lines, floor
from pairtrial.prereg.wording import ClaimKind

Section = tuple[str, list[str]]


def sections(lock: Lock) -> list[Section]:
    """Heading and paragraphs of every field."""
    plan = lock.plan
    analysis, agent = plan.analysis, plan.agent
    arms = [
        f"{arm.name}: {arm.kind.value}" + (f", provider {arm.provider}" if arm.provider else "") for arm in plan.arms
    ]
    cells = len(plan.arms) * len(plan.tasks.ids) * plan.repetitions
    treatments = ", ".join(arm.name for arm in plan.treatments)
    margin = analysis.equivalence_margin
    return [
        ("Title", [plan.id]),
        ("Description", [plan.question, f"Plan id: {lock.plan_id}", f"Stage: {plan.stage}"]),
        ("Hypotheses", [f"Two-sided: {treatments} resolves another share of tasks than {plan.control.name}."]),
        ("Study type", ["Experiment: a researcher assigns treatments to tasks; every task gets every arm (paired)."]),
        ("Blinding", ["Grading is blind: the grader gets the work and the task, and no arm."]),
        ("Study design", [*arms, f"{plan.repetitions} repetition(s) of every task in every arm, {cells} rollouts."]),
        (
            "Randomization",
            [
                f"Blocks stand in the order of SHA-256 over seed {plan.seed!r}, task and repetition; arms inside a block by "
                "rows of a Williams design. The digest of the schedule is in the lock."
            ],
        ),
        ("Existing data", ["Registration before creation of data: the lock is committed before the first rollout."]),
        (
            "Data collection procedures",
            [
                f"Agent {agent.adapter} {agent.version}, model {agent.model}, at most {agent.limits.wall_s:g} s and "
                f"{agent.limits.turns} turns a rollout, sandbox {plan.sandbox.kind}.",
                f"Tasks: {', '.join(plan.tasks.ids)}.",
            ],
        ),
        ("Sample size", [f"{len(plan.tasks.ids)} tasks; the task is the unit of analysis."]),
        (
            "Sample size rationale",
            [f"`pairtrial power` prints what this number of tasks can show; the floor is {floor(plan)}."],
        ),
        (
            "Stopping rule",
            [
                f"All blocks are run. Money may stop it earlier, blind to outcomes and after whole blocks: ceiling "
                f"{plan.budget.ceiling_usd} USD, {plan.budget.per_rollout_usd} USD a rollout."
            ],
        ),
        (
            "Manipulated variables",
            [
                "The content of one file, the agent's MCP configuration, and declared context files.",
                *(f"{line[0].upper()}{line[1:]}." for arm in plan.arms for line in difference_lines(arm)),
            ],
        ),
        (
            "Measured variables",
            ["Resolved by hidden tests (primary).", *(f"{name} (secondary)" for name in analysis.secondary)],
        ),
        ("Indices", estimand_lines(plan)),
        (
            "Statistical models",
            [
                f"{analysis.primary}, two-sided, Holm over {', '.join(analysis.family)}.",
                f"Intervals at {100 * analysis.level:g} % are shown and decide nothing (BCa ties: {analysis.bca_ties}).",
                "Equivalence is not tested." if margin is None else f"Equivalence by TOST within {100 * margin:g} pp.",
            ],
        ),
        (
            "Inference criteria",
            [
                f"alpha {analysis.alpha:g}; fewer than {floor(plan)} discordant tasks: inconclusive whatever the p-value.",
                f"A replicate that flips in more than {100 * analysis.max_aa_flip_rate:g} % of blocks, or fewer than "
                f"{100 * analysis.min_complete_blocks:g} % complete blocks: descriptive only.",
            ],
        ),
        (
            "Data exclusion",
            ["A block with a cell that has no grade is left out in every arm; statuses that are no grade are never 0."],
        ),
        (
            "Missing data",
            [
                f"At most {plan.retries.max_attempts} attempt(s) a cell, a further one only after: "
                f"{', '.join(status.value for status in plan.retries.statuses) or 'nothing'}."
            ],
        ),
        ("Exploratory analysis", ["Everything that is not named here is labelled exploratory."]),
        (
            "Other",
            [
                f"Conflict of interest: {plan.conflict_of_interest}",
                *(f"Sentence for {kind.value}: {plan.wording.template(kind)}" for kind in ClaimKind),
                *(f"Amendment of {a.date} (from {a.parent[:12]}, bias {a.bias}): {a.reason}" for a in lock.amendments),
            ],
        ),
    ]


def as_markdown(lock: Lock) -> str:
    """Markdown with one heading a field."""
    parts = []
    for heading, paragraphs in sections(lock):
        parts.append(f"## {heading}\n\n" + "\n\n".join(paragraphs))
    return f"# Preregistration: {lock.plan.id}\n\n" + "\n\n".join(parts) + "\n"


PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Preregistration: {{ name }}</title>
<style>
  body { font: 16px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
  h1 { font-size: 1.5rem; } code { overflow-wrap: anywhere; }
  dl { display: grid; grid-template-columns: 11rem 1fr; gap: .6rem 1.2rem; }
  dt { font-weight: 600; } dd { margin: 0; } dd p { margin: 0 0 .4rem; overflow-wrap: anywhere; }
  @media (max-width: 40rem) { dl { grid-template-columns: 1fr; } }
</style>
<h1>Preregistration: {{ name }}</h1>
<p>Plan id <code>{{ plan_id }}</code></p>
<dl>
{% for heading, paragraphs in sections %}<dt>{{ heading }}</dt>
<dd>{% for text in paragraphs %}<p>{{ text }}</p>{% endfor %}</dd>
{% endfor %}</dl>
</html>
"""


def as_html(lock: Lock) -> str:
    """One page without scripts or outside resources; every text is escaped."""
    from jinja2 import Environment

    template = Environment(autoescape=True).from_string(PAGE)
    return template.render(name=lock.plan.id, plan_id=lock.plan_id, sections=sections(lock)) + "\n"
