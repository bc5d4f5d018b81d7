"""Figures of the validation study, drawn from its CSV tables."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Row = dict[str, str]

LABELS = {
    "wald": "Wald (not offered)",
    "bca_strict": "BCa, strict ties",
    "bca_mid": "BCa, mid ties",
    "percentile": "percentile bootstrap",
    "paired_t": "paired t",
    "agresti_min": "Agresti-Min",
    "bonett_price": "Bonett-Price",
    "tango": "Tango (default)",
    "posterior": "Dirichlet posterior",
}
COLOURS = {
    "wald": "#999999",
    "bca_strict": "#d55e00",
    "bca_mid": "#e69f00",
    "percentile": "#cc79a7",
    "paired_t": "#0072b2",
    "agresti_min": "#56b4e9",
    "bonett_price": "#009e73",
    "tango": "#000000",
    "posterior": "#7f7f00",
}


def read(folder: Path, name: str) -> list[Row]:
    """One table of the study."""
    with (folder / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def _finish(figure: Figure, folder: Path, name: str) -> None:
    figure.savefig(folder / f"{name}.png", dpi=110, metadata={"Software": None})
    plt.close(figure)


def _frame(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(True, linewidth=0.4, alpha=0.5)
    axes.spines[["top", "right"]].set_visible(False)


def _tasks(axes: Axes, values: list[int]) -> None:
    axes.set_xscale("log")
    axes.set_xticks(values, [str(value) for value in values])
    axes.minorticks_off()


def coverage(results: Path, folder: Path) -> None:
    """Worst and mean coverage of every interval against the number of tasks."""
    rows = read(results, "coverage_summary")
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained", sharex=True)
    for axes, which in zip(panels, ("worst", "mean"), strict=True):
        for method, label in LABELS.items():
            points = [(int(r["n"]), float(r[f"{method}_{which}"])) for r in rows if r.get(f"{method}_{which}")]
            width = 2.6 if method == "tango" else 1.4
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3.5, linewidth=width,
                      color=COLOURS[method], label=label)  # fmt: skip
        axes.axhline(0.95, color="black", linewidth=0.8, linestyle=":")
        _tasks(axes, [int(r["n"]) for r in rows])
        _frame(axes, f"{which} of 25 settings", "tasks", "coverage of 95% intervals")
    panels[1].legend(fontsize=8, loc="lower right")
    figure.suptitle("One run per task and arm: exact coverage for the paired difference", fontsize=11)
    _finish(figure, folder, "coverage")


def width(results: Path, folder: Path) -> None:
    """Coverage against width: what the extra coverage costs, at 22 tasks."""
    rows = [row for row in read(results, "coverage") if row["n"] in ("12", "22")]
    numbers = sorted({int(row["n"]) for row in rows})
    figure, panels = plt.subplots(1, len(numbers), figsize=(11, 4.4), layout="constrained", squeeze=False)
    for axes, n in zip(panels[0], numbers, strict=True):
        for method, label in LABELS.items():
            points = [
                (100 * float(row["width"]), float(row["coverage"]))
                for row in rows
                if row["method"] == method and int(row["n"]) == n
            ]
            if points:
                axes.scatter(*zip(*points, strict=True), s=16, color=COLOURS[method], label=label, alpha=0.8)
        axes.axhline(0.95, color="black", linewidth=0.8, linestyle=":")
        _frame(axes, f"{n} tasks, one point per setting", "mean width, percentage points", "coverage")
    panels[0][0].legend(fontsize=7, loc="lower right")
    _finish(figure, folder, "width")


def tests(results: Path, folder: Path) -> None:
    """Size of McNemar's variants, and of intervals used as tests."""
    rows = read(results, "tests")
    discordances = sorted({row["discordance"] for row in rows}, key=float)
    shown = [d for d in discordances if d in ("0.1", "0.3", "0.5")]
    curves = {
        "size_exact": ("exact (default)", "#000000", "-"),
        "size_midp": ("mid-p", "#009e73", "-"),
        "size_asymptotic": ("asymptotic", "#0072b2", "-"),
        "size_corrected": ("continuity-corrected", "#56b4e9", "--"),
        "size_bca_mid_excludes_0": ("BCa excludes 0", "#e69f00", ":"),
        "size_tango_excludes_0": ("Tango excludes 0", "#999999", ":"),
    }
    figure, panels = plt.subplots(1, len(shown), figsize=(12, 4.2), layout="constrained", sharey=True, squeeze=False)
    for axes, discordance in zip(panels[0], shown, strict=True):
        mine = [row for row in rows if row["discordance"] == discordance]
        for key, (label, colour, style) in curves.items():
            points = [(int(row["n"]), 100 * float(row[key])) for row in mine if row.get(key)]
            if points:
                axes.plot(
                    *zip(*points, strict=True), linestyle=style, color=colour, marker="o", markersize=3, label=label
                )
        axes.axhline(5, color="black", linewidth=0.8, linestyle=":")
        _tasks(axes, [int(row["n"]) for row in mine])
        _frame(axes, f"{float(discordance):.0%} of tasks discordant", "tasks", "type I error, %")
    panels[0][-1].legend(fontsize=7)
    figure.suptitle("No effect: how often each rule calls a difference at 5%", fontsize=11)
    _finish(figure, folder, "type_one_error")


