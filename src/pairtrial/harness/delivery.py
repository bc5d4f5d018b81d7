"""Setting a rollout up: the workspace, the context files, the index and the MCP file.

What a provider did to the workspace is checked before the agent starts: apart from the context files that it declared,
every byte must be as the task has it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pairtrial.core.canonical import sha256_hex, tree_digest
from pairtrial.core.errors import PairtrialError
from pairtrial.core.status import Status
from pairtrial.grading import capture
from pairtrial.grading.observe import link_modules
from pairtrial.harness.agents import AgentAdapter, Expected, Invocation, Place
from pairtrial.harness.fitness import READS_CONTEXT, TARGETS_OWN, targets_context
from pairtrial.prereg.plan import AgentSpec
from pairtrial.providers import Provider, expand, mcp_template
from pairtrial.providers.loading import IGNORED
from pairtrial.sandbox import Sandbox
from pairtrial.tasks import Prepared, copy_workspace, task_env

STATE = "context-state"
"""Folder in the agent's home for a provider's index; exists in every arm."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm as a rollout needs it."""

    name: str
    provider: Provider | None
    expected: Expected

    @property
    def template(self) -> bytes:
        """The MCP file before its placeholders are filled in."""
        return mcp_template(self.provider.config if self.provider else None)


class DeliveryError(PairtrialError):
    """The rollout cannot start; carries the status that its receipt gets."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Delivered:
    """A rollout ready to start."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    stdin: bytes
    observed: dict[str, str]
    """Digests seen at launch."""
    index_s: float | None
    place: Place


@dataclass(frozen=True, slots=True)
class Link:
    """The gateway as one rollout sees it."""

    url: str
    token: str


async def deliver(
    sandbox: Sandbox,
    prepared: Prepared,
    arm: Arm,
    invocation: Invocation,
    seed: int,
    adapter: AgentAdapter,
    agent: AgentSpec,
    python: Path,
    link: Link | None = None,
) -> Delivered:
    """Put everything in place; raises `DeliveryError` with a status when the rollout must not start.

    ``python`` is the interpreter that agents and servers get as ``${PYTHON}``.
    """
    workspace = sandbox.host_path(sandbox.workspace)
    await copy_workspace(prepared, workspace)
    link_modules(prepared, sandbox.inside_path(prepared.environment.root), workspace)
    state = f"{sandbox.home}/{STATE}"
    sandbox.host_path(state).mkdir(parents=True, exist_ok=True)
    table = {
        "PYTHON": str(python),
        "WORKSPACE": sandbox.workspace,
        "HOME": sandbox.home,
        "STATE": state,
        "MCP_FILE": f"{sandbox.home}/{adapter.mcp_file}",
        "SEED": str(seed),
        "GATEWAY": link.url if link else "",
        "TOKEN": link.token if link else "",
    }
    servers = json.loads(arm.template)["mcpServers"]
    observed = {
        "workspace": prepared.visible_digest,
        "environment": prepared.environment.digest,
        "mcp-file": sha256_hex(arm.template),
        "invocation": invocation.digest,
    }
    if adapter.api(agent) is not None:  # its own format, with settings of the agent beside the servers
        observed["rendered-mcp-file"] = sha256_hex(adapter.render_mcp(agent, servers))
    own = targets_context(prepared.visible)
    if own:
        observed["target-context"] = ",".join(own)[:1000]
    if own and agent.options.get(READS_CONTEXT) is True and agent.options.get(TARGETS_OWN) != "keep":
        raise DeliveryError(
            Status.CONTAMINATED,
            f"the target itself holds {', '.join(own[:5])}, which would steer every arm; "
            f"register agent.options.{TARGETS_OWN}: keep, or leave the task out",
        )
    index_s = None
    if arm.provider is not None:
        table["PROVIDER"] = arm.provider.folder
        observed["provider"] = tree_digest(Path(arm.provider.folder), exclude=IGNORED)
        if observed["provider"] != arm.provider.tree:
            raise DeliveryError(
                Status.SETUP_FAILURE, f"provider {arm.provider.name} changed while the run was going on"
            )
        write_context(workspace, arm.provider)
        index_s = await _index(sandbox, arm.provider, table)
    _check_untouched(prepared, workspace, arm.provider)
    rendered = adapter.render_mcp(agent, expand(servers, table))
    for name in ("GATEWAY", "TOKEN"):  # settings of the agent beside the servers
        rendered = rendered.replace(f"${{{name}}}".encode(), table[name].encode())
    place = Place(sandbox.workspace, rendered)
    await sandbox.put_file(table["MCP_FILE"], place.mcp)
    for name, text in invocation.files.items():
        await sandbox.put_file(f"{sandbox.home}/{name}", expand(text, table).encode())
    environment = sandbox.inside_path(prepared.environment.root)
    env = {**task_env(prepared.task, prepared, sandbox.workspace, environment=environment), **invocation.env}
    return Delivered(
        argv=tuple(expand(list(invocation.argv), table)),
        env={name: expand(value, table) for name, value in env.items()},
        stdin=invocation.stdin,
        observed=observed,
        index_s=index_s,
        place=place,
    )


def write_context(workspace: Path, provider: Provider) -> None:
    """Lay the declared context files into the workspace; one that exists there already is refused."""
    for name, data in provider.context.items():
        target = workspace / name
        if target.exists() or target.is_symlink():
            raise DeliveryError(Status.CONTAMINATED, f"context file {name} stands in the task's own tree already")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def remove_context(workspace: Path, provider: Provider | None) -> None:
    """Take the context files out again where the agent left them as they were: they are no work of its."""
    for name, data in (provider.context if provider else {}).items():
        target = workspace / name
        if target.is_file() and not target.is_symlink() and target.read_bytes() == data:
            target.unlink()
            parent = target.parent
            while parent != workspace and not any(parent.iterdir()):
                parent.rmdir()
                parent = parent.parent


async def _index(sandbox: Sandbox, provider: Provider, table: Mapping[str, str]) -> float | None:
    index = provider.config.index
    if index is None:
        return None
    argv = expand(list(index.command), table)
    env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    result = await sandbox.exec(argv, env=env, cwd=sandbox.workspace, timeout_s=index.timeout_s)
    if result.timed_out:
        raise DeliveryError(Status.SETUP_FAILURE, f"index of {provider.name}: stopped after {index.timeout_s:g} s")
    if result.exit_code != 0:
        tail = result.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["(no message)"]
        raise DeliveryError(Status.SETUP_FAILURE, f"index of {provider.name}: exit {result.exit_code}: {tail[0][:300]}")
    state = sandbox.host_path(table["STATE"])
    size = sum(path.lstat().st_size for path in state.rglob("*") if path.is_file())
    if size > index.max_bytes:
        message = f"index of {provider.name}: {size} bytes, allowed are {index.max_bytes}"
        raise DeliveryError(Status.SETUP_FAILURE, message)
    return result.duration_s


def _check_untouched(prepared: Prepared, workspace: Path, provider: Provider | None) -> None:
    """Before the agent starts the workspace is the task's own plus the declared context files, to the byte."""
    declared = set(provider.context) if provider else set()
    changed = [change.path for change in capture(prepared.visible, workspace).changes if change.path not in declared]
    if changed:
        name = provider.name if provider else "the set-up"
        raise DeliveryError(Status.CONTAMINATED, f"{name} changed what it did not declare: {', '.join(changed[:5])}")
