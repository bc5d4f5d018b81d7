"""Small parts that every framework uses."""

from __future__ import annotations

import random
import secrets
from functools import cache
from importlib.resources import files


@cache
def program(name: str) -> str:
    """Text of a program under ``reporters``."""
    return files("pairtrial.grading.reporters").joinpath(name).read_text(encoding="utf-8")


def word() -> str:
    """A random name that is an identifier in every language."""
    return "n" + secrets.token_hex(6)


def two_numbers() -> dict[str, int]:
    """``left`` and ``right``: two numbers that differ, for an assertion that must fail."""
    left, right = random.SystemRandom().sample(range(2, 10_000), 2)
    return {"left": left, "right": right}
