"""The tables in docs/agents.md say what the manifests and adapters say."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from pairtrial.harness.agents import base, load_adapter

HERE = Path(base.__file__).parent
TEXT = (Path(__file__).parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")
NAMES = sorted(base.load_manifest(str(path.with_suffix(".py"))).id for path in HERE.glob("*.yaml"))


def row(name: str) -> str:
    """The row of an adapter as its manifest has it."""
    adapter = load_adapter(name)
    manifest = adapter.manifest
    refused = []
    if not manifest.mcp:
        refused.append("MCP arms")
    elif not manifest.hosted_mcp:
        refused.append("hosted MCP servers")
    if not manifest.context_files and "context" not in adapter.covers:
        refused.append("context-file arms")
    if not adapter.multi_turn:
        refused.append("tasks of several turns")
    cells = [
        f"`{name}`",
        ", ".join(manifest.versions) or "any",
        manifest.evidence,
        ", ".join(f"`{item}`" for item in manifest.context_files) or "–",
        ", ".join(f"`{item}`" for item in manifest.may_differ) or "–",
        ", ".join(refused) or "–",
    ]
    return f"| {' | '.join(cells)} |"


@pytest.mark.parametrize("name", NAMES)
def test_row_of_the_table(name: str) -> None:
    assert row(name) in TEXT.splitlines()


@pytest.mark.parametrize("name", NAMES)
def test_known_leaks(name: str) -> None:
    manifest = load_adapter(name).manifest
    if manifest.leaks:
        assert f"- `{name}`: {'; '.join(manifest.leaks)}." in TEXT.splitlines()


@pytest.mark.parametrize("name", [name for name in NAMES if load_adapter(name).manifest.programs])
def test_environment_and_flags(name: str) -> None:
    module = importlib.import_module(f"pairtrial.harness.agents.{name.replace('-', '_')}")
    (line,) = [line for line in TEXT.splitlines() if line.startswith(f"- `{name}` is started with ")]
    for variable in getattr(module, "ENVIRONMENT", {}):
        assert f"`{variable}`" in line
    files = [HERE / f"{name.replace('-', '_')}.py", HERE / f"{name.partition('-')[0]}_driver.py"]
    source = "".join(path.read_text(encoding="utf-8") for path in files if path.is_file())
    for flag in sorted(set(re.findall(r'"(--[a-z-]+)"', source)) - {"--cli"}):
        assert f"`{flag}`" in line
