"""Amendments: changing a frozen plan in the open."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from pairtrial.core.errors import PlanError
from pairtrial.core.model import Model, Sha256

Bias = Literal["favours-treatment", "favours-control", "none-expected", "unknown"]
"""Where a change could push the result, in the words of the person who made it."""


class Amendment(Model):
    """One change after freezing. The lock that holds it names the lock that it replaced."""

    parent: Sha256
    """Plan id before the change; receipts keep the id that they were run under."""
    date: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    reason: Annotated[str, StringConstraints(min_length=10, max_length=1000, strip_whitespace=True)]
    bias: Bias
    changes: Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
    """One line a difference, as `diff` prints it."""


def flat(value: Any, prefix: str = "") -> dict[str, str]:
    """A JSON value as dotted names and canonical text."""
    if isinstance(value, dict) and value:
        return {name: text for key in value for name, text in flat(value[key], f"{prefix}{key}.").items()}
    return {prefix.removesuffix("."): json.dumps(value, sort_keys=True, ensure_ascii=False)}


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """One line for every field in which two locks differ, with both values."""
    old, new = flat(before), flat(after)
    lines = []
    for name in sorted(set(old) | set(new)):
        if name.startswith("amendments") or old.get(name) == new.get(name):
            continue
        lines.append(f"{name}: {_short(old.get(name))} → {_short(new.get(name))}")
    return lines


def _short(text: str | None) -> str:
    if text is None:
        return "absent"
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"


def amendment(parent: str, changes: list[str], *, reason: str, bias: Bias, today: date) -> Amendment:
    """The record of a change; refuses one that changes nothing."""
    if not changes:
        raise PlanError("the plan gives the same lock as before: there is nothing to amend", slug="nothing-changed")
    return Amendment(parent=parent, date=today.isoformat(), reason=reason, bias=bias, changes=tuple(changes))


def archive_path(lock: Path, plan_id: str) -> Path:
    """Where the lock that is replaced goes: ``prereg/amended/NAME.PLANID12.lock.json``."""
    name = lock.name.removesuffix(".lock.json")
    return lock.parent / "amended" / f"{name}.{plan_id[:12]}.lock.json"
