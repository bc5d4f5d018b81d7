"""Whether the turns of every rollout were sent in the registered order, by the journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pairtrial.core.status import StopReason
from pairtrial.prereg.lock import Lock
from pairtrial.runs.journal import Line
from pairtrial.runs.receipt import Receipt

TURN = "turn"
"""Event of the journal: one turn of a prompt was sent."""


def turns_name(task: str) -> str:
    """Name in the lock of the digests of a task's turns; absent for a task of one turn."""
    return f"task.{task}.turns"


def registered_turns(identities: Mapping[str, str], task: str) -> tuple[str, ...]:
    """SHA-256 of each turn's prompt in the registered order; empty for a task of one turn."""
    return tuple(identities.get(turns_name(task), "").split())


def disorder(sent: Iterable[str], registered: tuple[str, ...]) -> list[str]:
    """What is wrong with the order of turns that were sent; to stop early is nothing wrong."""
    problems: list[str] = []
    seen: list[str] = []
    for number, digest in enumerate(sent, start=1):
        due = registered[number - 1] if number <= len(registered) else None
        if digest != due:
            if digest in seen:
                problems.append(f"turn {registered.index(digest) + 1} was sent twice" if digest in registered else
                                f"place {number} repeats a foreign turn")  # fmt: skip
            elif digest in registered:
                problems.append(f"turn {registered.index(digest) + 1} was sent in place {number}")
            else:
                problems.append(f"place {number} holds a turn that is not registered")
        seen.append(digest)
    return problems


class TurnCheck:
    """Compares the turns of the journal with the lock and with the receipts."""

    def __init__(self, lock: Lock, lines: Iterable[Line]) -> None:
        self._identities = lock.identities
        self.sent: dict[tuple[str, int], list[tuple[int, str]]] = {}
        """(cell, attempt) → (number, digest) of each turn, of the start that led to the receipt."""
        for line in lines:
            if line.event == "attempt-started":
                self.sent.pop(_key(line), None)  # one that was killed before may have sent some
            elif line.event == TURN:
                self.sent.setdefault(_key(line), []).append(
                    (int(line.fields.get("turn", 0)), str(line.fields.get("sha256")))
                )

    def take(self, receipt: Receipt) -> list[str]:
        """What is wrong with the turns of one attempt."""
        registered = registered_turns(self._identities, receipt.cell.task)
        attempt = receipt.attempt if receipt.regrades is None else receipt.regrades
        sent = self.sent.get((receipt.cell.id, attempt), [])
        if not registered and not sent and not receipt.turns:
            return []
        digests = tuple(digest for _, digest in sent)
        problems = []
        if [number for number, _ in sent] != list(range(1, len(sent) + 1)):
            problems.append("the journal's turns are not numbered one after another")
        if digests != (receipt.turns or ()):
            problems.append("the journal's turns are not the receipt's")
        if receipt.status.is_graded:  # one that is void for its order is as it should be
            problems += disorder(digests, registered)
            if receipt.stop_reason is StopReason.FINISHED and len(sent) < len(registered):
                problems.append(f"turn {len(sent) + 1} of {len(registered)} is missing")
        return [f"{receipt.cell.id}/{receipt.attempt}: {problem}" for problem in problems]


def _key(line: Line) -> tuple[str, int]:
    return str(line.fields.get("cell")), int(line.fields.get("attempt", 0))
