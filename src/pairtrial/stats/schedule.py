"""Orders that anyone can recompute: SHA-256 sorting and Williams designs."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pairtrial.stats._numbers import StatsError, count
from pairtrial.stats.results import Result


def hash_key(item: str, seed: str | int, purpose: str) -> str:
    """Lowercase hex SHA-256 of ``seed LF purpose LF item`` in UTF-8, each NFC-normalised; a line feed is an error."""
    parts = [unicodedata.normalize("NFC", str(part)) for part in (seed, purpose, item)]
    if any("\n" in part for part in parts):
        raise StatsError("seed, purpose and item must not contain a line feed")
    return hashlib.sha256("\n".join(parts).encode("utf-8")).hexdigest()


def hash_order(items: Sequence[str], seed: str | int, purpose: str) -> tuple[str, ...]:
    """Return the items in an order that depends on seed and purpose only.

    Sorting by :func:`hash_key` gives the same order in every language and version (NumPy promises none for
    ``Generator.permutation``); another item does not reshuffle the rest, another purpose gives an unrelated order.
    """
    keys = {item: hash_key(item, seed, purpose) for item in items}
    if len(set(keys.values())) != len(items):
        raise StatsError("two items are equal (after NFC normalisation)")
    return tuple(sorted(items, key=keys.__getitem__))


def williams(k: int) -> tuple[tuple[int, ...], ...]:
    """Rows of a Williams design for k arms: k rows when k is even, 2k when odd.

    Every arm stands in every position equally often and follows every other arm equally often. Zig-zag
    construction of Williams 1949, Australian Journal of Scientific Research A 2:149-168.
    """
    arms = count(k, "k")
    if arms == 0:
        raise StatsError("a design needs at least one arm")
    zigzag = [0]
    low, high = 1, arms - 1
    while low <= high:
        zigzag.append(low)
        if low < high:
            zigzag.append(high)
        low, high = low + 1, high - 1
    rows = [tuple((arm + shift) % arms for arm in zigzag) for shift in range(arms)]
    if arms % 2 and arms > 1:
        rows += [row[::-1] for row in rows]
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class Balance(Result):
    """How far a list of arm orders is from balance.

    ``positions[arm][position]`` and ``successions[first][second]`` are counts; the two imbalances are largest minus
    smallest count (off the diagonal for successions), 0 when balanced.
    """

    positions: tuple[tuple[int, ...], ...]
    successions: tuple[tuple[int, ...], ...]
    position_imbalance: int
    succession_imbalance: int


def balance(orders: Sequence[Sequence[int]]) -> Balance:
    """Count positions and successions of arms over blocks; each order lists the arms 0..k-1 once."""
    if not orders:
        raise StatsError("there is no block")
    k = len(orders[0])
    positions = [[0] * k for _ in range(k)]
    successions = [[0] * k for _ in range(k)]
    for order in orders:
        if sorted(order) != list(range(k)):
            raise StatsError(f"{tuple(order)} is not an order of the arms 0..{k - 1}")
        for place, arm in enumerate(order):
            positions[arm][place] += 1
        for first, second in pairwise(order):
            successions[first][second] += 1
    flat = [c for row in positions for c in row]
    off = [c for i, row in enumerate(successions) for j, c in enumerate(row) if i != j] or [0]
    return Balance(
        tuple(map(tuple, positions)), tuple(map(tuple, successions)), max(flat) - min(flat), max(off) - min(off)
    )
