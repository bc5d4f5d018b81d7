"""Providers are found at run time, by folder or entry point; nothing here names one."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

from pydantic import ValidationError

from pairtrial.core.canonical import tree_digest
from pairtrial.core.errors import ProviderError
from pairtrial.core.model import describe, load_yaml
from pairtrial.providers.contract import AgentConfig, Provider

ENTRY_POINTS = "pairtrial.providers"
ENTRY_PREFIX = "entry-point:"
IGNORED = ("__pycache__", ".pytest_cache", ".git")
MAX_CONTEXT_BYTES = 1 << 20


def load_provider(reference: str, base: Path) -> Provider:
    """Load the provider that a plan refers to.

    Parameters
    ----------
    reference
        A folder relative to ``base`` that holds ``provider.yaml`` or ``provider.py``, or ``entry-point:NAME``.
    base
        The plan's folder.

    Raises
    ------
    ProviderError
        Nothing there, both files there, a document with unknown keys, or a module that fails.
    """
    name = reference.removeprefix(ENTRY_PREFIX)
    folder = base / reference if name == reference else _entry_point_folder(name)
    if not folder.is_dir():
        raise ProviderError(f"{folder}: no such provider folder", hint="correct `provider` in the plan", slug="missing")
    folder = folder.resolve()
    document, module = folder / "provider.yaml", folder / "provider.py"
    if document.exists() and module.exists():
        raise ProviderError(f"{folder}: both provider.yaml and provider.py exist", hint="keep one", slug="ambiguous")
    if document.exists():
        config = load_yaml(document, AgentConfig, ProviderError)
    elif module.exists():
        config = _from_module(module)
    else:
        raise ProviderError(f"{folder}: neither provider.yaml nor provider.py", slug="missing")
    return Provider(
        config=config,
        folder=str(folder),
        tree=tree_digest(folder, exclude=IGNORED),
        context=_read_context(folder, config),
    )


def _read_context(folder: Path, config: AgentConfig) -> dict[str, bytes]:
    context = {}
    for target, source in config.context_files.items():
        path = folder / source
        if not path.is_file() or not path.resolve().is_relative_to(folder):
            raise ProviderError(f"{folder}: context_files.{target}: no file {source} in the folder", slug="missing")
        if path.stat().st_size > MAX_CONTEXT_BYTES:
            raise ProviderError(f"{path}: context file larger than {MAX_CONTEXT_BYTES >> 20} MiB", slug="too-large")
        context[target] = path.read_bytes()
    return context


def _from_module(path: Path) -> AgentConfig:
    """Run ``provider.py`` and take what its ``agent_config()`` returns (an `AgentConfig` or a mapping for one)."""
    spec = importlib.util.spec_from_file_location(f"pairtrial_provider_{path.parent.name}", path)
    if spec is None or spec.loader is None:
        raise ProviderError(f"{path}: cannot be imported", slug="provider-import")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        result = module.agent_config()
    except Exception as fault:  # foreign code may raise anything; the user gets its name and line
        raise ProviderError(
            f"{path}: fails when it is loaded: {type(fault).__name__}: {fault}",
            hint="the file must define agent_config() and import cleanly",
            slug="provider-import",
        ) from fault
    if isinstance(result, AgentConfig):
        return result
    try:
        return AgentConfig.model_validate(result, strict=False)
    except ValidationError as fault:
        lines = "\n".join(f"{path}: {line}" for line in describe(fault))
        raise ProviderError(lines, slug="invalid-document") from None


def _entry_point_folder(name: str) -> Path:
    """The folder that an installed distribution registers under ``pairtrial.providers``."""
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        if point.name == name:
            try:
                value = point.load()
            except Exception as fault:  # foreign code, as above
                raise ProviderError(
                    f"entry point {name}: {type(fault).__name__}: {fault}", slug="provider-import"
                ) from fault
            return Path(value() if callable(value) else value)
    raise ProviderError(f"no entry point {name!r} in group {ENTRY_POINTS}", slug="missing")
