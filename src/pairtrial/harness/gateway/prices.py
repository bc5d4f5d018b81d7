"""Tokens by class, and what they cost by the registered price table."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from pairtrial.core.errors import PlanError
from pairtrial.core.model import Model, load_yaml

MILLION = Decimal(1_000_000)
PerMillion = Annotated[Decimal, Field(ge=0, strict=False)]


@dataclass(frozen=True, slots=True)
class Tokens:
    """What one exchange used, class by class. The classes do not overlap; a figure that is not known is None."""

    input: int | None = None
    """Fresh input: neither read from nor written to a cache."""
    cache_read: int | None = None
    cache_write: int | None = None
    """Written to a cache that lives some minutes."""
    cache_write_1h: int | None = None
    """Written to a cache that lives an hour."""
    output: int | None = None

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            input=_plus(self.input, other.input),
            cache_read=_plus(self.cache_read, other.cache_read),
            cache_write=_plus(self.cache_write, other.cache_write),
            cache_write_1h=_plus(self.cache_write_1h, other.cache_write_1h),
            output=_plus(self.output, other.output),
        )

    @property
    def all_input(self) -> int | None:
        """Input of every class; None when none is known."""
        known = [n for n in (self.input, self.cache_read, self.cache_write, self.cache_write_1h) if n is not None]
        return sum(known) if known else None

    @property
    def complete(self) -> bool:
        """Whether input and output are both known: only then is there a cost."""
        return self.all_input is not None and self.output is not None


def _plus(one: int | None, other: int | None) -> int | None:
    if one is None:
        return other
    return one if other is None else one + other


class Price(Model):
    """US dollars for a million tokens of one model."""

    input: PerMillion
    output: PerMillion
    cache_read: PerMillion
    cache_write: PerMillion
    cache_write_1h: PerMillion | None = None
    """Absent: as ``cache_write``."""
    max_output_tokens: Annotated[int, Field(gt=0)]
    """What one answer can hold at most; bounds a request that names no limit of its own."""

    def cost(self, tokens: Tokens) -> Decimal:
        """Cost of what is known of ``tokens``."""
        hour = self.cache_write if self.cache_write_1h is None else self.cache_write_1h
        return (
            self.input * (tokens.input or 0)
            + self.cache_read * (tokens.cache_read or 0)
            + self.cache_write * (tokens.cache_write or 0)
            + hour * (tokens.cache_write_1h or 0)
            + self.output * (tokens.output or 0)
        ) / MILLION

    def neutral_cost(self, tokens: Tokens) -> Decimal:
        """Cost as if there were no cache: every input token at the price of a fresh one.

        The arm of a block that runs second can read what the first one wrote, and looks cheaper for no merit of its own.
        """
        return (self.input * (tokens.all_input or 0) + self.output * (tokens.output or 0)) / MILLION

    def ceiling(self, body_bytes: int, max_output: int | None) -> Decimal:
        """More than a request can cost: two bytes a token, all of it written to the dearest cache, a full answer."""
        dearest = max(self.input, self.cache_write, self.cache_write_1h or Decimal(0))
        answer = self.max_output_tokens if max_output is None else min(max_output, self.max_output_tokens)
        return (dearest * (body_bytes // 2 + 1) + self.output * answer) / MILLION


class PriceTable(Model):
    """Prices as registered; the file's digest stands in the lock."""

    schema_: Annotated[Literal["pairtrial.prices.v1"], Field(alias="schema")]
    as_of: str
    """Day on which they were looked up."""
    models: Annotated[dict[str, Price], Field(min_length=1)]


def load_prices(path: Path) -> PriceTable:
    """Read a price table; raises `PlanError` with every problem."""
    return load_yaml(path, PriceTable, PlanError)
