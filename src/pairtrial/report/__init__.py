"""From receipts to a scorecard, and from a scorecard to a report."""

from __future__ import annotations

from pairtrial.report.score import journal_facts, score
from pairtrial.report.scorecard import Scorecard

__all__ = ["Scorecard", "journal_facts", "score"]
