"""Putting an experiment together from its plan: what `check`, `freeze` and `run` share."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path

import anyio

from pairtrial import __version__
from pairtrial.cli.progress import tracking
from pairtrial.core.canonical import tree_digest
from pairtrial.core.disk import cache_root
from pairtrial.core.errors import PairtrialError, PlanError
from pairtrial.harness.agents import AgentAdapter, Expected, load_adapter, render_prompt
from pairtrial.harness.delivery import Arm
from pairtrial.prereg.identities import Material, definition_identities, read_material
from pairtrial.prereg.lock import Lock
from pairtrial.tasks import Prepared, prepare, test_command

GRADER = Path(__file__).resolve().parents[1] / "grading"


def read_experiment(path: Path) -> tuple[Material, AgentAdapter]:
    """Plan, material and agent; raises `PlanError` with every problem at once."""
    material = read_material(path)
    problems: list[str] = []
    adapter = None
    try:
        adapter = load_adapter(material.plan.agent.adapter)
        problems += _agent_problems(material, adapter)
    except PairtrialError as fault:
        problems.append(f"{path}: {fault}")
    task = next(iter(material.tasks.values()))
    try:
        render_prompt(material.prompt, task=task.prompt, test_command=" ".join(test_command(task)))
    except PairtrialError as fault:
        problems.append(f"{path}: prompt: {fault}")
    if problems or adapter is None:
        raise PlanError("\n".join(problems), slug="invalid-plan")
    return material, adapter


def _agent_problems(material: Material, adapter: AgentAdapter) -> list[str]:
    manifest, agent, path = adapter.manifest, material.plan.agent, material.path
    problems = []
    if agent.version not in manifest.versions:
        problems.append(
            f"{path}: agent.version: {agent.version!r} was never measured; use {', '.join(manifest.versions)}"
        )
    if manifest.models and agent.model not in manifest.models:
        problems.append(f"{path}: agent.model: {agent.model!r} is not one of {', '.join(manifest.models)}")
    for arm, provider in material.providers.items():
        if provider.config.servers and not manifest.mcp:
            problems.append(f"{path}: arm {arm!r}: {manifest.id} cannot use MCP servers; give it context files only")
    return problems


def quick_identities(material: Material, adapter: AgentAdapter) -> dict[str, str]:
    """Identities that need neither network nor preparation."""
    manifest = adapter.manifest
    return definition_identities(
        material,
        {
            "agent.program": adapter.program_digest(material.plan.agent.version),
            "agent.embedded": "true" if manifest.embedded else "false",
            "agent.limits": manifest.limits,
            "grader": tree_digest(GRADER, exclude=("__pycache__",)),
        },
    )


def prepared_identities(prepared: Mapping[str, Prepared]) -> dict[str, str]:
    """Identities of the trees that the agents will see."""
    return {f"task.{name}.workspace": item.visible_digest for name, item in prepared.items()}


def prepare_all(material: Material) -> dict[str, Prepared]:
    """Fetch, verify and prepare every task of a plan; what was prepared before is taken from the cache."""
    cache = cache_root()
    ready: dict[str, Prepared] = {}

    async def work() -> None:
        with tracking("preparing tasks", len(material.tasks)) as tracker:
            for name, task in material.tasks.items():
                ready[name] = await prepare(task, cache)
                tracker.update(len(ready), name)

    anyio.run(work)
    return ready


def make_lock(material: Material, adapter: AgentAdapter, prepared: Mapping[str, Prepared]) -> Lock:
    """The lock of a plan as everything is today."""
    return Lock(
        schema_="pairtrial.lock.v1",
        pairtrial=__version__,
        plan=material.plan,
        identities={**quick_identities(material, adapter), **prepared_identities(prepared)},
    )


def make_arms(material: Material, adapter: AgentAdapter) -> dict[str, Arm]:
    """What each arm must look like at start-up."""
    manifest, agent = adapter.manifest, material.plan.agent
    arms = {}
    for arm in material.plan.arms:
        provider = material.provider(arm.name)
        servers = provider.config.servers if provider else {}
        expected = Expected(
            agent=manifest.id,
            version=agent.version,
            model=agent.model,
            tools=manifest.tools,
            servers={name: tuple(server.tools) for name, server in servers.items()},
            context_files=tuple(provider.context) if provider else (),
        )
        arms[arm.name] = Arm(arm.name, provider, expected)
    return arms


def toolchain() -> dict[str, str]:
    """What the machine is, without its name."""
    return {
        "pairtrial": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def committed(path: Path) -> bool | None:
    """Whether a file is committed as it stands; None outside a git repository."""
    import git

    try:
        repository = git.Repo(path.parent, search_parent_directories=True)
    except git.InvalidGitRepositoryError:
        return None
    with repository:
        name = str(path.resolve().relative_to(Path(str(repository.working_tree_dir)).resolve()))
        try:
            stored: str = repository.git.rev_parse(f"HEAD:{name}")
        except git.GitCommandError:
            return False
        return bool(stored == repository.git.hash_object("--no-filters", str(path.resolve())))
