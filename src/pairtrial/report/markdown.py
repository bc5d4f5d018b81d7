"""The scorecard as Markdown. Text that comes from plans, tasks or agents is escaped: it cannot break the layout."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pairtrial.report.claims import p_text, points, rate
from pairtrial.report.scorecard import ArmCounts, Comparison, Replicate, Scorecard

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~$!])")


def escape(text: str) -> str:
    """Markdown text on one line that reads as it was written."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> list[str]:
    """A Markdown table; the first ``left`` columns are text, the others are figures and stand right."""
    lines = ["| " + " | ".join(header) + " |"]
    lines.append("| " + " | ".join("---" if i < left else "---:" for i in range(len(header))) + " |")
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return lines


def claim_lines(card: Scorecard) -> list[str]:
    """The authorised sentences, first and last in every report."""
    return [f"**{escape(claim.sentence)}**" for claim in card.claims]


def test_lines(card: Scorecard) -> list[str]:
    """What the registered test says by itself, where an evidence gate keeps it from being the claim."""
    return [
        f"By itself the registered test says: {escape(claim.test_sentence)}"
        for claim in card.claims
        if claim.test_sentence is not None
    ]


def difference_list(card: Scorecard) -> list[str]:
    """What an arm has besides its provider, where the plan declares it."""
    return [f"- {escape(line)}" for line in card.differences]


def arms_table(card: Scorecard) -> list[str]:
    """Resolved (hidden checks) beside finished (the agent's own belief), and where every cell went."""
    header = ["arm", "role", "resolved", "of graded", "finished", "invalid", "not run", "planned"]
    rows = []
    for arm in card.arms:
        share = f"{100 * arm.resolved / arm.graded:.0f} %" if arm.graded else "–"
        rows.append(
            [
                arm.arm, arm.kind, str(arm.resolved), f"{arm.graded} ({share})", str(arm.finished),
                str(sum(arm.invalid.values())), str(arm.not_run), str(arm.planned),
            ]
        )  # fmt: skip
    return table(header, rows, left=2)


def comparisons_table(card: Scorecard) -> list[str]:
    """The paired result, one line an arm."""
    header = ["against control", "tasks", "wins", "losses", "ties", "difference, pp", "p", "p (Holm)", "S, bits"]
    rows = []
    for item in card.comparisons:
        name = item.treatment if item.registered else f"{item.treatment} (A/A)"
        rows.append(
            [
                name, str(item.tasks), str(item.wins), str(item.losses), str(item.ties), points(item.delta),
                p_text(item.p), p_text(item.p_holm) if item.registered else "–",
                f"{item.s_value:.1f}" if item.s_value is not None else "–",
            ]
        )  # fmt: skip
    return table(header, rows)


def interval_lines(item: Comparison) -> list[str]:
    """Intervals of one comparison, and the line that says so when they and the test disagree."""
    lines = []
    for interval in item.intervals:
        if interval.low is None or interval.high is None:
            lines.append(f"- {interval.method}: none ({interval.reason})")
        else:
            bounds = f"[{points(interval.low)}, {points(interval.high)}] pp"
            lines.append(f"- {interval.method}, {100 * interval.level:g} %: {bounds}")
    if item.disagreement:
        lines.append(f"- {item.disagreement}")
    if item.discordant < item.floor:
        lines.append(
            f"- {item.discordant} discordant task(s), {item.floor} are needed before any result could be significant."
        )
    return lines


def replicate_line(item: Replicate) -> str:
    """How often the control disagrees with itself."""
    if item.rate is None:
        return f"- `{item.arm}`: no complete block."
    bounds = "" if item.low is None or item.high is None else f", 95 % {100 * item.low:.0f} to {100 * item.high:.0f} %"
    line = f"- `{item.arm}` disagrees with the control in {rate(item.flips, item.blocks)} blocks{bounds}"
    line += f"; registered limit {100 * item.limit:.0f} %; A/A test p = {p_text(item.mcnemar_p)}."
    for treatment, odd in item.odd_one_out.items():
        line += (
            f" Among {odd['mixed']} tasks on which the three runs are not alike, `{treatment}` is the odd one out in "
            f"{odd['odd']} (one in three expected without an effect, p = {p_text(odd['p'])})."
        )
    return line


