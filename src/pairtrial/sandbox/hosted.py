"""What the backends that start their commands as processes of this machine have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import anyio

from pairtrial.core.errors import SandboxUnavailableError
from pairtrial.sandbox import process
from pairtrial.sandbox.cgroups import Counters, Group, Hierarchies, find_hierarchies, group_name
from pairtrial.sandbox.folders import HostFolders
from pairtrial.sandbox.launch import Launch
from pairtrial.sandbox.process import HostProcess
from pairtrial.sandbox.protocol import ExecResult, LimitName, LineCallback, SandboxSpec

NOT_ENFORCED = "not enforced"


class HostedSandbox(HostFolders):
    """Runs commands through the process helper, in a control group where this machine has them."""

    overhead_pids = 0
    """Processes of ours that live in the group of every command."""
    overhead_bytes = 0

    def __init__(self, spec: SandboxSpec, kind: str) -> None:
        super().__init__(spec, kind)
        self._running: list[HostProcess] = []
        self.group: Group | None = None
        self._limit_facts: dict[str, str] = {}

    # ---- limits ------------------------------------------------------------------------------------------------
    def make_group(self, *, always: bool) -> None:
        """Make the control group; without one, limits fall back to what a process alone can be given."""
        limits = self.spec.limits
        wanted = {"memory": limits.memory_bytes, "pids": limits.pids, "cpu": limits.cpus}
        if self.base is None or not (always or any(value is not None for value in wanted.values())):
            return
        hierarchies = self.hierarchies()
        if hierarchies is not None:
            used = {name: place for name, place in hierarchies.parents.items() if name == "pids" or wanted[name]}
            if all(name in used for name, value in wanted.items() if value):
                self.group = Group(replace(hierarchies, parents=used), group_name(self.base.name))
                extra = self.overhead_bytes + (limits.disk_bytes or 0 if self.mounted else 0)
                self.group.make(limits, extra_memory=extra, extra_pids=self.overhead_pids)
        how = {
            "memory": f"control group v{self.group.version}" if self.group else "rlimit, each process by itself",
            "pids": f"control group v{self.group.version}" if self.group else self.pids_fallback,
            "cpu": f"control group v{self.group.version}" if self.group else NOT_ENFORCED,
        }
        loose = [name for name in wanted if wanted[name] is not None and how[name] == NOT_ENFORCED]
        if loose:
            raise SandboxUnavailableError(
                f"sandbox {self.kind}: a limit of {', '.join(loose)} needs a control group, and none can be made here",
                hint="leave the limit out of the plan, use docker, or run where control groups can be made",
                slug="limit-not-enforced",
            )
        self._limit_facts = {f"limit_{name}": f"{wanted[name]} ({how[name]})" for name in wanted if wanted[name]}
        if limits.disk_bytes is not None:
            kept_by = "sized tmpfs" if self.mounted else "looked at while commands run"
            self._limit_facts["limit_disk"] = f"{limits.disk_bytes} ({kept_by})"

    pids_fallback = NOT_ENFORCED

    def hierarchies(self) -> Hierarchies | None:
        """Where control groups can be made; None where they cannot."""
        return find_hierarchies()

    def rlimits(self) -> tuple[tuple[int, int], ...]:
        """Limits of each process by itself."""
        import resource

        found = [(resource.RLIMIT_CORE, 0)]
        limits = self.spec.limits
        if limits.memory_bytes is not None and self.group is None:
            found.append((resource.RLIMIT_DATA, limits.memory_bytes))
        if limits.disk_bytes is not None and not self.mounted:
            found.append((resource.RLIMIT_FSIZE, limits.disk_bytes))
        return tuple(found)

    def _look(self) -> LimitName | None:
        return None if self.watch is None else self.watch.look()

    def judge(self, result: ExecResult, before: Counters) -> ExecResult:
        """Say which limit fired."""
        after = before if self.group is None else self.group.counters()
        oom = after.oom_kills > before.oom_kills
        limit: LimitName | None = result.limit
        if limit is None and oom:
            limit = "memory"
        if limit is None and self.watch is not None and (self.watch.look() or self.watch.was_full):
            limit = "disk"
        if limit is None and after.pids_refused > before.pids_refused:
            limit = "pids"
        return replace(result, oom=oom, limit=limit)

    # ---- commands ----------------------------------------------------------------------------------------------
    def _launch(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Launch:
        raise NotImplementedError

    def _prepared(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Launch:
        launch = self._launch(argv, {**env, "HOME": self.home, "TMPDIR": self.tmp}, cwd)
        before = Counters() if self.group is None else self.group.counters()
        inner = launch.on_end
        if self.watch is not None:
            self.watch.was_full = False

        def end(result: ExecResult) -> ExecResult:
            return self.judge(inner(result) if inner else result, before)

        return replace(
            launch,
            cgroups=() if self.group is None else self.group.folders,
            rlimits=self.rlimits(),
            watch=None if self.watch is None else self._look,
            on_end=end,
        )

    async def exec(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        stdin: bytes = b"",
        timeout_s: float,
        on_stdout: LineCallback | None = None,
        output_cap: int | None = None,
    ) -> ExecResult:
        """Run a command to its end and kill what it left."""
        await self.settle()
        running = process.begin(
            self._prepared(argv, env, cwd),
            timeout_s=min(timeout_s, self.spec.limits.wall_s),
            stdin=stdin,
            lines=on_stdout is not None,
            output_cap=self.spec.limits.output_bytes if output_cap is None else output_cap,
        )
        self._running.append(running)
        try:
            return await running.wait(on_stdout)
        finally:
            self._running.remove(running)

    async def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        timeout_s: float,
        output_cap: int | None = None,
    ) -> HostProcess:
        """Start a command that can be talked to."""
        self._running = [one for one in self._running if not one.ended]
        await self.settle()
        running = await process.start(
            self._prepared(argv, env, cwd),
            timeout_s=min(timeout_s, self.spec.limits.wall_s),
            output_cap=self.spec.limits.output_bytes if output_cap is None else output_cap,
        )
        self._running.append(running)
        return running

    # ---- end ---------------------------------------------------------------------------------------------------
    async def kill(self) -> None:
        """End every process that was started in it."""
        for running in tuple(self._running):
            await running.kill()
        if self.group is not None:
            await anyio.to_thread.run_sync(self.group.kill)

    async def destroy(self) -> None:
        """Kill, then remove everything."""
        with anyio.CancelScope(shield=True):
            await self.kill()
            self._running.clear()
            if self.group is not None:
                await anyio.to_thread.run_sync(self.group.remove)
                self.group = None
            await self.remove_folders()
