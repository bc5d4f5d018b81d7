"""What every rollout of a run shares."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pairtrial.harness.agents import AgentAdapter, Invocation, render_prompt
from pairtrial.harness.delivery import Arm
from pairtrial.harness.gateway import Route
from pairtrial.harness.runtime import Runtime
from pairtrial.prereg.lock import Lock
from pairtrial.prereg.plan import AgentSpec, Plan
from pairtrial.tasks import Prepared, Task, test_command

if TYPE_CHECKING:
    from pairtrial.harness.gateway.server import GatewayServer


@dataclass(frozen=True, slots=True)
class Experiment:
    """What every rollout of a run shares."""

    lock: Lock
    adapter: AgentAdapter
    prepared: Mapping[str, Prepared]
    arms: Mapping[str, Arm]
    prompt: str
    """The prompt template."""
    scratch: Path
    cache: Path
    toolchain: Mapping[str, str]
    runtime: Runtime
    """What agents, MCP servers and indexers run with."""
    gateway: GatewayServer | None = None
    """The only way to a model; None for an agent that asks none."""
    route: Route | None = None

    @property
    def plan(self) -> Plan:
        """The plan as it was frozen."""
        return self.lock.plan

    def invocation(self, task: Task, agent: AgentSpec) -> Invocation:
        """The agent's command line for a task: no arm can reach it but by the differences that it declares."""
        return self.adapter.invocation(agent, whole_prompt(self.prompt, task))


def whole_prompt(template: str, task: Task) -> str:
    """What the agent is asked: the template with the task and its test command in it."""
    return render_prompt(template, task=task.prompt, test_command=shlex.join(test_command(task)))
