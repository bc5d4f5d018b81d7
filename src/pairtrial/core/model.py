"""The pydantic base and the constrained types that every record is made of."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationError

from pairtrial.core.errors import PairtrialError, PlanError

MAX_DOCUMENT_BYTES = 4 << 20
"""A YAML or JSON document larger than this is refused before it is parsed."""


class Model(BaseModel):
    """Base of every record: unknown keys are errors, values are frozen and never coerced."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        use_attribute_docstrings=True,
        validate_by_name=True,  # ``schema_`` in code, ``schema`` in files
        validate_by_alias=True,
    )


def _relative(value: str) -> str:
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or "\\" in value or "\0" in value or value in {"", "."}:
        raise ValueError("must be a relative POSIX path without '..'")
    return value


def _utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("must carry a time zone")
    return value.astimezone(UTC)


Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""Lowercase hexadecimal SHA-256."""
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
"""Lowercase letters, digits and hyphens: names of arms, tasks, providers, packs and plans."""
RelPath = Annotated[str, AfterValidator(_relative)]
"""POSIX path that stays below the folder that it is relative to."""
UtcTime = Annotated[datetime, AfterValidator(_utc)]
"""Aware time, stored in UTC."""

M = TypeVar("M", bound=BaseModel)


class _Loader(yaml.SafeLoader):
    """YAML that refuses duplicate keys and aliases (an alias can grow a small file without bound)."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.YAMLError(f"line {event.start_mark.line + 1}: aliases are not accepted")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.YAMLError(f"line {key_node.start_mark.line + 1}: key {key!r} stands twice")
            seen.add(key)
        return super().construct_mapping(node, deep)


def describe(error: ValidationError) -> list[str]:
    """One line a problem: where it stands and what is wrong with it."""
    lines = []
    for item in error.errors(include_url=False, include_context=False):
        where = ".".join(str(part) for part in item["loc"]) or "(document)"
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            message = "unknown key; remove it or correct its spelling"
        lines.append(f"{where}: {message}")
    return lines


def read_yaml(path: Path, error: type[PairtrialError] = PlanError) -> Any:
    """The value of a YAML file, or ``error`` with the file's name and what is wrong with it."""
    try:
        if path.stat().st_size > MAX_DOCUMENT_BYTES:
            raise error(f"{path}: larger than {MAX_DOCUMENT_BYTES >> 20} MiB", slug="document-too-large")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise error(f"{path}: no such file", hint="check the path", slug="missing-file") from None
    except UnicodeDecodeError as fault:
        raise error(f"{path}: not UTF-8 (byte {fault.start})", slug="not-utf8") from None
    except OSError as fault:
        raise error(f"{path}: cannot be read ({fault.strerror})", slug="unreadable-file") from None
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a subclass of SafeLoader
    except (yaml.YAMLError, RecursionError, ValueError) as fault:
        detail = re.sub(r"\s+", " ", str(fault))
        raise error(f"{path}: not valid YAML: {detail}", slug="not-yaml") from None


def load_yaml(path: Path, model: type[M], error: type[PairtrialError] = PlanError) -> M:
    """Read ``path`` as ``model``; all problems come at once, one on a line, each with its field."""
    value = read_yaml(path, error)
    try:
        return model.model_validate(value, strict=False)
    except ValidationError as fault:
        lines = "\n".join(f"{path}: {line}" for line in describe(fault))
        raise error(lines, slug="invalid-document") from None
