"""Recomputing a run from what lies in its folder: one changed byte is found and named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import zstandard

from pairtrial.core.canonical import sha256_file, sha256_hex
from pairtrial.core.errors import ReceiptError
from pairtrial.core.status import Status
from pairtrial.prereg.schedule import schedule, schedule_digest
from pairtrial.runs.differences import StartCheck
from pairtrial.runs.journal import parse_journal
from pairtrial.runs.receipt import RECEIPT_FILE, Receipt
from pairtrial.runs.regrade import REPORT_FILE, RegradeCheck
from pairtrial.runs.store import JOURNAL, RunReader
from pairtrial.runs.turns import TurnCheck

MAX_REPORT_BYTES = 256 << 20

Regrade = Callable[[Receipt, bytes], Status | None]
"""From a receipt and its raw test report to the status that they give; None where the task cannot be had."""


@dataclass(slots=True)
class Verification:
    """What was checked and what was found wrong."""

    receipts: int = 0
    regraded: int = 0
    not_regraded: int = 0
    """Graded receipts whose task is not at hand as it was frozen."""
    problems: list[str] = field(default_factory=list)


def verify_run(folder: Path, regrade: Regrade) -> Verification:
    """Check lock, schedule, journal chain, receipts, files and grades of a run folder."""
    result = Verification()
    try:
        reader = RunReader(folder)
        data = (folder / JOURNAL).read_bytes() if (folder / JOURNAL).exists() else b""
        lines, whole = parse_journal(data, JOURNAL)
    except ReceiptError as fault:
        result.problems.append(str(fault))
        return result
    if whole != len(data):
        result.problems.append(f"{JOURNAL}: the last line is cut")
    plan = reader.lock.plan
    blocks = schedule(plan)
    if schedule_digest(blocks) != reader.lock.identities.get("schedule"):
        result.problems.append("lock.json: the schedule is not the one that the plan gives")
    cells = {cell.id: cell for block in blocks for cell in block.cells}
    entered = {
        (str(line.fields["cell"]), int(line.fields["attempt"])): str(line.fields["sha256"])
        for line in lines
        if line.event == "receipt"
    }
    heads = {line.prev for line in lines}
    starts, turns, regrades = StartCheck(reader.lock), TurnCheck(reader.lock, lines), RegradeCheck()
    try:
        for path, receipt in reader.attempts():
            result.receipts += 1
            _check_receipt(path, receipt, entered, heads, cells, result)
            _check_grade(path, receipt, regrade, result)
            result.problems += [*starts.take(receipt), *turns.take(receipt), *regrades.take(receipt)]
    except ReceiptError as fault:
        result.problems.append(str(fault))
        return result
    result.problems += starts.problems()
    for cell, attempt in sorted(entered):
        result.problems.append(f"{cell}/{attempt}: the journal has it, the folder has not")
    return result


def _check_receipt(
    path: Path,
    receipt: Receipt,
    entered: dict[tuple[str, int], str],
    heads: set[str],
    cells: Mapping[str, object],
    result: Verification,
) -> None:
    name = f"{receipt.cell.id}/{receipt.attempt}"
    digest = entered.pop((receipt.cell.id, receipt.attempt), None)
    if digest is None:
        result.problems.append(f"{name}: the journal does not know this receipt")
    elif digest != sha256_hex((path / RECEIPT_FILE).read_bytes()):
        result.problems.append(f"{name}/{RECEIPT_FILE}: was changed after it was written")
    if receipt.journal_prev not in heads:
        result.problems.append(f"{name}: names a journal line that does not exist")
    scheduled = cells.get(receipt.cell.id)
    record = receipt.cell
    stated = (record.task, record.arm, record.repetition, record.block, record.position, record.seed)
    if scheduled is None:
        result.problems.append(f"{name}: no such cell in the schedule")
    elif stated != tuple(getattr(scheduled, key) for key in ("task", "arm", "repetition", "block", "position", "seed")):
        result.problems.append(f"{name}: stands elsewhere in the schedule")
    present = {item.name for item in path.iterdir()} - {RECEIPT_FILE}
    for extra in sorted(present - set(receipt.files)):
        result.problems.append(f"{name}/{extra}: no receipt names this file")
    for file, expected in receipt.files.items():
        if file not in present:
            result.problems.append(f"{name}/{file}: is missing")
        elif sha256_file(path / file) != expected:
            result.problems.append(f"{name}/{file}: was changed after it was written")


def _check_grade(path: Path, receipt: Receipt, regrade: Regrade, result: Verification) -> None:
    if not receipt.status.is_graded:
        return
    file = path / REPORT_FILE
    if not file.is_file():
        result.problems.append(f"{receipt.cell.id}/{receipt.attempt}: graded without a test report")
        return
    if sha256_file(file) != receipt.files.get(REPORT_FILE):
        return  # named already
    raw = zstandard.ZstdDecompressor().decompress(file.read_bytes(), max_output_size=MAX_REPORT_BYTES)
    status = regrade(receipt, raw)
    if status is None:
        result.not_regraded += 1
    elif status is not receipt.status:
        name = f"{receipt.cell.id}/{receipt.attempt}"
        result.problems.append(f"{name}: the test report says {status.value}, the receipt {receipt.status.value}")
    else:
        result.regraded += 1
