"""A picture of what a plan can show."""

from __future__ import annotations

from pathlib import Path

from pairtrial.prereg.power import PowerTable

INK, MARK = "#1f2933", "#2f6db3"


def draw_power(table: PowerTable, path: Path, *, title: str) -> None:
    """Minimal detectable effect and chance to reach the floor by discordance; SVG or PNG by the name of ``path``."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    shares = [100 * row.discordance for row in table.discordance]
    reachable = [(100 * row.discordance, 100 * row.mde) for row in table.discordance if row.mde is not None]
    left.plot(*(zip(*reachable, strict=True) if reachable else ((), ())), "o-", color=MARK)
    never = [100 * row.discordance for row in table.discordance if row.mde is None]
    left.plot(never, [0] * len(never), "x", color=INK, label="not reachable")
    left.set(
        xlabel="discordant tasks, %",
        ylabel="percentage points",
        title=f"smallest effect found with {100 * table.target:.0f} % power",
        ylim=(-2, None),
        xlim=(0, max(shares) + 3),
    )
    if never:
        left.legend(frameon=False, loc="lower right")
    right.plot(shares, [100 * row.floor_chance for row in table.discordance], "o-", color=MARK)
    right.set(
        xlabel="discordant tasks, %",
        ylabel="% of runs",
        title=f"chance of {table.floor} or more discordant tasks",
        ylim=(-3, 103),
        xlim=(0, max(shares) + 3),
    )
    for axes in (left, right):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_fontsize(10)
    figure.suptitle(title, fontsize=11, color=INK)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
