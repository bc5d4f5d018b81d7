"""Everything that could move a result, as one flat table of names and digests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pairtrial.core.canonical import sha256_file, sha256_hex
from pairtrial.core.errors import PairtrialError, PlanError
from pairtrial.prereg.plan import ArmKind, Plan, load_plan
from pairtrial.prereg.qualified import leak_problems, qualification_identities, qualification_problems
from pairtrial.prereg.schedule import Block, schedule, schedule_digest
from pairtrial.providers import Provider, load_provider, mcp_template
from pairtrial.tasks import Pack, Task, load_pack
from pairtrial.tasks.qualification import Qualification, read_qualifications


@dataclass(frozen=True, slots=True)
class Material:
    """A plan with everything that it refers to, read and checked."""

    path: Path
    plan: Plan
    pack: Pack
    tasks: Mapping[str, Task]
    """The plan's tasks in plan order."""
    providers: Mapping[str, Provider]
    """Treatment arm → its provider."""
    prompt: str
    blocks: tuple[Block, ...]
    qualifications: Mapping[str, Qualification] = field(default_factory=dict)
    """Task → what qualification found, as far as it was ever qualified."""

    def provider(self, arm: str) -> Provider | None:
        """The arm's provider; None for the control and its replicates."""
        return self.providers.get(arm)


def read_material(path: Path) -> Material:
    """Read a plan, its pack, its providers and its prompt; raises `PlanError` with every problem at once."""
    plan = load_plan(path)
    base = path.parent
    problems: list[str] = []

    pack: Pack | None = None
    try:
        pack = load_pack(base / plan.tasks.pack)
    except PairtrialError as fault:
        problems.append(str(fault))
    tasks: dict[str, Task] = {}
    qualifications: dict[str, Qualification] = {}
    if pack is not None:
        try:
            qualifications = read_qualifications(pack)
        except PairtrialError as fault:
            problems.append(str(fault))
        known = {task.id: task for task in pack.tasks}
        for name in plan.tasks.ids:
            if name in known:
                tasks[name] = known[name]
            else:
                problems.append(f"{path}: tasks.ids: {name!r} is not in pack {pack.id!r}; correct the id or remove it")
    providers: dict[str, Provider] = {}
    for arm in plan.treatments:
        try:
            providers[arm.name] = load_provider(arm.provider or "", base)
        except PairtrialError as fault:
            problems.append(f"{path}: arm {arm.name!r}: {fault}")
    try:
        prompt = (base / plan.prompt).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        prompt = ""
        problems.append(f"{path}: prompt: {plan.prompt}: cannot be read ({fault}); correct the path")
    if problems or pack is None:
        raise PlanError("\n".join(problems), slug="invalid-plan")
    return Material(path, plan, pack, tasks, providers, prompt, schedule(plan), qualifications)


def demand_qualified(material: Material) -> None:
    """`PlanError` for tasks that may not be frozen, and for providers that give a task away; asks no network."""
    path, found = material.path, material.qualifications
    problems = qualification_problems(path, material.plan, material.tasks, found)
    problems += leak_problems(path, material.tasks, found, material.providers)
    if problems:
        raise PlanError("\n".join(problems), slug="unfit-tasks")


def definition_identities(material: Material, extra: Mapping[str, str]) -> dict[str, str]:
    """Identities that need no preparation: plan, prompt, tasks, providers, arms, schedule.

    ``extra`` holds those of the floors above (agent, grader), which this one does not import.
    """
    table = {
        "plan.file": sha256_file(material.path),
        "prompt": sha256_hex(material.prompt.encode()),
        "schedule": schedule_digest(material.blocks),
        **extra,
    }
    for name, task in material.tasks.items():
        table[f"task.{name}.definition"] = task.digest
        table[f"task.{name}.target"] = task.target.id
        table[f"task.{name}.category"] = str(task.category)
    table |= qualification_identities(material.plan, material.tasks, material.qualifications)
    for arm in material.plan.arms:
        provider = material.provider(arm.name)
        if arm.kind is ArmKind.TREATMENT and provider is not None:
            table[f"arm.{arm.name}.provider"] = provider.tree
            table[f"arm.{arm.name}.provider-version"] = f"{provider.name} {provider.config.version}"
        table[f"arm.{arm.name}.mcp-file"] = sha256_hex(mcp_template(provider.config if provider else None))
    return table
