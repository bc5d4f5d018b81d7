"""Putting an experiment together from its plan: what `check`, `freeze` and `run` share."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from pairtrial import __version__
from pairtrial.cli.progress import tracking
from pairtrial.core.canonical import tree_digest
from pairtrial.core.disk import cache_root
from pairtrial.core.errors import PairtrialError, PlanError
from pairtrial.harness.agents import AgentAdapter, load_adapter
from pairtrial.harness.delivery import Arm
from pairtrial.harness.differences import flag_identities
from pairtrial.harness.experiment import whole_prompt
from pairtrial.harness.fitness import make_expected, plan_problems, price_identity, prices_of
from pairtrial.harness.gateway import Budget, Route
from pairtrial.harness.runtime import Runtime, build_runtime, runtime_identity
from pairtrial.harness.turns import turn_identities
from pairtrial.harness.wiring import SCRIPTED, demand_credential, endpoint_identity, make_route
from pairtrial.prereg.amend import Amendment
from pairtrial.prereg.identities import Material, definition_identities, read_material
from pairtrial.prereg.lock import Lock
from pairtrial.prereg.qualified import qualification_notes
from pairtrial.prereg.review import impossible
from pairtrial.tasks import Prepared, prepare

if TYPE_CHECKING:
    from pairtrial.harness.gateway.server import GatewayServer

GRADER = Path(__file__).resolve().parents[1] / "grading"
SCRIPTED_LIMITS = (
    "A scripted model answered, not a language model: the run shows that the experiment works from end to end and "
    "says nothing about any model."
)


def read_experiment(path: Path) -> tuple[Material, AgentAdapter]:
    """Plan, material and agent; raises `PlanError` with every problem at once."""
    material = read_material(path)
    problems = [f"{path}: {line}" for line in impossible(material.plan)]
    adapter = None
    try:
        adapter = load_adapter(material.plan.agent.adapter)
        prompts = {name: task.prompt for name, task in material.tasks.items()}
        packages = {name: task.target.name for name, task in material.tasks.items() if task.target.name}
        problems += plan_problems(material.plan, path, material.providers, adapter, prompts, packages)
    except PairtrialError as fault:
        problems.append(f"{path}: {fault}")
    task = next(iter(material.tasks.values()))
    try:
        whole_prompt(material.prompt, task)
    except PairtrialError as fault:
        problems.append(f"{path}: prompt: {fault}")
    if problems or adapter is None:
        raise PlanError("\n".join(problems), slug="invalid-plan")
    return material, adapter


def grader_digest() -> str:
    """Of what grades rollouts; qualifying judges tasks."""
    return tree_digest(GRADER, exclude=("__pycache__", "qualify"))


def qualification_remarks(material: Material) -> list[str]:
    """What the author should know about the qualification of the plan's tasks."""
    return qualification_notes(
        material.plan, material.tasks, material.qualifications, grader_digest(), runtime_identity()
    )


def quick_identities(material: Material, adapter: AgentAdapter) -> dict[str, str]:
    """Identities that need neither network nor preparation."""
    manifest, plan = adapter.manifest, material.plan
    scripted = endpoint_identity(plan.agent, adapter).get("agent.endpoint") == SCRIPTED
    return definition_identities(
        material,
        {
            "agent.program": adapter.program_digest(plan.agent),
            "agent.embedded": "true" if manifest.embedded or scripted else "false",
            "agent.limits": SCRIPTED_LIMITS if scripted else manifest.limits,
            "agent.runtime": runtime_identity(),
            "grader": grader_digest(),
            **endpoint_identity(plan.agent, adapter),
            **price_identity(plan, material.path),
            **flag_identities(adapter, plan),
            **turn_identities({name: whole_prompt(material.prompt, task) for name, task in material.tasks.items()}),
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


def prepare_runtime() -> Runtime:
    """What agents and servers run with; built when it is not in the cache."""
    return anyio.run(build_runtime, cache_root())


def make_lock(
    material: Material,
    adapter: AgentAdapter,
    prepared: Mapping[str, Prepared],
    amendments: tuple[Amendment, ...] = (),
) -> Lock:
    """The lock of a plan as everything is today."""
    lock = Lock(
        schema_="pairtrial.lock.v1",
        pairtrial=__version__,
        plan=material.plan,
        identities={**quick_identities(material, adapter), **prepared_identities(prepared)},
        amendments=amendments,
    )
    return lock.whole()


def make_arms(material: Material, adapter: AgentAdapter) -> dict[str, Arm]:
    """What each arm must look like at start-up."""
    arms = {}
    for arm in material.plan.arms:
        provider = material.provider(arm.name)
        expected = make_expected(material.plan, provider, adapter, material.plan.agent_of(arm.name))
        arms[arm.name] = Arm(arm.name, provider, expected)
    return arms


@contextmanager
def gateway_for(
    material: Material, adapter: AgentAdapter, *, key_needed: bool = True
) -> Iterator[tuple[GatewayServer, Route] | tuple[None, None]]:
    """The running gateway for an agent that asks a model; nothing for one that asks none."""
    route = make_route(material.plan.agent, adapter)
    if route is None:
        yield None, None
        return
    from pairtrial.harness.gateway.app import Gateway
    from pairtrial.harness.gateway.server import GatewayServer

    if key_needed:
        demand_credential(route)
    gateway = Gateway(Budget(material.plan.budget.ceiling_usd), prices_of(material.plan, material.path))
    with GatewayServer(gateway) as server:
        yield server, route


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