def render(card: Scorecard, source: str) -> str:
    """The whole report. ``source`` says where the receipts lie."""
    parts: list[list[str]] = [
        [f"# {escape(card.plan)}: {escape(card.question)}"],
        claim_lines(card),
        [_provenance(card, source)],
        difference_list(card),
        ["## Result"],
        comparisons_table(card),
        test_lines(card),
        [line for item in card.comparisons if item.registered for line in interval_lines(item)],
        arms_table(card),
        [
            "*Resolved* is what the hidden tests say. *Finished* is what the agent believes. The unit of the test is "
            f"the task; the registered test is the {card.comparisons[0].test}."
        ],
        ["## Does the instrument agree with itself?"],
        [replicate_line(item) for item in card.replicates] or ["No replicate arm was registered."],
        ["## What is estimated"],
        [f"- {escape(line)}" for line in card.estimand],
        *([["## Amendments"], [f"- {escape(line)}" for line in card.amendments]] if card.amendments else []),
        ["## Tasks"],
        _tasks(card),
        *_excluded(card),
        *_secondary(card),
        ["## What the result rests on"],
        _sensitivity(card),
        ["## Delivery and conduct"],
        _conduct(card),
        ["## Limits"],
        _limits(card),
        claim_lines(card),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _provenance(card: Scorecard, source: str) -> str:
    agent = card.agent
    committed = {True: "committed before the run", False: "NOT committed before the run", None: "outside git"}[
        card.committed
    ]
    return (
        f"Plan id `{card.plan_id}` · source `{source}` · lock {committed} · agent {escape(agent['adapter'])} "
        f"{escape(agent['version'])}, model {escape(agent['model'])} · "
        f"sandbox {', '.join(card.isolation) or 'none used'} · {card.blocks_complete} of {card.blocks_planned} blocks complete."
    )


def _tasks(card: Scorecard) -> list[str]:
    names = [arm.arm for arm in card.arms]
    header = ["task", "category", "blocks", *(f"{name}" for name in names)]
    rows = [
        [
            row.task, row.category or "–", str(row.blocks),
            *(f"{row.resolved[name]} ({row.finished[name]})" for name in names),
        ]
        for row in card.tasks
    ]  # fmt: skip
    return [*table(header, rows, left=2), "", "Cells: resolved (finished) in complete blocks."]


def _excluded(card: Scorecard) -> list[list[str]]:
    if not card.excluded:
        return []
    rows = [
        [item.task, str(item.repetition), ", ".join(f"{arm}: {status}" for arm, status in item.statuses.items())]
        for item in card.excluded
    ]
    head = "A block with a cell that has no grade is left out in every arm."
    return [["## Blocks that do not count"], [head], table(["task", "repetition", "arms"], rows, left=3)]


def _secondary(card: Scorecard) -> list[list[str]]:
    if not card.secondary:
        return []
    names = [arm.arm for arm in card.arms]
    header = ["metric", *(f"{name}: median / mean" for name in names)]
    rows, lines = [], []
    for metric in card.secondary:
        cells = [f"{_figure(metric.arms[name]['median'])} / {_figure(metric.arms[name]['mean'])}" for name in names]
        rows.append([f"{metric.name} ({metric.unit})", *cells])
        for name, ratio in metric.ratios.items():
            if ratio.geometric is None:
                lines.append(f"- {metric.name}, `{name}` over control: none ({ratio.reason})")
                continue
            lines.append(
                f"- {metric.name}, `{name}` over control: geometric mean ratio {_figure(ratio.geometric)} "
                f"[{_figure(ratio.low)}, {_figure(ratio.high)}], median ratio {_figure(ratio.median)}, ratio of means "
                f"{_figure(ratio.of_means)}"
                + (f"; {ratio.censored} rollouts cut off by a limit" if ratio.censored else "")
            )
    note = "Registered and described only: over all tasks, solved or not; ratios are paired by task."
    return [["## Secondary metrics"], table(header, rows), [note], lines]


def _sensitivity(card: Scorecard) -> list[str]:
    lines = []
    for item in card.sensitivity:
        lost = item.missing
        lines.append(
            f"- `{item.treatment}`, missing runs: {lost.missing}; filled in every way, the difference lies between "
            f"{points(lost.low)} and {points(lost.high)} pp, p between {p_text(lost.p_low)} and {p_text(lost.p_high)}"
            + (f"; {lost.tipping_point} would change the verdict." if lost.tipping_point is not None else ".")
        )
        lines.append(
            f"- `{item.treatment}`, order (exploratory): {points(item.delta_treatment_first)} pp in "
            f"{item.blocks_treatment_first} blocks where it ran before the control, {points(item.delta_control_first)} pp in "
            f"{item.blocks_control_first} where it ran after."
        )
        if item.clusters is not None and item.clustered_low is not None:
            doubt = "" if item.clustered_reliable else "; unreliable with so few"
            lines.append(
                f"- `{item.treatment}`, tasks of one package moving together (exploratory): "
                f"[{points(item.clustered_low)}, {points(item.clustered_high)}] pp over {item.clusters} packages{doubt}."
            )
        if item.delta_pooled_control is not None:
            lines.append(
                f"- `{item.treatment}`, against the mean of control and replicate (exploratory): "
                f"{points(item.delta_pooled_control)} pp."
            )
        if any(cost is not None for cost in item.clean_cache.values()):
            means = ", ".join(f"`{arm}` {_figure(cost)} USD" for arm, cost in item.clean_cache.items())
            lines.append(
                f"- Mean cost of a rollout with a clean cache, every token at the fresh price (exploratory): {means}."
            )
        if item.within_task_p is not None:
            lines.append(
                f"- `{item.treatment}`, runs relabelled inside these very tasks (exploratory Q test): "
                f"p = {p_text(item.within_task_p)}."
            )
    return lines


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _conduct(card: Scorecard) -> list[str]:
    lines = []
    for arm in card.arms:
        lines.append(_arm_line(arm))
    for name, p in card.invalidation_p.items():
        lines.append(f"- Unequal invalidation, `{name}` against the control: p = {p_text(p)}.")
    places = "; ".join(f"`{arm}` {'/'.join(map(str, counts))}" for arm, counts in card.positions.items())
    lines.append(f"- Order inside blocks (first/second/…): {places}.")
    lines.append(
        f"- Toolchains seen: {len(card.toolchains)}."
        + (" More than one: see the scorecard." if len(card.toolchains) > 1 else "")
    )
    return lines


def _arm_line(arm: ArmCounts) -> str:
    stops = ", ".join(f"{reason} {count}" for reason, count in arm.stop_reasons.items())
    line = f"- `{arm.arm}`: {arm.attempts} attempts, {arm.interrupted} interrupted; ended: {stops or 'none'}"
    if arm.regrades:
        line += f"; {arm.regrades} graded again after a fault of ours"
    if arm.invalid:
        line += "; invalid: " + ", ".join(f"{status} {count}" for status, count in arm.invalid.items())
    if arm.excluded:
        line += f"; {arm.excluded} graded cells left out with their block"
    if arm.context_used is not None:
        line += f"; called its context tools in {rate(arm.context_used, arm.graded)}"
    if arm.touched_tests:
        line += f"; touched protected files in {arm.touched_tests} (put back before grading)"
    return line + "."


def _limits(card: Scorecard) -> list[str]:
    lines = []
    if card.agent_limits:
        lines.append(f"- {escape(card.agent_limits)}")
    if any(item.endswith("none") for item in card.isolation):
        lines.append("- The sandbox did not isolate: the agent could have read other files of this machine.")
    lines += [f"- Task without qualification, {escape(item)}" for item in card.exceptions]
    lines.append(f"- Conflict of interest: {escape(card.conflict_of_interest)}")
    lines.append("- An absence of significance is not evidence of no difference.")
    return lines