def power(results: Path, folder: Path) -> None:
    """Power of the exact test against the number of tasks."""
    rows = read(results, "tests")
    figure, panels = plt.subplots(1, 3, figsize=(12, 4.2), layout="constrained", sharey=True)
    for axes, delta in zip(panels, ("0.05", "0.1", "0.2"), strict=True):
        lines = sorted({row["discordance"] for row in rows if row.get(f"power_exact_{delta}")}, key=float)
        for i, discordance in enumerate(lines):
            mine = [row for row in rows if row["discordance"] == discordance]
            n = [int(row["n"]) for row in mine]
            colour = plt.get_cmap("viridis")(i / max(len(lines), 2))
            for test, style in (("exact", "-"), ("midp", ":")):
                values = [100 * float(row[f"power_{test}_{delta}"]) for row in mine]
                label = f"{float(discordance):.0%} discordant" if test == "exact" else None
                axes.plot(n, values, style, color=colour, label=label)
        axes.axhline(80, color="black", linewidth=0.8, linestyle=":")
        _tasks(axes, sorted({int(row["n"]) for row in rows}))
        _frame(axes, f"true difference {float(delta):.0%}", "tasks", "power, %")
        axes.legend(fontsize=7, loc="upper left")
    figure.suptitle("Power of exact McNemar (solid) and mid-p (dotted), one run per task and arm", fontsize=11)
    _finish(figure, folder, "power")


def repetitions(results: Path, folder: Path) -> None:
    """Coverage, size and power with one, three and five repetitions."""
    rows = read(results, "repetitions")
    runs = sorted({row["repetitions"] for row in rows}, key=int)
    numbers = sorted({int(row["n"]) for row in rows})
    figure, panels = plt.subplots(2, len(runs), figsize=(12, 7.4), layout="constrained", squeeze=False, sharex=True)
    intervals = {"paired_t": ("paired t (default)", "#0072b2"), "bca": ("BCa, tasks resampled", "#e69f00"),
                 "two_level": ("two-level BCa", "#cc79a7")}  # fmt: skip
    styles = {"none": "-", "shift": "--", "some": ":"}
    rates = {"reject_sign_flip": ("sign-flip (default)", "#000000"), "reject_paired_t": ("paired t", "#0072b2"),
             "reject_cmh": ("within-task CMH", "#009e73"), "reject_q": ("within-task Q", "#d55e00")}  # fmt: skip
    for column, repetition in enumerate(runs):
        for effect, style in styles.items():
            mine = [row for row in rows if row["repetitions"] == repetition and row["effect"] == effect]
            _lines(panels[0][column], mine, intervals, style, 1.0, effect)
            _lines(panels[1][column], mine, rates, style, 100.0, effect)
        panels[0][column].axhline(0.95, color="black", linewidth=0.8, linestyle=":")
        panels[1][column].axhline(5, color="black", linewidth=0.8, linestyle=":")
        panels[0][column].set_ylim(0.8, 1.0)
        panels[1][column].set_ylim(0, 100)
        for axes in (panels[0][column], panels[1][column]):
            _tasks(axes, numbers)
        unit = "repetition" if repetition == "1" else "repetitions"
        _frame(panels[0][column], f"{repetition} {unit}", "tasks", "coverage of 95% intervals")
        _frame(panels[1][column], f"{repetition} {unit}", "tasks", "tests that reject at 5%, %")
    panels[0][0].legend(fontsize=7, loc="lower right")
    panels[1][0].legend(fontsize=7, loc="upper left")
    figure.suptitle("Repetitions: no effect (solid), shift on every task (dashed), three tasks in ten fixed (dotted)",
                    fontsize=11)  # fmt: skip
    _finish(figure, folder, "repetitions")


