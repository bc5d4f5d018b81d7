"""Receipts, the journal and the run folder."""

from __future__ import annotations

from pairtrial.runs.receipt import Receipt
from pairtrial.runs.store import RunReader, RunStore, find_run, run_folder

__all__ = ["Receipt", "RunReader", "RunStore", "find_run", "run_folder"]
