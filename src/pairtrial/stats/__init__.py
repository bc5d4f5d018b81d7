"""Exact statistics for paired experiments with few tasks.

Pure functions: sequences and counts in, frozen results out. Imports nothing of pairtrial; numpy and scipy are loaded
by the functions that need them, so importing this package is instant. Reference: ``docs/statistics.md``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pairtrial.stats._numbers import StatsError as StatsError
    from pairtrial.stats.bootstrap import BootstrapInterval as BootstrapInterval
    from pairtrial.stats.bootstrap import Lattice as Lattice
    from pairtrial.stats.bootstrap import bca as bca
    from pairtrial.stats.bootstrap import bootstrap_distribution as bootstrap_distribution
    from pairtrial.stats.bootstrap import percentile as percentile
    from pairtrial.stats.design import DetectableEffect as DetectableEffect
    from pairtrial.stats.design import Inflation as Inflation
    from pairtrial.stats.design import chance_to_reach_floor as chance_to_reach_floor
    from pairtrial.stats.design import connor_sample_size as connor_sample_size
    from pairtrial.stats.design import floor_discordant as floor_discordant
    from pairtrial.stats.design import max_losses as max_losses
    from pairtrial.stats.design import mde as mde
    from pairtrial.stats.design import mde_repetitions as mde_repetitions
    from pairtrial.stats.design import power as power
    from pairtrial.stats.design import sample_size as sample_size
    from pairtrial.stats.design import significance_inflation as significance_inflation
    from pairtrial.stats.design import tasks_for_repetitions as tasks_for_repetitions
    from pairtrial.stats.equivalence import Equivalence as Equivalence
    from pairtrial.stats.equivalence import Posterior as Posterior
    from pairtrial.stats.equivalence import equivalence_attainable as equivalence_attainable
    from pairtrial.stats.equivalence import min_tasks_for_margin as min_tasks_for_margin
    from pairtrial.stats.equivalence import posterior as posterior
    from pairtrial.stats.equivalence import s_value as s_value
    from pairtrial.stats.equivalence import tost as tost
    from pairtrial.stats.intervals import MeanDifference as MeanDifference
    from pairtrial.stats.intervals import agresti_min as agresti_min
    from pairtrial.stats.intervals import bonett_price as bonett_price
    from pairtrial.stats.intervals import clopper_pearson as clopper_pearson
    from pairtrial.stats.intervals import newcombe as newcombe
    from pairtrial.stats.intervals import paired_t as paired_t
    from pairtrial.stats.intervals import tango as tango
    from pairtrial.stats.missing import MissingBounds as MissingBounds
    from pairtrial.stats.missing import RepeatedBounds as RepeatedBounds
    from pairtrial.stats.missing import Table as Table
    from pairtrial.stats.missing import bounds as bounds
    from pairtrial.stats.missing import repeated_bounds as repeated_bounds
    from pairtrial.stats.multiplicity import benjamini_hochberg as benjamini_hochberg
    from pairtrial.stats.multiplicity import benjamini_yekutieli as benjamini_yekutieli
    from pairtrial.stats.multiplicity import bonferroni as bonferroni
    from pairtrial.stats.multiplicity import fixed_sequence as fixed_sequence
    from pairtrial.stats.multiplicity import hochberg as hochberg
    from pairtrial.stats.multiplicity import holm as holm
    from pairtrial.stats.multiplicity import holm_exact as holm_exact
    from pairtrial.stats.multiplicity import holm_rejects as holm_rejects
    from pairtrial.stats.multiplicity import hommel as hommel
    from pairtrial.stats.multiplicity import serial_gatekeeping as serial_gatekeeping
    from pairtrial.stats.noise import Agreement as Agreement
    from pairtrial.stats.noise import IntraclassCorrelation as IntraclassCorrelation
    from pairtrial.stats.noise import ReplicateNoise as ReplicateNoise
    from pairtrial.stats.noise import VarianceComponents as VarianceComponents
    from pairtrial.stats.noise import agreement as agreement
    from pairtrial.stats.noise import flip_rate as flip_rate
    from pairtrial.stats.noise import icc as icc
    from pairtrial.stats.noise import kappa as kappa
    from pairtrial.stats.noise import noise_floor as noise_floor
    from pairtrial.stats.noise import odd_one_out as odd_one_out
    from pairtrial.stats.noise import odd_one_out_rows as odd_one_out_rows
    from pairtrial.stats.noise import pass_at_k as pass_at_k
    from pairtrial.stats.noise import pass_hat_k as pass_hat_k
    from pairtrial.stats.noise import variance_components as variance_components
    from pairtrial.stats.noise import within_arm_flip_rate as within_arm_flip_rate
    from pairtrial.stats.paired import mcnemar as mcnemar
    from pairtrial.stats.paired import sign_flip as sign_flip
    from pairtrial.stats.permutation import WithinTaskTest as WithinTaskTest
    from pairtrial.stats.permutation import cmh as cmh
    from pairtrial.stats.permutation import q_test as q_test
    from pairtrial.stats.ranks import HodgesLehmann as HodgesLehmann
    from pairtrial.stats.ranks import hodges_lehmann as hodges_lehmann
    from pairtrial.stats.ranks import wilcoxon as wilcoxon
    from pairtrial.stats.resampling import bca_replicates as bca_replicates
    from pairtrial.stats.resampling import clustered as clustered
    from pairtrial.stats.resampling import clustered_t as clustered_t
    from pairtrial.stats.resampling import jackknife_acceleration as jackknife_acceleration
    from pairtrial.stats.resampling import resample_indices as resample_indices
    from pairtrial.stats.resampling import stratified as stratified
    from pairtrial.stats.resampling import two_level as two_level
    from pairtrial.stats.results import HypothesisTest as HypothesisTest
    from pairtrial.stats.results import Interval as Interval
    from pairtrial.stats.results import Result as Result
    from pairtrial.stats.results import at_most as at_most
    from pairtrial.stats.schedule import Balance as Balance
    from pairtrial.stats.schedule import balance as balance
    from pairtrial.stats.schedule import hash_key as hash_key
    from pairtrial.stats.schedule import hash_order as hash_order
    from pairtrial.stats.schedule import williams as williams
    from pairtrial.stats.secondary import CostComparison as CostComparison
    from pairtrial.stats.secondary import CostPerSolved as CostPerSolved
    from pairtrial.stats.secondary import LogRatio as LogRatio
    from pairtrial.stats.secondary import RestrictedMean as RestrictedMean
    from pairtrial.stats.secondary import compare_cost_per_solved as compare_cost_per_solved
    from pairtrial.stats.secondary import cost_per_solved as cost_per_solved
    from pairtrial.stats.secondary import log_ratio as log_ratio
    from pairtrial.stats.secondary import restricted_mean as restricted_mean
    from pairtrial.stats.sequential import EValue as EValue
    from pairtrial.stats.sequential import anytime_p as anytime_p
    from pairtrial.stats.sequential import confidence_sequence as confidence_sequence
    from pairtrial.stats.sequential import e_exact as e_exact
    from pairtrial.stats.sequential import e_value as e_value
    from pairtrial.stats.sequential import stopping_probability as stopping_probability

_HOME = {
    "_numbers": ("StatsError",),
    "bootstrap": (
        "BootstrapInterval",
        "Lattice",
        "bca",
        "bootstrap_distribution",
        "percentile",
    ),
    "design": (
        "DetectableEffect",
        "Inflation",
        "chance_to_reach_floor",
        "connor_sample_size",
        "floor_discordant",
        "max_losses",
        "mde",
        "mde_repetitions",
        "power",
        "sample_size",
        "significance_inflation",
        "tasks_for_repetitions",
    ),
    "equivalence": (
        "Equivalence",
        "Posterior",
        "equivalence_attainable",
        "min_tasks_for_margin",
        "posterior",
        "s_value",
        "tost",
    ),
    "intervals": (
        "MeanDifference",
        "agresti_min",
        "bonett_price",
        "clopper_pearson",
        "newcombe",
        "paired_t",
        "tango",
    ),
    "missing": (
        "MissingBounds",
        "RepeatedBounds",
        "Table",
        "bounds",
        "repeated_bounds",
    ),
    "multiplicity": (
        "benjamini_hochberg",
        "benjamini_yekutieli",
        "bonferroni",
        "fixed_sequence",
        "hochberg",
        "holm",
        "holm_exact",
        "holm_rejects",
        "hommel",
        "serial_gatekeeping",
    ),
    "noise": (
        "Agreement",
        "IntraclassCorrelation",
        "ReplicateNoise",
        "VarianceComponents",
        "agreement",
        "flip_rate",
        "icc",
        "kappa",
        "noise_floor",
        "odd_one_out",
        "odd_one_out_rows",
        "pass_at_k",
        "pass_hat_k",
        "variance_components",
        "within_arm_flip_rate",
    ),
    "paired": (
        "mcnemar",
        "sign_flip",
    ),
    "permutation": (
        "WithinTaskTest",
        "cmh",
        "q_test",
    ),
    "ranks": (
        "HodgesLehmann",
        "hodges_lehmann",
        "wilcoxon",
    ),
    "resampling": (
        "bca_replicates",
        "clustered",
        "clustered_t",
        "jackknife_acceleration",
        "resample_indices",
        "stratified",
        "two_level",
    ),
    "results": (
        "HypothesisTest",
        "Interval",
        "Result",
        "at_most",
    ),
    "schedule": (
        "Balance",
        "balance",
        "hash_key",
        "hash_order",
        "williams",
    ),
    "secondary": (
        "CostComparison",
        "CostPerSolved",
        "LogRatio",
        "RestrictedMean",
        "compare_cost_per_solved",
        "cost_per_solved",
        "log_ratio",
        "restricted_mean",
    ),
    "sequential": (
        "EValue",
        "anytime_p",
        "confidence_sequence",
        "e_exact",
        "e_value",
        "stopping_probability",
    ),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> object:
    """Load the module of a public name on first use."""
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