def _lines(
    axes: Axes, rows: list[Row], curves: dict[str, tuple[str, str]], style: str, scale: float, effect: str
) -> None:
    for key, (label, colour) in curves.items():
        points = [(int(row["n"]), scale * float(row[key])) for row in rows if row.get(key)]
        if points:
            axes.plot(*zip(*points, strict=True), linestyle=style, color=colour, marker="o", markersize=3,
                      label=label if effect == "none" else None)  # fmt: skip


def sequential(results: Path, folder: Path) -> None:
    """What looking after every discordant task does."""
    rows = read(results, "sequential")
    looks = [int(row["looks"]) for row in rows]
    figure, axes = plt.subplots(figsize=(7, 4.4), layout="constrained")
    for key, label, colour in (
        ("peeking_exact", "exact McNemar at every look (invalid)", "#d55e00"),
        ("e_value", "e-value at every look", "#000000"),
    ):
        axes.plot(looks, [100 * float(row[key]) for row in rows], color=colour, label=label, marker="o", markersize=3)
    axes.axhline(5, color="black", linewidth=0.8, linestyle=":")
    _frame(axes, "No effect: chance of ever rejecting at 5%", "discordant tasks seen", "type I error, %")
    axes.legend(fontsize=8, loc="upper left")
    _finish(figure, folder, "sequential")


def equivalence(results: Path, folder: Path) -> None:
    """Error at the margin and power at no difference of TOST."""
    rows = [row for row in read(results, "equivalence") if row["margin"] == "0.1"]
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for axes, key, title in (
        (panels[0], "error_at_margin", "true difference = margin: wrong claims"),
        (panels[1], "power_at_zero", "no difference: right claims"),
    ):
        for discordance in sorted({row["discordance"] for row in rows}, key=float):
            mine = [row for row in rows if row["discordance"] == discordance]
            axes.plot([int(row["n"]) for row in mine], [100 * float(row[key]) for row in mine], marker="o",
                      markersize=3.5, label=f"{float(discordance):.0%} discordant")  # fmt: skip
        _tasks(axes, sorted({int(row["n"]) for row in rows}))
        _frame(axes, title, "tasks", "claims of equivalence, %")
    panels[0].axhline(5, color="black", linewidth=0.8, linestyle=":")
    panels[1].legend(fontsize=8)
    figure.suptitle("Equivalence within 10 points by TOST at 5% (25 tasks needed at the least)", fontsize=11)
    _finish(figure, folder, "equivalence")


FIGURES: tuple[Callable[[Path, Path], None], ...] = (
    coverage, width, tests, power, repetitions, sequential, equivalence,
)  # fmt: skip


def draw(results: Path, folder: Path) -> None:
    """Draw every figure."""
    folder.mkdir(parents=True, exist_ok=True)
    for figure in FIGURES:
        figure(results, folder)
