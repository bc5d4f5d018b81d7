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
    from pairtrial.stats.design import floor_discordant as floor_discordant
    from pairtrial.stats.intervals import MeanDifference as MeanDifference
    from pairtrial.stats.intervals import agresti_min as agresti_min
    from pairtrial.stats.intervals import bonett_price as bonett_price
    from pairtrial.stats.intervals import clopper_pearson as clopper_pearson
    from pairtrial.stats.intervals import newcombe as newcombe
    from pairtrial.stats.intervals import paired_t as paired_t
    from pairtrial.stats.intervals import tango as tango
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
    from pairtrial.stats.noise import flip_rate as flip_rate
    from pairtrial.stats.noise import odd_one_out as odd_one_out
    from pairtrial.stats.noise import odd_one_out_rows as odd_one_out_rows
    from pairtrial.stats.paired import mcnemar as mcnemar
    from pairtrial.stats.paired import sign_flip as sign_flip
    from pairtrial.stats.results import HypothesisTest as HypothesisTest
    from pairtrial.stats.results import Interval as Interval
    from pairtrial.stats.results import Result as Result
    from pairtrial.stats.results import at_most as at_most
    from pairtrial.stats.schedule import Balance as Balance
    from pairtrial.stats.schedule import balance as balance
    from pairtrial.stats.schedule import hash_key as hash_key
    from pairtrial.stats.schedule import hash_order as hash_order
    from pairtrial.stats.schedule import williams as williams

_HOME = {
    "_numbers": ("StatsError",),
    "bootstrap": ("BootstrapInterval", "Lattice", "bca", "bootstrap_distribution", "percentile"),
    "design": ("floor_discordant",),
    "intervals": (
        "MeanDifference",
        "agresti_min",
        "bonett_price",
        "clopper_pearson",
        "newcombe",
        "paired_t",
        "tango",
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
    "noise": ("flip_rate", "odd_one_out", "odd_one_out_rows"),
    "paired": ("mcnemar", "sign_flip"),
    "results": ("HypothesisTest", "Interval", "Result", "at_most"),
    "schedule": ("Balance", "balance", "hash_key", "hash_order", "williams"),
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
