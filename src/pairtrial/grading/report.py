"""The stored report: all that a verdict was made from, without a path, a time or a secret of this machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pairtrial.core.canonical import canonical_json
from pairtrial.core.errors import GradeError
from pairtrial.grading.frameworks.base import Canary, Outcome, Run

SCHEMA = "pairtrial.report.v1"


@dataclass(frozen=True, slots=True)
class Report:
    """What one grading saw."""

    framework: str
    touched: tuple[str, ...]
    """Protected paths that the work changed; they were put back."""
    runs: tuple[Run, ...]
    """The run with the work; after a run that gave no clear answer also ``control`` and ``again``."""

    def run(self, label: str) -> Run | None:
        """The run with that label."""
        return next((run for run in self.runs if run.label == label), None)


def write_report(report: Report) -> bytes:
    """Canonical JSON."""
    return canonical_json(
        {
            "schema": SCHEMA,
            "framework": report.framework,
            "touched": list(report.touched),
            "runs": [_plain(run) for run in report.runs],
        }
    )


def _plain(run: Run) -> dict[str, Any]:
    return {
        "label": run.label,
        "exit": run.exit_code,
        "signal": run.signal,
        "limit": run.limit,
        "seal": run.seal,
        "chained": run.chained,
        "ended": run.ended,
        "status": run.status,
        "collected": run.collected,
        "uncollected": dict(run.uncollected),
        "canaries": [[canary.test_id, canary.must_pass] for canary in run.canaries],
        "patched": list(run.patched),
        "versions": list(run.versions),
        "tests": _grouped(run.tests),
    }


def _grouped(tests: Sequence[tuple[str, Outcome]]) -> list[list[Any]]:
    """Neighbours with one outcome share a row: [outcome, id, id, …]."""
    rows: list[list[Any]] = []
    for test_id, outcome in tests:
        if not rows or rows[-1][0] != outcome.value:
            rows.append([outcome.value])
        rows[-1].append(test_id)
    return rows


def read_report(data: bytes) -> Report:
    """The inverse of `write_report`; raises `GradeError` for anything else."""
    try:
        document = json.loads(data)
        if document["schema"] != SCHEMA:
            raise GradeError(f"report: schema is {document['schema']!r}, expected {SCHEMA!r}", slug="bad-report")
        runs = tuple(_run(item) for item in document["runs"])
        return Report(document["framework"], tuple(document["touched"]), runs)
    except (ValueError, KeyError, TypeError, IndexError) as fault:
        raise GradeError(f"report: cannot be read ({type(fault).__name__})", slug="bad-report") from None


def _run(item: dict[str, Any]) -> Run:
    return Run(
        label=item["label"],
        exit_code=item["exit"],
        signal=item["signal"],
        limit=item["limit"],
        seal=item["seal"],
        chained=item["chained"],
        ended=item["ended"],
        status=item["status"],
        tests=tuple((test_id, Outcome(row[0])) for row in item["tests"] for test_id in row[1:]),
        collected=item["collected"],
        uncollected=dict(item["uncollected"]),
        canaries=tuple(Canary(name, must_pass) for name, must_pass in item["canaries"]),
        patched=tuple(item["patched"]),
        versions=tuple(item["versions"]),
    )
