"""Whole rollouts of real agents: the small task, a shelf of MCP tools, and a scripted model behind the gateway."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import zstandard
from factories import make_lock, make_plan
from rollout_cases import TASK, Laboratory, make_laboratory, write_provider
from scripted import Scripted, scripted

from pairtrial.core.errors import AgentError
from pairtrial.harness.agents import load_adapter
from pairtrial.harness.agents.programs import find_program
from pairtrial.harness.delivery import Arm
from pairtrial.harness.differences import flag_identities
from pairtrial.harness.fitness import make_expected
from pairtrial.harness.gateway import Budget, Family, PriceTable, Route
from pairtrial.harness.gateway.app import Gateway
from pairtrial.harness.gateway.server import GatewayServer
from pairtrial.prereg.plan import Plan
from pairtrial.providers import Provider

SHELF = '''
import sys, time
mode = sys.argv[1] if len(sys.argv) > 1 else "ok"
if mode == "crash":
    sys.exit(3)
if mode == "slow":
    time.sleep(float(sys.argv[2]))
from mcp.server import MCPServer
server = MCPServer("shelf")
def make(number):
    def tool(term: str) -> str:
        """Look a term up in the glossary of the project and give its one-line definition."""
        return f"{term}: the sum of both"
    tool.__name__ = "lookup" if number == 0 else f"lookup_{number}"
    return tool
for number in range(int(sys.argv[2]) if mode == "many" else 1):
    server.tool()(make(number))
server.run("stdio")
'''
FIX: list[dict[str, Any]] = [
    {"say": "I read first.", "do": "read", "file": "calc.py"},
    {"do": "mcp", "server": "shelf", "tool": "lookup", "arguments": {"term": "add"}},
    {"do": "edit", "file": "calc.py", "old": "a - b", "new": "a + b"},
    {"say": "Repaired."},
]
FAMILIES = {
    "claude-code": "anthropic",
    "codex": "openai",
    "gemini": "gemini",
    "acp": "gemini",
    "mini-swe-agent": "anthropic",
}
MODELS = {
    "anthropic": "claude-sonnet-4-5-20250929",
    "openai": "gpt-5-codex",
    "gemini": "gemini-2.5-pro",
}


def shelf(folder: Path, *arguments: str, tools: int = 1) -> Provider:
    """The provider of the treatment arm."""
    names = ["lookup", *(f"lookup_{number}" for number in range(1, tools))]
    args = ["${PROVIDER}/server.py", *arguments]
    server = {"command": "${PYTHON}", "args": args, "tools": names}
    return write_provider(folder / "shelf", {"servers": {"shelf": server}}, {"server.py": SHELF})


def present(adapter: str, version: str) -> tuple[bool, str]:
    """Whether a version of an agent is installed, and why not."""
    try:
        find_program(load_adapter(adapter).manifest, version)
    except AgentError as fault:
        return False, str(fault)
    return True, ""


def agent_plan(adapter: str, version: str, **changes: Any) -> Plan:
    """A plan for one agent and the small task."""
    family = "anthropic" if "opencode" in (adapter, version.split("-")[0]) else FAMILIES[adapter]
    agent = {
        "adapter": adapter,
        "version": version,
        "model": MODELS[family],
        "limits": {"wall_s": 60, "turns": 10},
        **changes.pop("agent", {}),
    }
    budget = {"ceiling_usd": 100, "per_rollout_usd": 20, "prices": "prices.yaml"}
    return make_plan(**{"tasks": {"pack": "pack", "ids": [TASK]}, "agent": agent, "budget": budget, **changes})


def prices(model: str) -> PriceTable:
    """A price table with one model."""
    price = {"input": "3", "output": "15", "cache_read": "0.3", "cache_write": "3.75", "max_output_tokens": 64000}
    return PriceTable.model_validate({"schema": "pairtrial.prices.v1", "as_of": "2026-11-30", "models": {model: price}})


@contextlib.contextmanager
def agent_laboratory(
    root: Path, plan: Plan, script: dict[str, Any], provider: Provider | None = None
) -> Iterator[tuple[Laboratory, Scripted]]:
    """One real agent, one task, a gateway and a scripted model."""
    adapter = load_adapter(plan.agent.adapter)
    provider = provider or shelf(root)
    base = make_laboratory(root, "", provider=provider, plan=plan)
    arms = {
        arm.name: Arm(arm.name, own, make_expected(plan, own, adapter, plan.agent_of(arm.name)))
        for arm in plan.arms
        for own in [provider if arm.kind.value == "treatment" else None]
    }
    api = adapter.api(plan.agent)
    assert api is not None
    with scripted(script, root) as model:
        route = Route(Family(api.family), model.url, None)
        gateway = Gateway(Budget(Decimal(plan.budget.ceiling_usd)), prices(plan.agent.model))
        with GatewayServer(gateway) as server:
            lock = make_lock(plan, **flag_identities(adapter, plan))
            experiment = replace(base.experiment, lock=lock, adapter=adapter, arms=arms, gateway=server, route=route)
            yield replace(base, experiment=experiment), model


def lines(data: bytes) -> list[dict[str, Any]]:
    """The objects of a compressed file of JSON lines."""
    text = zstandard.ZstdDecompressor().decompressobj().decompress(data).decode()
    return [json.loads(line) for line in text.split("\n") if line]
