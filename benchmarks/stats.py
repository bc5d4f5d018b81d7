"""Exact BCa by convolution against ``scipy.stats.bootstrap`` (BCa, 10,000 resamples), in one run on the same data.

Run ``python benchmarks/stats.py``; ``--json`` prints one record a line. Times are the best of several repeats; peak
memory is what Python and numpy allocated during one call (tracemalloc), measured apart from the times.
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import scipy.stats

from pairtrial import stats

SIZES = (22, 500, 5000)
GOALS = {22: 80, 500: 150, 5000: 150}
RESAMPLES = 10_000


def task_deltas(n: int) -> list[int]:
    """20% wins, 10% losses, in a fixed order (22 tasks: 4 and 2)."""
    wins, losses = round(0.2 * n), round(0.1 * n)
    return [1] * wins + [-1] * losses + [0] * (n - wins - losses)


def best_time(function: Callable[[], object], seconds: float) -> float:
    """Fastest of repeated calls within about ``seconds``, at least two."""
    best, calls, start = float("inf"), 0, time.perf_counter()
    while calls < 2 or time.perf_counter() - start < seconds:
        begin = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - begin)
        calls += 1
    return best


def peak_memory(function: Callable[[], object]) -> int:
    """Bytes at the highest point of one call."""
    tracemalloc.start()
    function()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def compare(n: int, seconds: float) -> dict[str, float | int | str]:
    """One row: both methods on the same n task deltas."""
    deltas = task_deltas(n)
    data = (np.array(deltas),)

    def resampled() -> object:
        return scipy.stats.bootstrap(data, np.mean, n_resamples=RESAMPLES, method="BCa", rng=1)

    def exact() -> object:
        return stats.bca(deltas)

    exact()  # the first call imports and allocates
    ours, theirs = best_time(exact, seconds), best_time(resampled, seconds)
    interval = stats.bca(deltas)
    return {
        "n": n,
        "exact_ms": ours * 1e3,
        "scipy_ms": theirs * 1e3,
        "ratio": theirs / ours,
        "goal": GOALS[n],
        "exact_peak_kib": peak_memory(exact) / 1024,
        "scipy_peak_kib": peak_memory(resampled) / 1024,
        "interval": f"[{interval.low_exact}, {interval.high_exact}]",
    }


def main() -> int:
    """Print the table; exit 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON record a line")
    parser.add_argument("--seconds", type=float, default=2.0, help="time spent on each measurement")
    options = parser.parse_args()
    rows = [compare(n, options.seconds) for n in SIZES]
    if options.json:
        print("\n".join(json.dumps(row) for row in rows))
    else:
        print(f"numpy {np.__version__}, scipy {scipy.__version__}, {RESAMPLES:,} resamples")
        print(f"{'n':>5} {'exact ms':>9} {'scipy ms':>9} {'ratio':>7} {'goal':>5} {'exact KiB':>10} {'scipy KiB':>11}")
        for row in rows:
            print(
                f"{row['n']:>5} {row['exact_ms']:>9.3f} {row['scipy_ms']:>9.1f} {row['ratio']:>6.0f}x "
                f"{row['goal']:>4}x {row['exact_peak_kib']:>10.0f} {row['scipy_peak_kib']:>11.0f}"
            )
    return 0 if all(float(row["ratio"]) >= int(row["goal"]) for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
