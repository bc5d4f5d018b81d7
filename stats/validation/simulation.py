"""Coverage, size and power where listing every outcome is impossible: repetitions, clusters, families, ratios.

Random numbers come from PCG64 with the seed given, so a figure can be made again with the same numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from pairtrial import stats

Floats = NDArray[np.float64]
Row = dict[str, float | str]

LIFT = 0.15
"""True mean difference of the two effect shapes."""


def difficulties(rng: np.random.Generator, n: int) -> Floats:
    """Success rates of the control over tasks: many near 0 and 1, some between, as repeated runs show."""
    return rng.beta(0.6, 0.6, n)


def none(rng: np.random.Generator, control: Floats) -> Floats:
    """No effect."""
    return control


def shift(rng: np.random.Generator, control: Floats) -> Floats:
    """Every task gains the same share of its room, so that the mean gain is LIFT (E[1 - p] is 1/2)."""
    return control + 2 * LIFT * (1 - control)


def some(rng: np.random.Generator, control: Floats) -> Floats:
    """Three tasks in ten become certain; the others are untouched (mean gain 0.3 E[1 - p] = LIFT)."""
    return np.where(rng.random(len(control)) < 2 * LIFT, 1.0, control)


EFFECTS: dict[str, tuple[Callable[[np.random.Generator, Floats], Floats], float]] = {
    "none": (none, 0.0),
    "shift": (shift, LIFT),
    "some": (some, LIFT),
}


def _hits(low: float | None, high: float | None, truth: float, estimate: float | None) -> bool:
    """Whether an interval covers; without one (all deltas equal) the estimate must be the truth."""
    if low is None or high is None:
        return estimate is not None and abs(estimate - truth) < 1e-12
    return low - 1e-12 <= truth <= high + 1e-12


def repetitions(n: int, runs: int, effect: str, times: int, seed: int, *, within: bool = True) -> Row:
    """One setting with repetitions: coverage of three intervals, rejection rates of four tests.

    ``within`` adds the two within-task tests, which are slow with hundreds of tasks.
    """
    rng = np.random.Generator(np.random.PCG64([seed, n, runs, list(EFFECTS).index(effect)]))
    apply, truth = EFFECTS[effect]
    counts = dict.fromkeys(
        ("paired_t", "bca", "two_level", "reject_sign_flip", "reject_paired_t", "reject_cmh", "reject_q"), 0
    )
    for _ in range(times):
        p_control = difficulties(rng, n)
        p_treatment = apply(rng, p_control)
        control = rng.binomial(runs, p_control).tolist()
        treatment = rng.binomial(runs, p_treatment).tolist()
        sums = [t - c for c, t in zip(control, treatment, strict=True)]
        mean = stats.paired_t([d / runs for d in sums])
        one, two = stats.bca(sums), stats.two_level(treatment, control, runs)
        low, high = (None if end is None else end / runs for end in (one.low, one.high))
        counts["paired_t"] += _hits(mean.low, mean.high, truth, mean.estimate)
        counts["bca"] += _hits(low, high, truth, mean.estimate)
        counts["two_level"] += _hits(two.low, two.high, truth, two.estimate)
        counts["reject_sign_flip"] += stats.sign_flip(sums).rejects(0.05)
        counts["reject_paired_t"] += mean.p is not None and mean.p <= 0.05
        if within:
            counts["reject_cmh"] += stats.cmh(treatment, control, runs).rejects(0.05)
            counts["reject_q"] += stats.q_test(treatment, control, runs).rejects(0.05)
    row: Row = {"n": n, "repetitions": runs, "effect": effect, "delta": truth, "times": times}
    row.update({name: hits / times for name, hits in counts.items()})
    if not within:
        del row["reject_cmh"], row["reject_q"]
    return row


def holm_family(n: int, treatments: int, times: int, seed: int) -> Row:
    """Family-wise error of Holm on exact McNemar when ``treatments`` arms share one control and none has an effect."""
    rng = np.random.Generator(np.random.PCG64([seed, n, treatments]))
    errors = raw = 0
    for _ in range(times):
        p = difficulties(rng, n)
        control = rng.random(n) < p
        tests = []
        for _ in range(treatments):
            arm = rng.random(n) < p
            tests.append(stats.mcnemar(int((arm & ~control).sum()), int((control & ~arm).sum())))
        errors += any(stats.holm_rejects(tests))
        raw += any(test.rejects(0.05) for test in tests)
    return {"n": n, "treatments": treatments, "times": times, "holm": errors / times, "uncorrected": raw / times}


def clusters(groups: int, times: int, seed: int, size: int = 6) -> Row:
    """Coverage when tasks of one repository share an effect: clustered t, cluster bootstrap, and plain paired t."""
    rng = np.random.Generator(np.random.PCG64([seed, groups, size]))
    counts = dict.fromkeys(("clustered_t", "clustered_bca", "paired_t"), 0)
    for _ in range(times):
        sizes = rng.integers(2, 2 * size - 1, groups)
        split = []
        for tasks in sizes:
            lean = rng.uniform(-0.3, 0.3)  # symmetric, so the true difference is 0
            win, loss = 0.3 + lean, 0.3 - lean
            draw = rng.random(tasks)
            split.append([int(x < win) - int(win <= x < win + loss) for x in draw.tolist()])
        flat = [d for group in split for d in group]
        labels = [i for i, group in enumerate(split) for _ in group]
        intervals: Sequence[stats.MeanDifference | stats.BootstrapInterval] = (
            stats.clustered_t(flat, labels),
            stats.clustered(split),
            stats.paired_t(flat),
        )
        for name, interval in zip(counts, intervals, strict=True):
            counts[name] += _hits(interval.low, interval.high, 0.0, interval.estimate)
    row: Row = {"clusters": groups, "tasks_per_cluster": size, "times": times}
    row.update({name: hits / times for name, hits in counts.items()})
    return row


def ratios(n: int, times: int, seed: int) -> Row:
    """Coverage for skewed token counts with a true ratio of 0.9: t on logs, Hodges-Lehmann, Wilcoxon's size."""
    rng = np.random.Generator(np.random.PCG64([seed, n]))
    counts = dict.fromkeys(("log_ratio_t", "hodges_lehmann", "wilcoxon_size", "cost_per_solved"), 0)
    for _ in range(times):
        base = rng.normal(10.5, 0.8, n)
        control = np.exp(base + rng.standard_t(4, n) * 0.25)
        treatment = 0.9 * np.exp(base + rng.standard_t(4, n) * 0.25)
        got = stats.log_ratio(treatment.tolist(), control.tolist())
        counts["log_ratio_t"] += _hits(got.low, got.high, 0.9, got.ratio)
        logs = (np.log(treatment) - np.log(control)).tolist()
        middle = stats.hodges_lehmann(logs)
        counts["hodges_lehmann"] += _hits(middle.low, middle.high, float(np.log(0.9)), middle.estimate)
        counts["wilcoxon_size"] += stats.wilcoxon([x - float(np.log(0.9)) for x in logs]).rejects(0.05)
        p = difficulties(rng, n)
        solved_c, solved_t = (rng.random(n) < p).tolist(), (rng.random(n) < p).tolist()
        cost = stats.compare_cost_per_solved(treatment.tolist(), solved_t, control.tolist(), solved_c)
        counts["cost_per_solved"] += _hits(cost.low, cost.high, 0.9, cost.ratio)
    row: Row = {"n": n, "true_ratio": 0.9, "times": times}
    row.update({name: hits / times for name, hits in counts.items()})
    return row
