"""The run folder: ``runs/NAME/PLANID12/`` with the lock, the journal and one folder a cell and attempt.

Only this module writes there. A receipt's folder is built under a hidden name and renamed, so what exists is whole.
"""

from __future__ import annotations

import fcntl
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from pairtrial.core.canonical import is_canonical, sha256_hex
from pairtrial.core.disk import publish_folder, remove_tree, write_atomic
from pairtrial.core.errors import EnvironmentFault, ReceiptError
from pairtrial.core.model import describe
from pairtrial.prereg.lock import Lock, parse_lock
from pairtrial.runs.journal import Journal
from pairtrial.runs.receipt import RECEIPT_FILE, Receipt

LOCK_COPY = "lock.json"
JOURNAL = "journal.jsonl"
GUARD = ".run.lock"
BUILDING = ".building-"


def run_folder(root: Path, lock: Lock) -> Path:
    """Where the run of a lock lives: the plan id is in the path, so no run can be taken for another."""
    return root / lock.plan.id / lock.plan_id[:12]


def parse_receipt(data: bytes, name: str) -> Receipt:
    """Read a receipt from bytes, in its canonical form only."""
    try:
        value = json.loads(data)
        receipt = Receipt.model_validate(value, strict=False)
    except ValidationError as fault:
        raise ReceiptError("\n".join(f"{name}: {line}" for line in describe(fault)), slug="invalid-receipt") from None
    except ValueError as fault:
        raise ReceiptError(f"{name}: not a receipt: {fault}", slug="invalid-receipt") from None
    if not (data.endswith(b"\n") and is_canonical(data[:-1], value)):
        raise ReceiptError(f"{name}: the bytes were edited", slug="edited-receipt")
    return receipt


