"""A pytest plugin that shuffles the tests by a seed: files, then classes in a file, then tests in a class.

Tests of one file and of one class stay together, so that their shared fixtures are made once, as in file order.
"""

from __future__ import annotations

import os
import random
from typing import Any


def pytest_collection_modifyitems(items: list[Any]) -> None:
    chance = random.Random(os.environ["PAIRTRIAL_SHUFFLE"])  # noqa: S311 - an order, not a secret
    files: dict[str, dict[str, list[Any]]] = {}
    for item in items:
        file, _, rest = item.nodeid.partition("::")
        holder = rest.rpartition("::")[0].partition("[")[0]
        files.setdefault(file, {}).setdefault(holder, []).append(item)
    shuffled: list[Any] = []
    for file in _mixed(list(files), chance):
        for holder in _mixed(list(files[file]), chance):
            shuffled += _mixed(files[file][holder], chance)
    items[:] = shuffled


def _mixed(values: list[Any], chance: random.Random) -> list[Any]:
    return chance.sample(values, len(values))
