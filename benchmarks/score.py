"""Scoring 10,000 receipts: seconds and peak memory, against reading the same files and parsing their JSON.

Run: python benchmarks/score.py [receipts]
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from factories import make_lock, make_plan, receipts_for

from pairtrial.core.status import Status
from pairtrial.report import score
from pairtrial.report.score import JournalFacts
from pairtrial.runs.store import LOCK_COPY, RunReader, run_folder


def build(root: Path, receipts: int) -> Path:
    """A run folder of the wanted size, written without its fsyncs."""
    tasks = max(2, receipts // 30)
    plan = make_plan(
        tasks={"pack": "p", "ids": [f"t{i:05d}" for i in range(tasks)]},
        repetitions=10,
        analysis={"primary": "sign-flip-exact", "family": ["treat"], "secondary": ["steps", "wall_s"]},
    )
    lock = make_lock(plan)
    folder = run_folder(root, lock)
    folder.mkdir(parents=True)
    (folder / LOCK_COPY).write_bytes(lock.to_bytes())
    outcomes = {f"t{i:05d}.treat.r{r}": Status.RESOLVED for i in range(tasks) for r in range(1, 11) if (i * r) % 3}
    for receipt in receipts_for(lock, outcomes):
        place = folder / receipt.cell.id / "1"
        place.mkdir(parents=True)
        (place / "receipt.json").write_bytes(receipt.to_bytes())
    return folder


def peak_mb() -> float:
    """Peak resident memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Print one line a measurement."""
    receipts = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as name:
        folder = build(Path(name), receipts)
        begun = time.perf_counter()
        count = sum(1 for path in sorted(folder.glob("*/1/receipt.json")) if json.loads(path.read_bytes()))
        bare = time.perf_counter() - begun
        before = peak_mb()
        begun = time.perf_counter()
        reader = RunReader(folder)
        card = score(reader.lock, (receipt for _, receipt in reader.attempts()), JournalFacts({}, None))
        ours = time.perf_counter() - begun
        print(f"receipts {count}: scored in {ours:.2f} s, bare read and parse {bare:.2f} s, ratio {ours / bare:.1f}")
        print(
            f"peak memory before {before:.0f} MB, after {peak_mb():.0f} MB; tasks in the result {card.comparisons[0].tasks}"
        )


if __name__ == "__main__":
    main()
