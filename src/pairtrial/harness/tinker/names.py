"""Names that are mistaken for one another."""

from __future__ import annotations

from functools import cache

_GROUPS = """
min max
any all
start stop end
first last
left right
lower upper
floor ceil round
int float
str bytes
str repr
list tuple
dict set
True False
width height
row column
key value
prefix suffix
head tail
before after
begin end
old new
source target
src dst
low high
lo hi
sum len
enumerate reversed
isinstance issubclass
getattr hasattr
map filter
"""
_ATTRIBUTE_GROUPS = """
min max
start stop end
first last
left right
lower upper casefold
startswith endswith
strip lstrip rstrip
split rsplit
partition rpartition
find rfind index
ljust rjust center
append extend
append appendleft
pop popleft
add discard
add update
keys values items
get pop
get setdefault
floor ceil
isdigit isalpha isalnum
isupper islower
title capitalize
match search fullmatch
group groups
days seconds microseconds
year month day
hour minute second
height width
union intersection difference
insert append
key value
prefix suffix
old new
parent child
next prev
"""
KEPT = 4
"""So many similar names are tried for one name: names are the most numerous edits and the least often right."""


def _pairs(groups: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for line in groups.strip().splitlines():
        words = line.split()
        for word in words:
            others = found.setdefault(word, [])
            others.extend(other for other in words if other != word and other not in others)
    return {word: tuple(others) for word, others in found.items()}


NAME_PAIRS = _pairs(_GROUPS)
ATTRIBUTES = _pairs(_ATTRIBUTE_GROUPS)


def _bigrams(name: str) -> frozenset[str]:
    padded = f"^{name}$"
    return frozenset(padded[i : i + 2] for i in range(len(padded) - 1))


@cache
def similar(name: str, others: tuple[str, ...]) -> tuple[str, ...]:
    """The few of ``others`` that look most like ``name``, by shared pairs of letters; ties in alphabetical order."""
    mine = _bigrams(name)

    def likeness(other: str) -> float:
        theirs = _bigrams(other)
        return 2 * len(mine & theirs) / (len(mine) + len(theirs))

    ranked = sorted((-likeness(other), other) for other in set(others) - {name})
    return tuple(other for _, other in ranked[:KEPT])
