"""Running the prompt's example on a tree of the target."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.to_thread

from pairtrial.grading.observe import link_modules
from pairtrial.grading.qualify.rounds import Where
from pairtrial.tasks.prompts import command_for
from pairtrial.tasks.workspace import Prepared, task_env

TIMEOUT_S = 120.0


async def run_example(prepared: Prepared, tree: Path, code: str, where: Where) -> str | None:
    """None when the example runs through on ``tree``, else the last line of what it said."""
    command = command_for(prepared.task, code)
    sandbox = where.sandbox(prepared, f"example {prepared.task.id}")
    try:
        await sandbox.prepare()
        await sandbox.put_tree(tree, sandbox.workspace)
        inside = sandbox.inside_path(prepared.environment.root)
        laid = sandbox.host_path(sandbox.workspace)
        await anyio.to_thread.run_sync(link_modules, prepared, inside, laid)
        if command.file is not None:
            await sandbox.put_file(f"{sandbox.workspace}/{command.file}", command.text.encode())
        env = task_env(prepared.task, prepared, sandbox.workspace, environment=inside)
        done = await sandbox.exec(command.argv, env=env, cwd=sandbox.workspace, timeout_s=TIMEOUT_S)
    finally:
        with anyio.CancelScope(shield=True):
            await sandbox.destroy()
    if done.ok:
        return None
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return "took too long" if done.timed_out else said[-1] if said else f"exit code {done.exit_code}"