class RunReader:
    """Reads a run folder; writes nothing, starts nothing, needs no network."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / LOCK_COPY).is_file():
            raise ReceiptError(f"{folder}: not a run folder (no {LOCK_COPY})", slug="no-run")
        self.lock: Lock = parse_lock((folder / LOCK_COPY).read_bytes(), str(folder / LOCK_COPY))
        self.plan_id = self.lock.plan_id
        if not self.plan_id.startswith(folder.name):
            raise ReceiptError(f"{folder}: holds the lock of plan {self.plan_id[:12]}", slug="wrong-lock")

    def attempts(self) -> Iterator[tuple[Path, Receipt]]:
        """Every receipt with its folder, in byte order of cell and number of attempt; one in memory at a time."""
        for cell in sorted(p for p in self.folder.iterdir() if p.is_dir() and not p.name.startswith(".")):
            for attempt in sorted(cell.iterdir(), key=lambda p: (len(p.name), p.name)):
                if attempt.name.startswith("."):
                    continue
                path = attempt / RECEIPT_FILE
                if not path.is_file():
                    raise ReceiptError(f"{attempt}: no {RECEIPT_FILE}", slug="missing-receipt")
                receipt = parse_receipt(path.read_bytes(), f"{cell.name}/{attempt.name}/{RECEIPT_FILE}")
                if receipt.cell.id != cell.name or str(receipt.attempt) != attempt.name:
                    raise ReceiptError(
                        f"{cell.name}/{attempt.name}: holds the receipt of {receipt.cell.id} attempt {receipt.attempt}",
                        slug="misplaced-receipt",
                    )
                if receipt.plan_id != self.plan_id:
                    raise ReceiptError(
                        f"{cell.name}/{attempt.name}: was run under plan {receipt.plan_id[:12]}, "
                        f"not {self.plan_id[:12]}",
                        slug="foreign-receipt",
                    )
                yield attempt, receipt

    def kept(self, cell: str, attempt: int) -> tuple[Receipt, dict[str, bytes]]:
        """An attempt with the files beside it, each as its receipt names it; raises `ReceiptError` for another byte."""
        folder, name = self.folder / cell / str(attempt), f"{cell}/{attempt}"
        try:
            receipt = parse_receipt((folder / RECEIPT_FILE).read_bytes(), f"{name}/{RECEIPT_FILE}")
            files = {file: (folder / file).read_bytes() for file in receipt.files}
        except OSError as fault:
            raise ReceiptError(f"{name}: cannot be read ({fault.strerror})", slug="missing-receipt") from None
        for file, data in files.items():
            if sha256_hex(data) != receipt.files[file]:
                raise ReceiptError(f"{name}/{file}: was changed after it was written", slug="edited-receipt")
        return receipt, files


class RunStore(RunReader):
    """Writes a run folder. Holding one means holding the folder's lock: a second `run` is refused."""

    def __init__(self, root: Path, lock: Lock) -> None:
        folder = run_folder(root, lock)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._guard: IO[bytes] = (folder / GUARD).open("ab")
        except OSError as fault:
            raise EnvironmentFault(
                f"{folder}: cannot be written ({fault.strerror})",
                hint="choose another --runs folder",
                slug="unwritable",
            ) from fault
        try:
            fcntl.flock(self._guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._guard.close()
            raise EnvironmentFault(
                f"{folder}: another `pairtrial run` is at work here",
                hint="wait for it, or stop it; `pairtrial status` shows how far it is",
                slug="run-locked",
            ) from None
        copy = folder / LOCK_COPY
        if not copy.exists():
            write_atomic(copy, lock.to_bytes())
        super().__init__(folder)
        for leftover in folder.glob(f"*/{BUILDING}*"):
            remove_tree(leftover)
        self.journal = Journal(folder / JOURNAL)
        self._mutex = threading.Lock()
        self._adopt()

    def _adopt(self) -> None:
        """Enter receipts that were published right before a crash and did not reach the journal."""
        known = {
            (line.fields["cell"], line.fields["attempt"]) for line in self.journal.lines if line.event == "receipt"
        }
        for path, receipt in self.attempts():
            if (receipt.cell.id, receipt.attempt) not in known:
                self._enter(receipt, (path / RECEIPT_FILE).read_bytes(), adopted=True)

    def _enter(self, receipt: Receipt, data: bytes, *, adopted: bool = False) -> None:
        self.journal.append(
            "receipt",
            cell=receipt.cell.id,
            attempt=receipt.attempt,
            status=receipt.status.value,
            sha256=sha256_hex(data),
            **({"adopted": True} if adopted else {}),
        )

    def record(self, receipt: Receipt, files: Mapping[str, bytes]) -> Receipt:
        """Publish a receipt with the files beside it, and enter it in the journal.

        ``receipt.files`` and ``receipt.journal_prev`` are filled in here. Raises `EnvironmentFault` when the disk
        refuses; nothing half-written stays.
        """
        with self._mutex:
            final = receipt.model_copy(
                update={
                    "files": {name: sha256_hex(data) for name, data in sorted(files.items())},
                    "journal_prev": self.journal.head,
                }
            )
            cell = self.folder / receipt.cell.id
            building = cell / f"{BUILDING}{receipt.attempt}"
            data = final.to_bytes()
            try:
                remove_tree(building)
                building.mkdir(parents=True)
                for name, content in files.items():
                    (building / name).write_bytes(content)
                (building / RECEIPT_FILE).write_bytes(data)
            except OSError as fault:
                remove_tree(building)
                raise EnvironmentFault(
                    f"{building}: cannot be written ({fault.strerror})", slug="unwritable"
                ) from fault
            publish_folder(building, cell / str(receipt.attempt))
            self._enter(final, data)
            return final

    def note(self, event: str, **fields: object) -> None:
        """Enter an event that is not a receipt."""
        with self._mutex:
            self.journal.append(event, **fields)

    def close(self) -> None:
        """Give the folder back."""
        self.journal.close()
        self._guard.close()

    def __enter__(self) -> RunStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def find_run(root: Path, plan: str, plan_id: str | None = None) -> Path:
    """The run folder of a plan; ambiguity is an error, never settled by which is newest.

    Raises `ReceiptError` when there is none, or several and no ``plan_id`` (a prefix of at least four characters).
    """
    base = root / plan
    found = sorted(p for p in base.iterdir() if (p / LOCK_COPY).is_file()) if base.is_dir() else []
    if plan_id is not None:
        found = [p for p in found if p.name.startswith(plan_id[:12]) or plan_id.startswith(p.name)]
    if not found:
        raise ReceiptError(f"{base}: no run{f' of plan id {plan_id}' if plan_id else ''}", slug="no-run")
    if len(found) > 1:
        names = ", ".join(p.name for p in found)
        raise ReceiptError(f"{base}: several runs ({names})", hint="name one with --plan-id", slug="ambiguous-run")
    return found[0]
