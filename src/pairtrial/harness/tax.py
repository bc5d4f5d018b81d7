"""What MCP servers of a given size cost an agent before it has done anything, with its tool search on and off.

Servers of so many tools that do nothing stand in for real ones. Each is compared with a control under the same options,
on the first request, which the gateway answers itself: nothing is spent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pairtrial.core.canonical import tree_digest
from pairtrial.harness.agents import AgentAdapter
from pairtrial.harness.delivery import Arm
from pairtrial.harness.fitness import READS_CONTEXT, TARGETS_OWN, make_expected
from pairtrial.harness.probe.server import tool_name
from pairtrial.harness.purity import ProbeTax, Shot, deferred, measure, probe_arm
from pairtrial.harness.rollout import Experiment
from pairtrial.prereg.plan import Plan
from pairtrial.prereg.schedule import Cell
from pairtrial.providers import AgentConfig, Provider
from pairtrial.providers.loading import IGNORED

SERVER = "probe"
FOLDER = Path(__file__).parent / "probe"
Options = dict[str, bool | int | str]


def probe_provider(count: int) -> Provider:
    """A provider whose server has so many tools."""
    server = {
        "command": "${PYTHON}",
        "args": ["${PROVIDER}/server.py", str(count)],
        "tools": [tool_name(number) for number in range(1, count + 1)],
    }
    document = {
        "schema": "pairtrial.provider.v1", "id": SERVER, "version": "1.0.0", "title": f"A server of {count} tools",
        "servers": {SERVER: server},
    }  # fmt: skip
    config = AgentConfig.model_validate(document, strict=False)
    return Provider(config=config, folder=str(FOLDER), tree=tree_digest(FOLDER, exclude=IGNORED))


def probe_options(plan: Plan, adapter: AgentAdapter) -> list[Options]:
    """The plan's own options, and those under which the agent leaves schemas out, with and without leaving them out."""
    base: Options = {k: v for k, v in plan.agent.options.items() if k not in (READS_CONTEXT, TARGETS_OWN)}
    way = adapter.manifest.deferral
    if way is None:
        return [base]
    apart: Options = {**base, **way.needs}
    wanted: list[Options] = [{**base, way.option: False}, {**apart, way.option: False}, {**apart, way.option: True}]
    return [options for number, options in enumerate(wanted) if options not in wanted[:number]]


def probe_count(plan: Plan, adapter: AgentAdapter, sizes: Sequence[int]) -> int:
    """How many first requests `probe_taxes` asks for."""
    return len(probe_options(plan, adapter)) * (1 + len(sizes)) if sizes else 0


async def probe_taxes(
    experiment: Experiment, cell: Cell, sizes: Sequence[int], done: Callable[[str], None]
) -> list[tuple[ProbeTax, Shot]]:
    """The tax of a server of each size under each set of options; the row of its control stands before them."""
    found = []
    for options in probe_options(experiment.plan, experiment.adapter):
        base: Shot | None = None
        for size in (0, *sizes):
            one = _with(experiment, options, size)
            shot = await probe_arm(one, replace(cell, arm=SERVER))
            done(f"{size}-tool server")
            base = base or shot
            found.append((_row(one, shot, base, options, size), shot))
    return found


def _with(experiment: Experiment, options: Options, size: int) -> Experiment:
    """The experiment with one arm: a server of this size, or none."""
    plan, adapter = experiment.plan, experiment.adapter
    agent = plan.agent.model_copy(update={"options": options})
    only = plan.control.model_copy(update={"name": SERVER})
    changed = plan.model_copy(update={"agent": agent, "arms": (only,)})
    provider = probe_provider(size) if size else None
    arm = Arm(SERVER, provider, make_expected(changed, provider, adapter))
    return replace(experiment, lock=experiment.lock.model_copy(update={"plan": changed}), arms={SERVER: arm})


def _row(experiment: Experiment, shot: Shot, base: Shot, options: Options, size: int) -> ProbeTax:
    request, tools, names = measure(shot)
    return ProbeTax(
        options=options,
        server_tools=size,
        deferred=deferred(experiment.arms[SERVER].expected, shot),
        request_bytes=request,
        tools_bytes=tools,
        tools=len(names),
        tax_bytes=request - measure(base)[0],
    )
