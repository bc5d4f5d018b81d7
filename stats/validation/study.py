"""Validation study of the defaults of ``pairtrial.stats``: coverage, type I error and power.

``python stats/validation/study.py`` writes the tables (CSV) to ``results/`` and the figures to ``figures/``; it takes
about half an hour on one core. ``--short`` does a small part of everything in seconds and writes to ``--out`` only.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import enumeration
import simulation

from pairtrial import stats

HERE = Path(__file__).resolve().parent
SEED = 20260101

Row = dict[str, float | str]


@dataclass(frozen=True)
class Scale:
    """How much of the study to run."""

    coverage_n: tuple[int, ...]
    posterior_n: tuple[int, ...]
    test_n: tuple[int, ...]
    simulated_n: tuple[int, ...]
    runs: tuple[int, ...]
    times: int
    clusters: tuple[int, ...]
    discordances: tuple[float, ...] = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)


FULL = Scale(
    coverage_n=(12, 22, 50, 100, 200, 500),
    posterior_n=(12, 22, 50),
    test_n=(12, 22, 50, 100, 200, 300, 500),
    simulated_n=(12, 22, 50, 100, 500),
    runs=(1, 3, 5),
    times=4000,
    clusters=(5, 10, 20),
)
SHORT = Scale((12,), (), (12, 22), (12, 22), (1, 3), 150, (5, 10), (0.1, 0.3))


def coverage_rows(scale: Scale) -> list[Row]:
    """Exact coverage and width of every interval for one run per task and arm."""
    rows: list[Row] = []
    for n in scale.coverage_n:
        methods = [name for name in enumeration.METHODS if name != "posterior" or n in scale.posterior_n]
        rows += enumeration.coverage(n, methods)  # type: ignore[arg-type]
    return rows


def summarise(rows: Iterable[Row]) -> list[Row]:
    """Worst and mean coverage over the settings: one row per n, a pair of columns per method."""
    groups: dict[tuple[float, str], list[float]] = {}
    for row in rows:
        groups.setdefault((float(row["n"]), str(row["method"])), []).append(float(row["coverage"]))
    out: dict[float, Row] = {}
    for (n, method), values in groups.items():
        line = out.setdefault(n, {"n": int(n)})
        line[f"{method}_worst"] = min(values)
        line[f"{method}_mean"] = sum(values) / len(values)
    columns = dict.fromkeys(name for line in out.values() for name in line)
    return [{name: line.get(name, "") for name in columns} for line in out.values()]


def test_rows(scale: Scale) -> list[Row]:
    """Size and power of McNemar's variants, and what intervals would do if they were used as tests."""
    rows: list[Row] = []
    for n in scale.test_n:
        for discordance in scale.discordances:
            row: Row = {"n": n, "discordance": discordance}
            for name in enumeration.TESTS:
                row[f"size_{name}"] = enumeration.rejection(name, n, discordance, 0.0)
            if n <= 100:
                for name in ("tango", "bca_mid"):
                    row[f"size_{name}_excludes_0"] = enumeration.excludes_zero(name, n, discordance)
            for delta in (0.05, 0.1, 0.2):
                if delta <= discordance:
                    for name in ("exact", "midp"):
                        row[f"power_{name}_{delta}"] = enumeration.rejection(name, n, discordance, delta)
            row["chance_to_reach_floor"] = stats.chance_to_reach_floor(n, discordance)
            rows.append(row)
    return _filled(rows)


def equivalence_rows(scale: Scale) -> list[Row]:
    """TOST: error at the margin, power at no difference."""
    rows: list[Row] = []
    for n in scale.test_n:
        for discordance in (0.1, 0.2, 0.3):
            for margin in (0.05, 0.1):
                if margin <= discordance:
                    rows.append(
                        {
                            "n": n,
                            "discordance": discordance,
                            "margin": margin,
                            "attainable": str(stats.equivalence_attainable(n, margin)).lower(),
                            "error_at_margin": enumeration.equivalence(n, discordance, margin, margin),
                            "power_at_zero": enumeration.equivalence(n, discordance, 0.0, margin),
                        }
                    )
    return rows


