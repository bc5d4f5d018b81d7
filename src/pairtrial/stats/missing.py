"""What missing runs could do: every imputation at once, bounds, and the tipping point.

A run that failed by the agent's own fault is a failure, not missing; a task whose environment was invalid is dropped
from every arm. What is left are runs whose outcome nobody knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pairtrial.stats._numbers import StatsError
from pairtrial.stats.paired import mcnemar, sign_flip
from pairtrial.stats.results import HypothesisTest, Result, at_most

Outcome = int | bool | None
Row = Sequence[Outcome]


@dataclass(frozen=True, slots=True)
class Table(Result):
    """Wins, losses, difference and exact McNemar p of one way to fill in the missing runs."""

    wins: int
    losses: int
    n: int
    delta: float | None
    delta_exact: Fraction | None
    p: float
    p_exact: Fraction | None


@dataclass(frozen=True, slots=True)
class MissingBounds(Result):
    """Range of results over every way to fill in the missing runs.

    ``worst`` fills missing treatment runs with failure and missing control runs with success; ``best`` the other way
    round. ``tipping_point`` is the smallest number of missing runs that must change from failure to success, starting
    from intention to treat, to change the verdict (significant in favour, significant against, or neither); None when
    none can.
    """

    n: int
    n_complete: int
    missing: int
    complete: Table
    intention_to_treat: Table
    worst: Table
    best: Table
    delta_low: float | None
    delta_high: float | None
    p_low: float
    p_high: float
    any_significant: bool
    all_significant: bool
    imputations: int
    tipping_point: int | None
    alpha: float


def bounds(rows: Iterable[Row], alpha: float = 0.05) -> MissingBounds:
    """Bounds for one run per task and arm.

    Parameters
    ----------
    rows
        (control, treatment) per task: 1 or True solved, 0 or False not, None missing.
    alpha
        Level of the verdict; divide by the number of comparisons for Holm's first step.
    """
    cells = Counter(_row(row) for row in rows)
    n = sum(cells.values())
    complete = Counter({cell: times for cell, times in cells.items() if None not in cell})
    n_complete = sum(complete.values())
    missing = sum(times * cell.count(None) for cell, times in cells.items())
    itt = _table(_filled(cells, 0, 0), n)
    flips = dict(_imputations(cells))  # (wins, losses) -> missing runs filled with success, at least
    tables = {pair: _counts(*pair, n) for pair in flips}
    verdict = _verdict(itt, alpha)
    tips = [flips[pair] for pair, table in tables.items() if _verdict(table, alpha) != verdict]
    significant = [_significant(table, alpha) for table in tables.values()]
    worst, best = _table(_filled(cells, 1, 0), n), _table(_filled(cells, 0, 1), n)
    return MissingBounds(
        n,
        n_complete,
        missing,
        _table(complete, n_complete),
        itt,
        worst,
        best,
        worst.delta,
        best.delta,
        min(table.p for table in tables.values()),
        max(table.p for table in tables.values()),
        any(significant),
        all(significant),
        2**missing,
        min(tips, default=None),
        alpha,
    )


def _row(row: Row) -> tuple[Outcome, Outcome]:
    if len(row) != 2 or any(value not in (None, 0, 1) for value in row):
        raise StatsError(f"a row is (control, treatment), each 0, 1 or None, not {tuple(row)!r}")
    control, treatment = (None if value is None else int(value) for value in row)
    return control, treatment


def _filled(cells: Counter[tuple[Outcome, Outcome]], control: int, treatment: int) -> Counter[tuple[Outcome, Outcome]]:
    out: Counter[tuple[Outcome, Outcome]] = Counter()
    for (c, t), times in cells.items():
        out[control if c is None else c, treatment if t is None else t] += times
    return out


def _table(cells: Counter[tuple[Outcome, Outcome]], n: int) -> Table:
    return _counts(cells[0, 1], cells[1, 0], n)


def _counts(wins: int, losses: int, n: int) -> Table:
    test = mcnemar(wins, losses)
    delta = Fraction(wins - losses, n) if n else None
    p = 1.0 if test.p is None else test.p
    return Table(wins, losses, n, None if delta is None else float(delta), delta, p, test.p_exact)


def _significant(table: Table, alpha: float) -> bool:
    return at_most(table.p_exact if table.p_exact is not None else table.p, alpha)


def _verdict(table: Table, alpha: float) -> int:
    if not _significant(table, alpha):
        return 0
    return 1 if table.wins > table.losses else -1


def _imputations(cells: Counter[tuple[Outcome, Outcome]]) -> Iterator[tuple[tuple[int, int], int]]:
    """Reachable (wins, losses), each with the fewest missing runs that must be filled with success.

    Filling with failure gives the intention-to-treat table. From there every success adds or removes one win or one
    loss; a task missing in both arms can become a win or a loss, but only one of them.
    """
    fewer_wins, more_wins = cells[None, 1], cells[0, None]
    fewer_losses, more_losses = cells[1, None], cells[None, 0]
    wins, losses, both = cells[0, 1] + fewer_wins, cells[1, 0] + fewer_losses, cells[None, None]
    for a in range(-fewer_wins, more_wins + both + 1):
        for b in range(-fewer_losses, more_losses + both + 1):
            if max(0, a - more_wins) + max(0, b - more_losses) <= both:
                yield (wins + a, losses + b), abs(a) + abs(b)


@dataclass(frozen=True, slots=True)
class RepeatedBounds(Result):
    """Worst and best case over missing repetitions, with sign-flip tests; fractions of runs solved."""

    missing_control: int
    missing_treatment: int
    delta_low: float | None
    delta_high: float | None
    p_worst: HypothesisTest
    p_best: HypothesisTest
    reason: str | None = None


def repeated_bounds(treatment: Sequence[Sequence[Outcome]], control: Sequence[Sequence[Outcome]]) -> RepeatedBounds:
    """Bounds with several runs per task and arm: each missing run as 0 and as 1, in the worst and the best way.

    Parameters
    ----------
    treatment, control
        Per task a sequence of 0, 1 or None, equally long everywhere.
    """
    if len(control) != len(treatment):
        raise StatsError(f"{len(control)} control and {len(treatment)} treatment tasks: the arms must be paired")
    lengths = {len(runs) for runs in (*control, *treatment)}
    if len(lengths) > 1:
        raise StatsError("every task needs the same number of runs in both arms; mark missing ones with None")
    runs = lengths.pop() if lengths else 0
    if not runs:
        nothing = sign_flip([])
        return RepeatedBounds(0, 0, None, None, nothing, nothing, "no run")
    worst = [_solved(t, 0) - _solved(c, 1) for c, t in zip(control, treatment, strict=True)]
    best = [_solved(t, 1) - _solved(c, 0) for c, t in zip(control, treatment, strict=True)]
    total = runs * len(control)
    return RepeatedBounds(
        sum(row.count(None) for row in map(list, control)),
        sum(row.count(None) for row in map(list, treatment)),
        sum(worst) / total,
        sum(best) / total,
        sign_flip(worst),
        sign_flip(best),
    )


def _solved(runs: Sequence[Outcome], missing: int) -> int:
    return sum(missing if run is None else int(run) for run in runs)
