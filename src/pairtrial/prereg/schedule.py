"""The schedule: blocks in SHA-256 order, arms inside a block by Williams rows.

A pseudo-random generator may change between versions of its library; a hash may not, so the schedule of a plan is the
same bytes on every machine and in every year. Williams rows put every arm equally often in every position and
after every other arm.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from pairtrial import stats
from pairtrial.core.canonical import digest_json
from pairtrial.prereg.plan import Plan


@dataclass(frozen=True, slots=True)
class Cell:
    """One scheduled unit: a task, an arm and a repetition."""

    task: str
    arm: str
    repetition: int
    """1-based."""
    block: int
    """0-based place of its block in the schedule."""
    position: int
    """0-based place inside its block."""
    seed: int
    """Seed of the agent for this rollout, below 2**31; independent for every cell."""

    @property
    def id(self) -> str:
        """``task.arm.rN``: the key of everything on disk (none of the parts holds a dot)."""
        return f"{self.task}.{self.arm}.r{self.repetition}"


@dataclass(frozen=True, slots=True)
class Block:
    """All cells of one task and repetition, in the order in which they run."""

    index: int
    task: str
    repetition: int
    cells: tuple[Cell, ...]


def agent_seed(seed: str, cell_id: str) -> int:
    """Seed of one rollout: the first 31 bits of SHA-256(seed LF ``agent-seed`` LF cell id)."""
    digest = hashlib.sha256(f"{seed}\nagent-seed\n{cell_id}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def schedule(plan: Plan) -> tuple[Block, ...]:
    """Every block of a plan in the order in which it runs; same plan, same schedule."""
    pairs = {
        f"{task}/r{repetition}": (task, repetition)
        for task in plan.tasks.ids
        for repetition in range(1, plan.repetitions + 1)
    }
    order = stats.hash_order(tuple(pairs), seed=plan.seed, purpose="block-order")
    arms = stats.hash_order(tuple(arm.name for arm in plan.arms), seed=plan.seed, purpose="arm-labels")
    rows = stats.williams(len(arms))
    blocks = []
    for index, key in enumerate(order):
        task, repetition = pairs[key]
        row = rows[index % len(rows)]
        cells = tuple(
            Cell(
                task, arms[label], repetition, index, position,
                agent_seed(plan.seed, f"{task}.{arms[label]}.r{repetition}"),
            )
            for position, label in enumerate(row)
        )  # fmt: skip
        blocks.append(Block(index, task, repetition, cells))
    return tuple(blocks)


def schedule_digest(blocks: tuple[Block, ...]) -> str:
    """SHA-256 of the schedule: cell ids with their seeds, in order."""
    return digest_json([[cell.id, cell.seed] for block in blocks for cell in block.cells])


def position_counts(blocks: tuple[Block, ...]) -> dict[str, list[int]]:
    """How often each arm stands in each position; unequal counts are the imbalance that the report prints."""
    arms = sorted({cell.arm for block in blocks for cell in block.cells})
    counts = {arm: [0] * len(arms) for arm in arms}
    for block in blocks:
        for cell in block.cells:
            counts[cell.arm][cell.position] += 1
    return counts
