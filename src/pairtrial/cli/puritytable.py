"""The purity record as text: who differs from whom in what, and a table of what it costs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from pairtrial.harness.purity import ArmPurity, ProbeTax, PurityRecord

HEADER = ("arm", "tools", "deferred", "request B", "schemas B", "tax B")
TOKENS = ("tokens", "tax tokens")


def purity_lines(record: PurityRecord) -> list[str]:
    """The record for people."""
    lines = [
        f"first requests of {record.task}, {record.replicates} probes an arm; masked: {', '.join(record.masked)}",
        f"A/A difference: {record.aa_bytes} bytes",
        "",
        *_tables(record),
        "",
    ]
    for arm in record.arms:
        lines += arm.declared
        if arm.flags_bytes is not None:
            lines.append(f"  {arm.arm}: {arm.flags_bytes:+d} bytes of its tax come with the declared flags alone")
        for item in arm.differences:
            sign = " " if item.explained else "!"
            lines.append(f"{sign} {arm.arm}  {item.where}: {item.detail}")
    lines += [f"problem: {problem}" for problem in record.problems]
    declared = " and declared flags" if any(arm.declared for arm in record.arms) else ""
    lines.append(f"pure: the arms differ in their providers{declared} alone" if record.passed else "not pure")
    return lines


def _tables(record: PurityRecord) -> list[str]:
    rows = [[arm.arm, *_figures(arm, len(arm.tools))] for arm in record.arms]
    last = None
    for probe in record.probes:
        if probe.options != last:
            rows.append([f"servers of so many tools, options {_options(probe)}"])
            last = probe.options
        name = f"{probe.server_tools}-tool server" if probe.server_tools else "no server"
        rows.append([f"  {name}", *_figures(probe, probe.tools)])
    counted = any(arm.tokens is not None for arm in record.arms)
    return _aligned((*HEADER, *TOKENS) if counted else HEADER, rows)


def _options(probe: ProbeTax) -> str:
    shown = (
        f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in probe.options.items()
    )
    return " ".join(shown) or "none"


def _figures(row: ArmPurity | ProbeTax, tools: int) -> list[str]:
    deferred = "–" if row.deferred is None else "yes" if row.deferred else "no"
    return [
        str(tools), deferred, str(row.request_bytes), str(row.tools_bytes), f"{row.tax_bytes:+d}",
        "–" if row.tokens is None else str(row.tokens), "–" if row.tax_tokens is None else f"{row.tax_tokens:+d}",
    ]  # fmt: skip


def _aligned(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Columns under their heads, the first one left; a row of one cell is a heading."""
    table = [list(header), *(list(row[: len(header)]) for row in rows)]
    full = [row for row in table if len(row) > 1]
    widths = [max(len(row[i]) for row in full) for i in range(len(header))]
    return [
        row[0] if len(row) == 1 else "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
        for row in table
    ]
