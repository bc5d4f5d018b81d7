"""From receipts to small tables: which cells are graded, which blocks are complete, what each task got."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction

from pairtrial.core.status import Status, StopReason
from pairtrial.prereg.plan import Plan
from pairtrial.prereg.schedule import Block
from pairtrial.runs.receipt import Receipt


@dataclass(frozen=True, slots=True)
class CellResult:
    """What counts of the last attempt of a cell."""

    status: Status
    stop_reason: StopReason
    steps: int | None
    wall_s: float | None
    tool_calls: int | None
    context_calls: int | None
    cost_usd: float | None
    cost_neutral_usd: float | None
    """The same tokens at the price of fresh ones: what it would have cost with a clean cache."""
    touched: bool

    @property
    def graded(self) -> bool:
        """Whether the cell has a grade."""
        return self.status.is_graded

    @property
    def resolved(self) -> bool:
        """Whether every hidden check passed."""
        return self.status is Status.RESOLVED

    def metric(self, name: str) -> float | None:
        """A secondary metric by its registered name."""
        value: float | None = getattr(self, name)
        return value


@dataclass(slots=True)
class Tally:
    """All results of a run by cell id; a few dozen bytes a cell whatever the size of its files."""

    plan: Plan
    blocks: tuple[Block, ...]
    cells: dict[str, CellResult] = field(default_factory=dict)
    attempts: Counter[str] = field(default_factory=Counter)
    """Arm → attempts."""
    regrades: Counter[str] = field(default_factory=Counter)
    """Arm → gradings that were made up for, after a fault of ours."""
    toolchains: dict[tuple[tuple[str, str], ...], None] = field(default_factory=dict)
    isolation: dict[str, None] = field(default_factory=dict)

    def is_complete(self, block: Block) -> bool:
        """A block counts when every one of its cells is graded."""
        return all(cell.id in self.cells and self.cells[cell.id].graded for cell in block.cells)

    def complete_blocks(self) -> list[Block]:
        """Blocks that count, in schedule order."""
        return [block for block in self.blocks if self.is_complete(block)]

    def results(self, block: Block) -> dict[str, CellResult]:
        """Arm → result, for a complete block."""
        return {cell.arm: self.cells[cell.id] for cell in block.cells}

    def by_task(self) -> dict[str, list[dict[str, CellResult]]]:
        """Task → results of its complete blocks, in plan order of the tasks; tasks without one are absent."""
        table: dict[str, list[dict[str, CellResult]]] = {task: [] for task in self.plan.tasks.ids}
        for block in self.complete_blocks():
            table[block.task].append(self.results(block))
        return {task: rows for task, rows in table.items() if rows}


def tally(plan: Plan, blocks: tuple[Block, ...], receipts: Iterable[Receipt]) -> Tally:
    """Read receipts once; of several attempts of a cell the last one counts and all are paid for."""
    result = Tally(plan, blocks)
    for receipt in receipts:
        if receipt.regrades is None:
            result.attempts[receipt.cell.arm] += 1
        else:  # the agent did not run: its usage stands in the attempt that was graded again, and counts once
            result.regrades[receipt.cell.arm] += 1
        result.toolchains[tuple(sorted(receipt.toolchain.items()))] = None
        result.isolation[f"{receipt.sandbox.kind}: {receipt.sandbox.isolation}"] = None
        steps = [usage.steps for usage in receipt.usage if usage.steps is not None]
        costs = [Decimal(usage.cost_usd) for usage in receipt.usage if usage.cost_usd is not None]
        result.cells[receipt.cell.id] = CellResult(
            status=receipt.status,
            stop_reason=receipt.stop_reason,
            steps=sum(steps) if steps else None,
            wall_s=receipt.times.agent_s,
            tool_calls=receipt.tool_calls,
            context_calls=receipt.context_tool_calls,
            cost_usd=float(sum(costs, Decimal(0))) if costs else None,
            cost_neutral_usd=_neutral(receipt),
            touched=bool(receipt.grade and receipt.grade.touched),
        )
    return result


def deltas(rows: Mapping[str, list[dict[str, CellResult]]], treatment: str, control: str) -> dict[str, Fraction]:
    """Task → (resolved by the treatment − resolved by the control) / complete blocks."""
    return {
        task: Fraction(sum(int(row[treatment].resolved) - int(row[control].resolved) for row in blocks), len(blocks))
        for task, blocks in rows.items()
    }


def _neutral(receipt: Receipt) -> float | None:
    wire = receipt.wire
    return None if wire is None or wire.cost_neutral_usd is None else float(wire.cost_neutral_usd)
