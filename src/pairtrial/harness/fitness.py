"""Whether a plan's agent can do what the plan wants of it: asked by `check`, before anything is started."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from packaging.utils import canonicalize_name

from pairtrial.core.canonical import sha256_file
from pairtrial.core.errors import PairtrialError
from pairtrial.harness import agents
from pairtrial.harness.agents import AgentAdapter, AgentManifest, Expected
from pairtrial.harness.agents.base import split_turns
from pairtrial.harness.gateway import PriceTable, load_prices
from pairtrial.prereg.plan import AgentSpec, Arm, Plan
from pairtrial.providers import Provider

_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==", re.MULTILINE)
READS_CONTEXT = "context_files"
"""Option under which an agent reads context files of the workspace; an arm may declare it as its difference."""
TARGETS_OWN = "target_context"
"""Option that lets context files of the target itself stand: ``keep``."""
KNOWN_CONTEXT = (
    "CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "AGENTS.override.md", "GEMINI.md", ".mcp.json", ".claude", ".agents",
    ".codex", ".gemini", ".opencode", "opencode.json", ".cursorrules", ".cursor",
)  # fmt: skip
"""Files and folders of a target that could steer an agent."""


def plan_problems(
    plan: Plan,
    path: Path,
    providers: Mapping[str, Provider],
    adapter: AgentAdapter,
    prompts: Mapping[str, str] = {},
    packages: Mapping[str, str] = {},
) -> list[str]:
    """Every misfit between plan and agent, with its field and fix.

    ``prompts`` are the tasks', ``packages`` the names under which registries know their targets.
    """
    manifest, agent = adapter.manifest, plan.agent
    problems = []
    if manifest.versions and agent.version not in manifest.versions:
        known = ", ".join(manifest.versions)
        problems.append(f"agent.version: {agent.version!r} was never measured; use {known}")
    if manifest.models and agent.model not in manifest.models:
        problems.append(f"agent.model: {agent.model!r} is not one of {', '.join(manifest.models)}")
    problems += adapter.problems(agent)
    for task, prompt in prompts.items():
        if len(split_turns(prompt)) > 1 and not adapter.multi_turn:
            problems.append(f"tasks.ids: {task} has several turns, and {manifest.id} takes one; leave it out")
    carried = packages_of(manifest, agent.version)
    for task, package in packages.items():
        if canonicalize_name(package) in carried and task not in plan.tasks.exceptions:
            problems.append(
                f"tasks.ids: {task}: {manifest.id} brings {package} along, so its unbroken source can be read there; "
                "leave it out, or say why it is used all the same under tasks.exceptions"
            )
    for arm in plan.arms:
        provider = providers.get(arm.name)
        found = _difference_problems(plan, arm, provider, adapter)
        if provider is not None:
            found += _provider_problems(plan.agent_of(arm.name), provider, adapter)
        problems += [f"arm {arm.name!r}: {text}" for text in found]
    if not problems and adapter.api(agent) is not None:
        problems += _price_problems(plan, path)
    return [f"{path}: {problem}" for problem in problems]


def packages_of(manifest: AgentManifest, version: str) -> frozenset[str]:
    """Names of the Python packages that a version of an agent consists of."""
    source = manifest.programs.get(version)
    if source is None or source.registry != "pypi":
        return frozenset()
    if source.lock is None:
        return frozenset({canonicalize_name(source.package)})
    text = (Path(agents.__file__).parent / source.lock).read_text(encoding="utf-8")
    return frozenset(canonicalize_name(name) for name in _PIN.findall(text))


def _provider_problems(agent: AgentSpec, provider: Provider, adapter: AgentAdapter) -> list[str]:
    manifest, config = adapter.manifest, provider.config
    problems = []
    if config.servers and (not manifest.mcp or agent.options.get("mcp") is False):
        problems.append(f"{manifest.id} cannot use MCP servers; give it context files only")
    hosted = [name for name, server in config.servers.items() if server.url is not None]
    if hosted and not manifest.hosted_mcp:
        problems.append(f"{manifest.id} cannot use hosted MCP servers ({', '.join(hosted)})")
    if adapter.covers >= {"context"} or not provider.context:
        return problems
    if agent.options.get(READS_CONTEXT) is not True:
        declare = ", or declare it in this arm's differences" if READS_CONTEXT in manifest.may_differ else ""
        problems.append(
            f"agent.options.{READS_CONTEXT}: must be true{declare}, or the arm's context files are not read"
        )
    for path in provider.context:
        if not any(path == name or path.startswith(f"{name}/") for name in manifest.context_files):
            known = ", ".join(manifest.context_files) or "none"
            problems.append(f"{manifest.id} never reads {path}; it reads {known}: the treatment would not arrive")
    return problems


def _difference_problems(plan: Plan, arm: Arm, provider: Provider | None, adapter: AgentAdapter) -> list[str]:
    """Declared differences that may not be, and those that would change nothing."""
    manifest, options = adapter.manifest, plan.agent.options
    problems = []
    for name, item in arm.differences.items():
        where = f"differences.{name}"
        if name not in manifest.may_differ:
            allowed = f"lets only {', '.join(manifest.may_differ)}" if manifest.may_differ else "lets no option"
            problems.append(f"{where}: {manifest.id} {allowed} differ between arms; set agent.options.{name} instead")
        elif item.value == options.get(name, manifest.may_differ[name]):
            problems.append(f"{where}: every arm has {name}={json.dumps(item.value)} already; remove it")
        elif name == READS_CONTEXT and not (provider and provider.context):
            problems.append(f"{where}: the arm's provider has no context files, so nothing needs it; remove it")
        elif name == READS_CONTEXT and options.get(TARGETS_OWN) == "keep":
            problems.append(
                f"{where}: with agent.options.{TARGETS_OWN}: keep the target's own context files would reach this arm "
                f"alone; set agent.options.{name} for every arm, or remove {TARGETS_OWN}"
            )
    if not problems and arm.differences:
        known = set(adapter.problems(plan.agent))
        problems += [text for text in adapter.problems(plan.agent_of(arm.name)) if text not in known]
    return problems


def _price_problems(plan: Plan, path: Path) -> list[str]:
    if plan.budget.prices is None:
        return ["budget.prices: an agent that asks a model needs a price table; name one"]
    try:
        table = prices_of(plan, path)
    except PairtrialError as fault:
        return [str(fault)]
    if plan.agent.model not in table.models:
        return [f"budget.prices: {plan.budget.prices} has no price of {plan.agent.model}; add it"]
    return []


def prices_of(plan: Plan, path: Path) -> PriceTable:
    """The registered price table."""
    return load_prices(path.parent / (plan.budget.prices or ""))


def price_identity(plan: Plan, path: Path) -> dict[str, str]:
    """Digest of the price table for the lock."""
    if plan.budget.prices is None:
        return {}
    return {"budget.prices": sha256_file(path.parent / plan.budget.prices)}


def make_expected(
    plan: Plan, provider: Provider | None, adapter: AgentAdapter, agent: AgentSpec | None = None
) -> Expected:
    """What an arm must look like at start-up and on the wire; ``agent`` is the arm's, where it differs from the plan's."""
    agent = agent or plan.agent
    servers = provider.config.servers if provider else {}
    context = tuple(provider.context) if provider else ()
    own = adapter.own_tools(agent, servers=False)
    return Expected(
        agent=adapter.manifest.id,
        version=agent.version,
        model=agent.model,
        tools=own,
        optional_tools=tuple(tool for tool in adapter.own_tools(agent, servers=bool(servers)) if tool not in own),
        servers={name: tuple(server.tools) for name, server in servers.items()},
        context_files=context,
        skills=tuple(path.split("/")[-2] for path in context if path.endswith("/SKILL.md")),
        covers=adapter.covers,
        tool_form=adapter.tool_form(agent),
        served=agent.served,
    )


def targets_context(workspace: Path) -> tuple[str, ...]:
    """Context files that the target brings itself, at its root and below it."""
    found = []
    for name in KNOWN_CONTEXT:
        found += [path.relative_to(workspace).as_posix() for path in workspace.rglob(name) if ".git" not in path.parts]
    return tuple(sorted(found))
