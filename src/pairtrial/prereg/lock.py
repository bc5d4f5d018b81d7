"""The lock: a plan with every identity resolved to a digest. Its SHA-256 is the plan id."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from pairtrial.core.canonical import canonical_json, sha256_hex
from pairtrial.core.errors import PlanError
from pairtrial.core.model import Model, Sha256, describe
from pairtrial.prereg.amend import Amendment
from pairtrial.prereg.plan import Plan

LOCK_SUFFIX = ".lock.json"


class Lock(Model):
    """What was registered."""

    schema_: Annotated[Literal["pairtrial.lock.v1"], Field(alias="schema")]
    pairtrial: str
    """Version that froze the plan."""
    plan: Plan
    identities: dict[str, str]
    """Dotted name of everything that could move a result → its digest or exact value."""
    amendments: Annotated[tuple[Amendment, ...], Field(strict=False)] = ()
    """Changes after the first freezing, oldest first."""

    def to_bytes(self) -> bytes:
        """Canonical JSON, one line, ending in a newline.

        Only what was set is written: a field that a later version adds is not in the locks of earlier ones, and they
        keep their plan id. `whole` sets every field, so that nothing is registered by silence.
        """
        return canonical_json(self.model_dump(mode="json", by_alias=True, exclude_unset=True)) + b"\n"

    def whole(self) -> Lock:
        """The same lock with every default written out."""
        return Lock.model_validate(self.model_dump(mode="json", by_alias=True), strict=False)

    @property
    def plan_id(self) -> Sha256:
        """SHA-256 of the lock file's bytes."""
        return sha256_hex(self.to_bytes())


def lock_path(plan_path: Path) -> Path:
    """``prereg/x.yaml`` → ``prereg/x.lock.json``."""
    return plan_path.with_name(plan_path.name.removesuffix(".yaml") + LOCK_SUFFIX)


def parse_lock(data: bytes, name: str) -> Lock:
    """Read a lock from bytes and insist on its canonical form; ``name`` is used in messages."""
    try:
        lock = Lock.model_validate(json.loads(data), strict=False)
    except ValidationError as fault:
        raise PlanError("\n".join(f"{name}: {line}" for line in describe(fault)), slug="invalid-lock") from None
    except ValueError as fault:
        raise PlanError(f"{name}: not a lock: {fault}", slug="invalid-lock") from None
    if lock.to_bytes() != data:
        raise PlanError(
            f"{name}: the bytes are not what `freeze` writes: the file was edited",
            hint="freeze again",
            slug="edited-lock",
        )
    return lock


def load_lock(path: Path) -> Lock:
    """Read a lock file, or `PlanError` that says how to make one."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        plan = path.name.removesuffix(LOCK_SUFFIX) + ".yaml"
        raise PlanError(
            f"{path}: not frozen yet", hint=f"pairtrial freeze {path.with_name(plan)}", slug="not-frozen"
        ) from None
    except OSError as fault:
        raise PlanError(f"{path}: cannot be read ({fault.strerror})", slug="unreadable-file") from None
    return parse_lock(data, path.name)


def drift(locked: Mapping[str, str], today: Mapping[str, str]) -> list[str]:
    """One line for each identity that is not what the lock says, with both values."""
    lines = []
    for name in sorted(set(locked) | set(today)):
        before, after = locked.get(name), today.get(name)
        if before != after:
            lines.append(f"{name}: frozen as {_short(before)}, today {_short(after)}")
    return lines


def _short(value: str | None) -> str:
    if value is None:
        return "absent"
    return f"{value[:16]}…" if len(value) == 64 else repr(value)
