"""Running a plan: blocks in schedule order, a few at a time, resumable at any moment.

What to do next is decided from the schedule and from which receipts exist, never from how a rollout ended, but for the
registered retry of what the infrastructure lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal

import anyio

from pairtrial.core.status import Status
from pairtrial.harness.rollout import Experiment, regrade_attempt, run_attempt
from pairtrial.prereg.plan import Plan
from pairtrial.prereg.schedule import Block, Cell
from pairtrial.runs.receipt import Receipt
from pairtrial.runs.regrade import NEVER_GRADED, Gradings
from pairtrial.runs.store import RunStore
from pairtrial.runs.turns import TURN

HOPELESS_BLOCKS = 3
"""When so many blocks have ended and not one cell was graded, the run stops: something is wrong with all of them."""


@dataclass(slots=True)
class Progress:
    """How far a run is; what the progress bar and `status` print."""

    planned: int
    done: int = 0
    by_status: Counter[str] = field(default_factory=Counter)
    stopped: str | None = None
    """Why the run ended before its last block, where it did."""
    graded_blocks: int = 0
    ended_blocks: int = 0
    owed: int = 0
    """Cells of this run whose work is kept and is to be graded again, for its grading failed by our fault."""


@dataclass(frozen=True, slots=True)
class CellState:
    """What the receipts say about one cell."""

    attempts: int
    status: Status | None
    """Status of the last attempt."""
    spent: Decimal
    runs: int = 0
    """Attempts in which the agent ran; the others only graded its work again."""
    gradings: Gradings = NEVER_GRADED

    @property
    def owed(self) -> int | None:
        """The attempt whose work is to be graded again, for its grading failed by our fault."""
        return self.gradings.owed

    def after(self, receipt: Receipt, plan: Plan) -> CellState:
        """With one attempt more."""
        return CellState(
            receipt.attempt,
            receipt.status,
            self.spent + cost(receipt, plan),
            self.runs + (receipt.regrades is None),
            self.gradings.after(receipt),
        )

    def is_final(self, plan: Plan) -> bool:
        """A cell is done unless it was never run, or the plan lets what was lost run again."""
        if self.status is None or self.owed is not None:
            return False
        return not (self.status in plan.retries.statuses and self.runs < plan.retries.max_attempts)


UNTOUCHED = CellState(0, None, Decimal(0))


def cost(receipt: Receipt, plan: Plan) -> Decimal:
    """What an attempt cost; where the agent does not say, the registered cap is assumed. To grade again costs nothing."""
    if receipt.regrades is not None:
        return Decimal(0)
    known = [Decimal(usage.cost_usd) for usage in receipt.usage if usage.cost_usd is not None]
    return sum(known, Decimal(0)) if known else plan.budget.per_rollout_usd


def cell_states(receipts: Iterable[Receipt], plan: Plan) -> dict[str, CellState]:
    """State of every cell that has a receipt."""
    states: dict[str, CellState] = {}
    for receipt in receipts:
        states[receipt.cell.id] = states.get(receipt.cell.id, UNTOUCHED).after(receipt, plan)
    return states


class Batch:
    """One call of `pairtrial run`."""

    def __init__(
        self,
        experiment: Experiment,
        blocks: tuple[Block, ...],
        store: RunStore,
        *,
        workers: int,
        committed: bool | None = None,
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self.experiment = experiment
        self.blocks = blocks
        self.store = store
        self.workers = workers
        self.committed = committed
        self.on_progress = on_progress
        plan = experiment.plan
        self.states = cell_states((receipt for _, receipt in store.attempts()), plan)
        self.spent = sum((state.spent for state in self.states.values()), Decimal(0))
        self.reserved: dict[int, Decimal] = {}
        """Block that is under way → what its rollouts that are still to come may cost."""
        self._block_ended = anyio.Event()
        self.progress = Progress(planned=sum(len(block.cells) for block in blocks))
        for block in blocks:
            for cell in block.cells:
                state = self.states.get(cell.id, UNTOUCHED)
                if state.is_final(plan) and state.status is not None:
                    self._count(state.status)

    def _count(self, status: Status) -> None:
        self.progress.done += 1
        self.progress.by_status[status.value] += 1

    def _state(self, cell: Cell) -> CellState:
        return self.states.get(cell.id, UNTOUCHED)

    def todo(self, block: Block) -> list[Cell]:
        """Cells of a block without a final receipt, in their order."""
        plan = self.experiment.plan
        return [cell for cell in block.cells if not self.states.get(cell.id, UNTOUCHED).is_final(plan)]

    async def run(self) -> Progress:
        """Run what is left; returns when every block is done or the run was stopped for a registered reason."""
        pending = [block for block in self.blocks if self.todo(block)]
        if not pending:
            return self.progress
        cells = sum(len(self.todo(block)) for block in pending)
        self.store.note("run-started", workers=self.workers, cells=cells, committed=self.committed)
        queue = iter(pending)
        async with anyio.create_task_group() as group:
            for _ in range(min(self.workers, len(pending))):
                group.start_soon(self._work, queue)
        left = f"{self.progress.owed} to be graded again" if self.progress.owed else "complete"
        self.store.note("run-ended", reason=self.progress.stopped or left)
        return self.progress

    async def _work(self, queue: Iterable[Block]) -> None:
        for block in queue:
            if not await self._affordable(block):
                return
            try:
                await self._block(block)
            finally:
                del self.reserved[block.index]
                self._block_ended.set()
                self._block_ended = anyio.Event()

    async def _affordable(self, block: Block) -> bool:
        """Whole blocks only: one starts when it could not pass the ceiling even if all of it cost the cap.

        Blocks that are under way mostly cost less than they may, so the run stops only when none is.
        """
        budget = self.experiment.plan.budget
        need = budget.per_rollout_usd * sum(self._state(cell).owed is None for cell in self.todo(block))
        while not self.progress.stopped:
            if self.spent + sum(self.reserved.values()) + need <= budget.ceiling_usd:
                self.reserved[block.index] = need
                return True
            if self.reserved:
                await self._block_ended.wait()
                continue
            self.progress.stopped = (
                f"budget: {self.spent} of {budget.ceiling_usd} USD spent, the next block may need {need}"
            )
        return False

    async def _block(self, block: Block) -> None:
        plan = self.experiment.plan
        for cell in self.todo(block):
            state = self.states.get(cell.id, UNTOUCHED)
            while not state.is_final(plan):
                state = await self._attempt(cell, state)
                if state.owed is not None:  # at once it would most likely fail again: the next run does it
                    break
            if state.owed is not None:
                self.progress.owed += 1
            elif state.status is not None:
                self._count(state.status)
            self.on_progress(self.progress)
        self._end_block(block)

    async def _attempt(self, cell: Cell, state: CellState) -> CellState:
        """Run a cell, or grade what it left."""
        plan, attempt = self.experiment.plan, state.attempts + 1
        if state.owed is not None:
            source, kept = self.store.kept(cell.id, state.owed)
            self.store.note("regrade-started", cell=cell.id, attempt=attempt, regrades=source.attempt)
            receipt, files = await regrade_attempt(self.experiment, cell, attempt, source, kept)
        else:
            self.store.note("attempt-started", cell=cell.id, attempt=attempt)

            def turn(number: int, digest: str) -> None:
                self.store.note(TURN, cell=cell.id, attempt=attempt, turn=number, sha256=digest)

            receipt, files = await run_attempt(self.experiment, cell, attempt, turn)
            self.reserved[cell.block] -= min(self.reserved[cell.block], plan.budget.per_rollout_usd)
        final = self.store.record(receipt, files)
        self.spent += cost(final, plan)
        self.states[cell.id] = state.after(final, plan)
        return self.states[cell.id]

    def _end_block(self, block: Block) -> None:
        statuses = [self.states.get(cell.id, UNTOUCHED).status for cell in block.cells]
        self.progress.ended_blocks += 1
        self.progress.graded_blocks += any(status is not None and status.is_graded for status in statuses)
        if self.progress.ended_blocks >= HOPELESS_BLOCKS and self.progress.graded_blocks == 0:
            names = ", ".join(sorted({status.value for status in statuses if status}))
            self.progress.stopped = (
                f"none of the first {self.progress.ended_blocks} blocks has a graded cell ({names}): "
                "the fault is not in the work of the agent"
            )
