"""What a lock says of the code that drives an agent."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pairtrial.harness.agents
from pairtrial.harness.agents import programs

HARNESS = Path(pairtrial.harness.agents.__file__).parent


def imported(name: str) -> set[str]:
    """Files of the adapters' folder that one of them imports, and theirs; finding a program moves no result."""
    found: set[str] = set()
    pending = [name]
    while pending:
        file = pending.pop()
        if file in found:
            continue
        found.add(file)
        for node in ast.walk(ast.parse((HARNESS / file).read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pairtrial.harness.agents."):
                pending.append((node.module or "").rpartition(".")[2] + ".py")
    return found - {"programs.py"}


@pytest.mark.parametrize("name", ["acp", "claude_code", "codex", "gemini", "mini_swe_agent", "opencode"])
def test_all_that_drives_an_agent_is_in_its_digest(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()

    def own_code(*names: str) -> dict[str, str]:
        found = programs.own_code(*names)
        seen.update(found)
        return found

    adapter = importlib.import_module(f"pairtrial.harness.agents.{name}").ADAPTER
    for user in ("native", "claude_code"):
        module = f"pairtrial.harness.agents.{user}"
        monkeypatch.setattr(f"{module}.own_code", own_code)
        monkeypatch.setattr(f"{module}.find_program", lambda *_: SimpleNamespace(digest="0" * 64))
    agent: Any = SimpleNamespace(version="1")
    assert len(adapter.program_digest(agent)) == 64
    assert imported(f"{name}.py") <= seen
    assert f"{name}.yaml" in seen
