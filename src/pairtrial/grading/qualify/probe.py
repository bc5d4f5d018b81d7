"""The agent that reads everything, and what the copy under test is.

It runs in the sandbox that a rollout would get, with the workspace, the environment and the mounts of a rollout, and
looks at every file that can be read there and at every git object.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import anyio

from pairtrial.core.errors import SandboxError
from pairtrial.grading.observe import own_names, site_packages
from pairtrial.grading.qualify.conditions import PROGRAMS
from pairtrial.grading.qualify.needles import SHARE, Passage
from pairtrial.grading.qualify.rounds import Where
from pairtrial.sandbox.protocol import Isolation
from pairtrial.tasks.model import Framework
from pairtrial.tasks.qualification import Fault, Problem
from pairtrial.tasks.workspace import Prepared, copy_workspace, task_env

TIMEOUT_S = 600.0
MACHINE = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/nix")
"""The machine's own programs, and with them the installation of Python: the same for every task, read only where a file
is called like one of the task's."""
ONE_COMMIT = {
    "commits": 1,
    "tags": 0,
    "unreachable": 0,
    "references": 1,
    "remotes": 0,
    "stashes": 0,
    "reflog": 0,
    "logs": 0,
    "alternates": 0,
    "changes": 0,
}
"""What a repository without history looks like."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the agent that reads everything found."""

    sandbox: str
    """Kind of the isolating sandbox; ``none`` where only the task's own folders could be read."""
    needles: int
    problems: tuple[Problem, ...]
    files: int
    exposed: tuple[str, ...] = ()
    """What the machine itself shows beside the task, such as another release of the target in a system folder."""


async def read_everything(
    prepared: Prepared, passages: Sequence[Passage], where: Where, further: Iterable[Path] = ()
) -> Reading:
    """Look for every passage wherever an agent of ``prepared`` can read.

    ``further`` are folders that a rollout mounts beside the task's environment (interpreter of the agent, its program).
    """
    sandbox = where.sandbox(prepared, f"read {prepared.task.id}", *further)
    try:
        await sandbox.prepare()
        await _lay_workspace(prepared, sandbox, where.scratch)
        isolated = sandbox.isolation is not Isolation.NONE
        environment = sandbox.inside_path(prepared.environment.root)
        own = [sandbox.workspace, sandbox.home, sandbox.tmp, environment]
        request: dict[str, Any] = {
            "workspace": sandbox.workspace,
            "git": True,
            "roots": ["/"] if isolated else own,
            "shallow": [*MACHINE, sandbox.inside_path(prepared.environment.base)],
            "names": sorted(_names(prepared)),
            "words": sorted(_words(prepared)),
            "needles": [piece for passage in passages for piece in passage.pieces],
        }
        # An environment may lie below a folder of the machine; it is read whole all the same.
        request["shallow"] = [f"{place}/" for place in request["shallow"] if not environment.startswith(f"{place}/")]
        if isolated:
            request["roots"] = ["/", environment]
        done = await sandbox.exec(
            ["python", "-I", "-S", "-c", files(PROGRAMS).joinpath("reader.py").read_text(encoding="utf-8")],
            env=task_env(prepared.task, prepared, sandbox.workspace, environment=environment),
            cwd=sandbox.workspace,
            stdin=json.dumps(request).encode(),
            timeout_s=TIMEOUT_S,
        )
    finally:
        with anyio.CancelScope(shield=True):
            await sandbox.destroy()
    if not done.ok:
        said = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise SandboxError(f"{prepared.task.id}: the reading agent failed: {''.join(said)}", slug="reader-failed")
    seen = json.loads(done.stdout)
    hits, exposed = _apart(seen["hits"], prepared, sandbox.workspace)
    found = [*_history(seen["git"]), *_readable(hits, passages)]
    machine = tuple(problem.text for problem in _readable(exposed, passages))
    kind = sandbox.kind if isolated else "none"
    return Reading(kind, len(request["needles"]), tuple(found), seen["files"], machine)


async def _lay_workspace(prepared: Prepared, sandbox: Any, scratch: Path) -> None:
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        copy = Path(name) / "workspace"
        await copy_workspace(prepared, copy)
        await sandbox.put_tree(copy, sandbox.workspace)