def noise_rows(scale: Scale) -> list[Row]:
    """Odd-one-out test: size; flip rate: coverage."""
    return [
        {
            "n": n,
            "rate": rate,
            "odd_one_out_size": enumeration.odd_one_out_size(n, rate),
            "flip_rate_coverage": enumeration.flip_rate_coverage(n, rate),
        }
        for n in scale.test_n
        for rate in (0.05, 0.1, 0.2, 0.3)
    ]


def sequential_rows(most: int) -> list[Row]:
    """Probability of ever rejecting when looking after every discordant task."""
    looks = range(2, most + 1, 2)
    return [
        {
            "looks": m,
            "peeking_exact": stats.stopping_probability(m, rule="exact"),
            "e_value": stats.stopping_probability(m),
            "e_value_power_0.8": stats.stopping_probability(m, 0.8),
        }
        for m in looks
    ]


def repetition_rows(scale: Scale) -> list[Row]:
    """Simulated: intervals and tests with repetitions, three effect shapes."""
    return _filled(
        [
            simulation.repetitions(n, runs, effect, _times(scale, n), SEED, within=n * runs <= 300)
            for n in scale.simulated_n
            for runs in scale.runs
            for effect in simulation.EFFECTS
        ]
    )


def _times(scale: Scale, n: int) -> int:
    return scale.times if n <= 100 else max(scale.times // 4, 1)


def _filled(rows: Sequence[Row]) -> list[Row]:
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name, "") for name in columns} for row in rows]


def run(scale: Scale, only: str | None = None) -> dict[str, list[Row]]:
    """Every table of the study, or one."""
    tables: dict[str, list[Row]] = {}
    families = [(n, k) for n in scale.simulated_n if n <= 100 for k in (2, 3)]
    steps: dict[str, Callable[[], list[Row]]] = {
        "coverage": lambda: coverage_rows(scale),
        "tests": lambda: test_rows(scale),
        "equivalence": lambda: equivalence_rows(scale),
        "noise": lambda: noise_rows(scale),
        "sequential": lambda: sequential_rows(60 if scale is FULL else 12),
        "repetitions": lambda: repetition_rows(scale),
        "holm": lambda: [simulation.holm_family(n, k, scale.times, SEED) for n, k in families],
        "clusters": lambda: [simulation.clusters(groups, min(scale.times, 1000), SEED) for groups in scale.clusters],
        "ratios": lambda: [simulation.ratios(n, scale.times, SEED) for n in scale.simulated_n if n <= 100],
    }
    if only is not None:
        steps = {only: steps[only]}
    for name, step in steps.items():
        start = time.perf_counter()
        tables[name] = step()
        sys.stderr.write(f"{name}: {len(tables[name])} rows, {time.perf_counter() - start:.1f} s\n")
    if "coverage" in tables:
        tables["coverage_summary"] = summarise(tables["coverage"])
    return tables


def write(tables: dict[str, list[Row]], folder: Path) -> None:
    """One CSV a table, six significant digits."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(
                {key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()}
                for row in rows
            )


def main() -> int:
    """Run the study and draw its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="a small part of everything, in seconds")
    parser.add_argument("--out", type=Path, help="folder for results/ and figures/ (default: beside this script)")
    parser.add_argument("--figures-only", action="store_true", help="draw the figures from the tables that are there")
    parser.add_argument("--only", metavar="TABLE", help="make one table again, such as clusters")
    options = parser.parse_args()
    if options.short and options.out is None:
        parser.error("--short needs --out, so that it cannot overwrite the full results")
    folder = options.out or HERE
    if not options.figures_only:
        write(run(SHORT if options.short else FULL, options.only), folder / "results")
    import plots

    plots.draw(folder / "results", folder / "figures")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
