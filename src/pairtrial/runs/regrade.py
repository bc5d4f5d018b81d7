"""Grading again what our own fault left ungraded, without running the agent again.

A grading can fail by no fault of the work: a full disk, a grader that was killed. The work is kept beside the receipt, so
the next `pairtrial run` grades it as a new attempt that names the one whose work it is. What was graded is never graded
again, whatever it was: a second draw for an outcome is a false result.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pairtrial.core.status import Status
from pairtrial.runs.receipt import Receipt

MAX_REGRADES = 2
"""So often the work of one attempt is graded again; a fault that comes back each time is no accident."""
WORK_FILE = "work.patch"
REPORT_FILE = "report.zst"
LOST = frozenset({Status.GRADING_ERROR, Status.SANDBOX_LOST, Status.CLEANUP_FAILURE})
AGENT_PART = (
    "plan_id", "cell", "stop_reason", "limit", "started_at", "observed", "sandbox", "startup", "usage", "wire", "tool_calls",
    "context_tool_calls", "files_modified", "files_read", "turns", "truncated",
)  # fmt: skip
"""What a regrade carries over as it was."""


def is_ungraded(receipt: Receipt) -> bool:
    """Whether work was left and its grading failed by our fault.

    A cleanup that failed after a verdict is no such case: the verdict lies there, in the report.
    """
    if receipt.status not in LOST or WORK_FILE not in receipt.files or receipt.times.grading_s is None:
        return False
    return receipt.grade is None and (receipt.status is Status.GRADING_ERROR or REPORT_FILE not in receipt.files)


@dataclass(frozen=True, slots=True)
class Gradings:
    """What the attempts of one cell, in their order, say about grading again."""

    regrades: int = 0
    """How often the work of the last agent run was graded again."""
    owed: int | None = None
    """The attempt whose work is owed another grading; None when none is."""

    def after(self, receipt: Receipt) -> Gradings:
        """With one attempt more."""
        regrades = 0 if receipt.regrades is None else self.regrades + 1
        source = receipt.attempt if receipt.regrades is None else receipt.regrades
        return Gradings(regrades, source if is_ungraded(receipt) and regrades < MAX_REGRADES else None)


NEVER_GRADED = Gradings()


@dataclass(slots=True)
class RegradeCheck:
    """Says of the receipts of a run, in their order, which were graded again against the rule."""

    cell: str = ""
    history: dict[int, Receipt] = field(default_factory=dict)
    gradings: Gradings = NEVER_GRADED

    def take(self, receipt: Receipt) -> list[str]:
        """What is wrong with one more receipt."""
        if receipt.cell.id != self.cell:
            self.cell, self.history, self.gradings = receipt.cell.id, {}, NEVER_GRADED
        problems = self._problems(receipt) if receipt.regrades is not None else []
        self.history[receipt.attempt] = receipt
        self.gradings = self.gradings.after(receipt)
        return problems

    def _problems(self, receipt: Receipt) -> list[str]:
        name = f"{receipt.cell.id}/{receipt.attempt}"
        root = self.history.get(receipt.regrades or 0)
        if root is None or root.regrades is not None:
            return [f"{name}: regrades attempt {receipt.regrades}, which ran no agent"]
        problems = []
        if self.gradings.owed != root.attempt:
            last = self.history[max(self.history)]
            problems.append(
                f"{name}: was graded again though attempt {last.attempt} ended as {last.status.value} "
                f"after {self.gradings.regrades} regrade(s)"
            )
        old, new = (item.model_dump(mode="json", include=set(AGENT_PART)) for item in (root, receipt))
        problems += [
            f"{name}: {key} is not that of attempt {root.attempt}" for key in AGENT_PART if old.get(key) != new.get(key)
        ]
        if any(getattr(root.times, key) != getattr(receipt.times, key) for key in ("setup_s", "index_s", "agent_s")):
            problems.append(f"{name}: times are not those of attempt {root.attempt}")
        if carried(root) != carried(receipt):
            problems.append(f"{name}: the agent's files are not those of attempt {root.attempt}")
        return problems


def carried(receipt: Receipt) -> dict[str, str]:
    """The files of the agent's part: name → digest."""
    return {name: digest for name, digest in receipt.files.items() if name != REPORT_FILE}
