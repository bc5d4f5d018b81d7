"""Publishing: a block between markers that carries the plan id, and the check that it is not stale."""

from __future__ import annotations

import re

from pairtrial.core.errors import ReceiptError
from pairtrial.report.markdown import (
    arms_table,
    claim_lines,
    comparisons_table,
    difference_list,
    escape,
    interval_lines,
    replicate_line,
    test_lines,
)
from pairtrial.report.scorecard import Scorecard

_BEGIN = re.compile(r"^<!-- pairtrial:begin plan=([a-z0-9-]+)(?: id=[0-9a-f]{12})? -->$", re.MULTILINE)


def _end(plan: str) -> str:
    return f"<!-- pairtrial:end plan={plan} -->"


def block(card: Scorecard, source: str) -> str:
    """The result between its markers."""
    registered = [item for item in card.comparisons if item.registered]
    parts = [
        [f"<!-- pairtrial:begin plan={card.plan} id={card.plan_id[:12]} -->"],
        claim_lines(card),
        difference_list(card),
        comparisons_table(card),
        test_lines(card),
        [line for item in registered for line in interval_lines(item)],
        arms_table(card),
        [replicate_line(item) for item in card.replicates],
        [
            f"Plan `{card.plan}`, id `{card.plan_id[:12]}`, source [`{source}`]({source}). {escape(card.agent_limits)} "
            f"Conflict of interest: {escape(card.conflict_of_interest)}"
        ],
        [_end(card.plan)],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def insert(document: str, card: Scorecard, source: str, name: str) -> str:
    """The document with the plan's block replaced; raises `ReceiptError` where its markers are missing or doubled."""
    starts = [match for match in _BEGIN.finditer(document) if match.group(1) == card.plan]
    end = document.find(_end(card.plan))
    if len(starts) != 1 or end < starts[0].start() or document.count(_end(card.plan)) != 1:
        lines = f"<!-- pairtrial:begin plan={card.plan} --> {_end(card.plan)}"
        raise ReceiptError(
            f"{name}: needs exactly one pair of markers for plan {card.plan!r}",
            hint=f"put these two lines where the result shall stand: {lines}",
            slug="readme-markers",
        )
    stop = end + len(_end(card.plan))
    return document[: starts[0].start()] + block(card, source) + document[stop:]