def _names(prepared: Prepared) -> set[str]:
    """Names of the files that were edited or hidden from."""
    names = {span.file.rpartition("/")[2] for span in prepared.task.defect}
    for test_id in prepared.task.fail_to_pass:
        head = test_id.partition("::")[0]
        if "." in head.rpartition("/")[2]:
            names.add(head.rpartition("/")[2])
    return names - {"__init__.py", "index.js", "lib.rs", "mod.rs"}


def _words(prepared: Prepared) -> set[str]:
    """Names of hidden tests, for files that hold no lines."""
    if prepared.task.target.tests.framework not in (Framework.PYTEST, Framework.UNITTEST):
        return set()
    names = {item.partition("[")[0].rpartition("::")[2] for item in prepared.task.fail_to_pass}
    return {name for name in names if len(name) > 12}


def _history(facts: Mapping[str, int]) -> list[Problem]:
    found = []
    for name, wanted in ONE_COMMIT.items():
        if facts.get(name) != wanted:
            text = f"the repository has {facts.get(name)} {name}, must have {wanted}: a fix may stand there"
            found.append(Problem(fault=Fault.LEAKING, text=text))
    return found


Hits = dict[str, Sequence[int | str]]


def _apart(hits: Mapping[str, Sequence[int | str]], prepared: Prepared, workspace: str) -> tuple[Hits, Hits]:
    """What comes with the task, and what the machine's system folders show; both without what is no leak.

    A test that the agent can run all the same is no leak, even where it reads like a hidden one: it passes with the
    defect, so it does not show it.
    """
    task = prepared.task
    shown = {item.partition("::")[0] for item in task.pass_to_pass}
    known, machine = {}, {}
    for place, items in hits.items():
        relative = place.removeprefix(f"{workspace}/").removeprefix("git:")
        if relative in shown:
            continue
        system = next((root for root in MACHINE if place.startswith(f"{root}/")), None)
        inside = place.startswith(str(prepared.environment.root))
        if system is not None and not inside:
            machine["a system folder: " + "/".join(place.split("/")[-3:])] = items
        else:
            known[_shown(place, workspace, str(prepared.environment.root))] = items
    return known, machine


def _shown(place: str, workspace: str, environment: str) -> str:
    """A place without the paths of this machine: the record is committed."""
    if place.startswith((f"{workspace}/", "git:")):
        return place.removeprefix(f"{workspace}/")
    if place.startswith(f"{environment}/"):
        return f"the environment: {place.removeprefix(environment + '/')}"
    _, packages, module = place.rpartition("/site-packages/")
    if packages:
        return f"the agent's runtime: {module}"
    return "outside of the workspace: " + "/".join(place.split("/")[-3:])


def _readable(hits: Mapping[str, Sequence[int | str]], passages: Sequence[Passage]) -> list[Problem]:
    """Passages of which enough can be read in one place."""
    owner = [number for number, passage in enumerate(passages) for _ in passage.pieces]
    found = []
    for place in sorted(hits):
        pieces = {item for item in hits[place] if isinstance(item, int)}
        words = sorted({item for item in hits[place] if isinstance(item, str)})
        for number, passage in enumerate(passages):
            mine = sum(owner[item] == number for item in pieces)
            if mine and mine >= SHARE * len(passage.pieces):
                found.append(Problem(fault=Fault.LEAKING, text=f"{place} holds {passage.name}"))
        if words:
            text = f"{place}, a compiled file, names hidden tests ({', '.join(words[:3])})"
            found.append(Problem(fault=Fault.LEAKING, text=text))
    return found


def other_copies(prepared: Prepared) -> list[Problem]:
    """Places in the environment from which the target could be imported instead of from the workspace."""
    found = []
    name = prepared.task.target.name
    for module in sorted(own_names(prepared)):
        sites = [
            site for site in site_packages(prepared) if (site / module).exists() or (site / f"{module}.py").exists()
        ]
        if sites and any(span.file.split("/")[-1].partition(".")[0] == module or module in span.file.split("/")
                         for span in prepared.task.defect):  # fmt: skip
            text = f"the environment holds a copy of {module}, which may be tested instead of the edited one"
            found.append(Problem(fault=Fault.INVALID, text=text))
    modules = prepared.environment.root / "node_modules"
    if name and (modules / name).exists():
        text = f"node_modules holds a copy of {name}, which may be tested instead of the edited one"
        found.append(Problem(fault=Fault.INVALID, text=text))
    return found
