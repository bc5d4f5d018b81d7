"""Whole rollouts of small scripted agents: real sandbox, real process, real grading, no registry."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from factories import make_lock, make_plan
from grading_cases import FIXED, make_case

from pairtrial.core.canonical import tree_digest
from pairtrial.harness.agents import AgentManifest, Expected, Invocation
from pairtrial.harness.agents.base import Adapter
from pairtrial.harness.delivery import Arm
from pairtrial.harness.rollout import Experiment, run_attempt
from pairtrial.harness.runtime import Runtime
from pairtrial.prereg.plan import AgentSpec, Plan
from pairtrial.prereg.schedule import Cell, schedule
from pairtrial.providers import AgentConfig, Provider, load_provider
from pairtrial.runs.receipt import Receipt
from pairtrial.tasks import Prepared

TASK = "calc-add"
PROMPT = "{{ task }}\n\n{{ test_command }}\n"
HEAD = """
import json, os, sys
config = json.load(open(sys.argv[1]))
def say(**event): print(json.dumps(event), flush=True)
def start(**changes):
    servers = [{"name": n, "status": "connected", "tools": ["look"]} for n in config["mcpServers"]]
    say(**{"type": "startup", "agent": "fake", "version": "1", "model": "m", "mcp_servers": servers,
           "tools": ["edit"], **changes})
def done(stop="finished", error=False): say(type="result", stop_reason=stop, is_error=error)
def fix(): open("calc.py", "w").write(FIXED)
""".replace("FIXED", repr(FIXED))
REPAIR = HEAD + "start(); fix(); say(type='usage', model='m', steps=3); done()"


class FakeAdapter(Adapter):
    """An agent that is the given Python text; it finds the MCP file and the seed on its command line."""

    def __init__(self, script: str) -> None:
        self.script = script
        self.manifest = AgentManifest(
            schema_="pairtrial.agent.v1",
            id="fake",
            title="A scripted agent",
            versions=("1",),
            mcp=True,
            tools=("edit",),
            evidence="startup-event",
            limits="Says nothing.",
        )

    def program_digest(self, agent: AgentSpec) -> str:
        return "0" * 64

    def invocation(self, agent: AgentSpec, prompt: str) -> Invocation:
        argv = ("${PYTHON}", "-c", self.script, "${MCP_FILE}", "${SEED}")
        return Invocation(argv=argv, env={"AGENT_MODEL": agent.model}, stdin=prompt.encode())


OUR_OWN = Runtime(Path(sys.executable), (Path(sys.prefix), Path(sys.base_prefix)), "0" * 64)
"""The interpreter of the tests: nothing has to be installed."""


@dataclass(frozen=True)
class Laboratory:
    """One task, three arms and a scripted agent."""

    experiment: Experiment
    prepared: Prepared

    async def attempt(self, arm: str = "control") -> tuple[Receipt, dict[str, bytes]]:
        """Run the cell of an arm."""
        return await run_attempt(self.experiment, self.cell(arm), 1)

    def cell(self, arm: str) -> Cell:
        """The one cell of an arm."""
        return next(cell for cell in schedule(self.experiment.plan)[0].cells if cell.arm == arm)


def write_provider(folder: Path, document: dict[str, Any], files: dict[str, str] | None = None) -> Provider:
    """A provider folder with this document, loaded."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (files or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    full = {"schema": "pairtrial.provider.v1", "id": folder.name, "version": "1", "title": "A provider", **document}
    (folder / "provider.yaml").write_text(json.dumps(full))
    return load_provider(folder.name, folder.parent)


SERVER = {"servers": {"looker": {"command": "${PYTHON}", "args": ["${PROVIDER}/server.py"], "tools": ["look"]}}}


def make_laboratory(
    root: Path, script: str, *, provider: Provider | None = None, plan: Plan | None = None, arms: Sequence[str] = ()
) -> Laboratory:
    """Prepare everything; ``provider`` is what the treatment arm gets."""
    case = make_case(root)
    visible = root / "visible"
    subprocess.run(["cp", "-a", case.prepared.defective, visible], check=True)
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=m", "-c", "user.email=m@x", "commit", "-qm", "i"]):
        subprocess.run(["git", *command], cwd=visible, check=True)
    prepared = replace(
        case.prepared,
        visible=visible,
        visible_digest=tree_digest(visible, exclude=(".git",)),
        git_digest=tree_digest(visible / ".git"),
    )
    plan = plan or make_plan(tasks={"pack": "pack", "ids": [TASK]})
    adapter = FakeAdapter(script)
    provider = provider or write_provider(root / "looker", SERVER, {"server.py": ""})
    expected = Expected(agent="fake", version="1", model="m", tools=("edit",))
    table = {
        arm.name: Arm(arm.name, provider, replace(expected, servers=servers_of(provider.config),
                                                  context_files=tuple(provider.context)))
        if arm.kind.value == "treatment"
        else Arm(arm.name, None, expected)
        for arm in plan.arms
    }  # fmt: skip
    experiment = Experiment(
        lock=make_lock(plan),
        adapter=adapter,
        prepared={TASK: prepared},
        arms=table,
        prompt=PROMPT,
        scratch=root / "scratch",
        cache=root / "cache",
        toolchain={"python": "3"},
        runtime=OUR_OWN,
    )
    experiment.scratch.mkdir(exist_ok=True)
    return Laboratory(experiment, prepared)


def servers_of(config: AgentConfig) -> dict[str, tuple[str, ...]]:
    """Server → tools, as the arm expects them."""
    return {name: tuple(server.tools) for name, server in config.servers.items()}
