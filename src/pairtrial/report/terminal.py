"""The result as plain text for a terminal: the claim first and last, and between them the paired table."""

from __future__ import annotations

import textwrap

from pairtrial.report.claims import p_text, points, rate
from pairtrial.report.scorecard import Scorecard

WIDTH = 100


def summary(card: Scorecard, source: str) -> str:
    """A page that a person reads at once."""
    claims = [line for claim in card.claims for line in textwrap.wrap(claim.sentence, WIDTH)]
    return "\n".join([*claims, "", *_result(card), "", *_noise(card), "", *_where(card, source), "", *claims])


def _result(card: Scorecard) -> list[str]:
    lines = [f"{'arm':<14}{'role':<12}{'resolved':>18}{'finished':>10}{'invalid':>9}{'not run':>9}"]
    for arm in card.arms:
        invalid = sum(arm.invalid.values())
        lines.append(
            f"{arm.arm:<14}{arm.kind:<12}{rate(arm.resolved, arm.graded):>18}{arm.finished:>10}{invalid:>9}{arm.not_run:>9}"
        )
    lines.append("")
    lines.append(
        f"{'vs control':<14}{'tasks':>6}{'wins':>6}{'losses':>8}{'ties':>6}{'diff, pp':>10}{'p':>9}{'p Holm':>9}"
    )
    for item in card.comparisons:
        holm = p_text(item.p_holm) if item.registered else "A/A"
        lines.append(
            f"{item.treatment:<14}{item.tasks:>6}{item.wins:>6}{item.losses:>8}{item.ties:>6}"
            f"{points(item.delta):>10}{p_text(item.p):>9}{holm:>9}"
        )
    for item in (found for found in card.comparisons if found.registered):
        for interval in item.intervals:
            if interval.low is not None and interval.high is not None:
                bounds = f"[{points(interval.low)}, {points(interval.high)}] pp"
                lines.append(f"  {item.treatment}: {interval.method}, {100 * interval.level:g} %: {bounds}")
        for claim in card.claims:
            if claim.treatment == item.treatment and claim.test_sentence is not None:
                lines += textwrap.wrap(f"by itself the registered test says: {claim.test_sentence}", WIDTH)
        if item.disagreement:
            lines.append(f"  {item.treatment}: {item.disagreement}")
    return lines


def _noise(card: Scorecard) -> list[str]:
    lines = []
    for item in card.replicates:
        if item.rate is None:
            lines.append(f"A/A flip rate ({item.arm}): no complete block")
            continue
        lines.append(
            f"A/A flip rate ({item.arm}): {rate(item.flips, item.blocks)} blocks; registered limit {100 * item.limit:.0f} %"
        )
        for treatment, odd in item.odd_one_out.items():
            lines.append(
                f"  {treatment} is the odd one out in {odd['odd']} of {odd['mixed']} mixed tasks (p = {p_text(odd['p'])})"
            )
    return lines


def _where(card: Scorecard, source: str) -> list[str]:
    lines = [f"plan {card.plan}, id {card.plan_id[:12]}, from {source}"]
    lines.append(
        f"{card.blocks_complete} of {card.blocks_planned} blocks complete; sandbox {', '.join(card.isolation)}"
    )
    lines += [part for line in card.differences for part in textwrap.wrap(line, WIDTH)]
    lines += textwrap.wrap(card.agent_limits, WIDTH)
    return lines
