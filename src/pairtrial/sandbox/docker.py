"""Isolation by a container of the local Docker engine.

One container a sandbox, one ``exec`` a command. The container's own first processes belong to a user that is not the
command's, so a command cannot end them. Workspace, HOME and TMPDIR are folders of this machine, mounted in: the
engine's archive calls lose work silently where a tmpfs is mounted.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from pairtrial.core.errors import SandboxError, SandboxUnavailableError
from pairtrial.sandbox.attached import AttachedProcess, Attachment, Ending
from pairtrial.sandbox.cgroups import Counters
from pairtrial.sandbox.container import KEEPER, Place, container_config
from pairtrial.sandbox.custody import Custody
from pairtrial.sandbox.engine import Engine, engine, find_image, speaking
from pairtrial.sandbox.folders import HostFolders
from pairtrial.sandbox.identity import HOME, TMP, WORKSPACE, user_of_commands, write_identity
from pairtrial.sandbox.namespaces import Namespaces, make_namespaces
from pairtrial.sandbox.network import FORWARDER, GATEWAY_PORT, RUN_FOLDER, Relay
from pairtrial.sandbox.owner import labels_of
from pairtrial.sandbox.protocol import ExecResult, Isolation, LimitName, LineCallback, SandboxSpec
from pairtrial.sandbox.wrapper import WRAP_STREAM

_seen: set[tuple[str, str]] = set()


class DockerSandbox(HostFolders):
    """Commands run in one container."""

    isolation = Isolation.CONTAINER
    workspace, home, tmp = WORKSPACE, HOME, TMP

    def __init__(self, spec: SandboxSpec) -> None:
        super().__init__(spec, "docker")
        if spec.image is None:
            raise SandboxUnavailableError("the sandbox 'docker' needs an image", slug="no-image")
        self.user = user_of_commands()
        self.owner = self.user if os.geteuid() == 0 else None
        self.image_id = ""
        self._engine: Engine | None = None
        self._container: str | None = None
        self._custody: Custody | None = None
        self._relay: Relay | None = None
        self._spaces = Namespaces()
        self._foreign: set[str] = set()
        """Variables that image and engine would add to a command's environment."""

    @property
    def engine(self) -> Engine:
        """The engine; only after `prepare`."""
        if self._engine is None:
            raise SandboxError(f"sandbox {self.spec.label}: used before prepare or after destroy", slug="not-prepared")
        return self._engine

    @property
    def custody(self) -> Custody:
        """Processes of the container; only after `prepare`."""
        if self._custody is None:
            raise SandboxError(f"sandbox {self.spec.label}: used before prepare or after destroy", slug="not-prepared")
        return self._custody

    @property
    def facts(self) -> Mapping[str, str]:
        """What the receipt says."""
        known = self._engine
        limits = self.spec.limits
        facts = {
            "sandbox": self.kind,
            "isolation": self.isolation.value,
            "paths": "the same in every rollout",
            "network": self.spec.network,
            "image": self.spec.image or "",
            "image_id": self.image_id,
            "user": str(self.user),
        }
        if known is not None:
            facts["engine"] = f"docker {known.version}, {known.storage}, control groups v{known.cgroup_version}"
            facts["seccomp"] = next((item for item in known.security if "seccomp" in item), "none")
        for name, value in (("memory", limits.memory_bytes), ("pids", limits.pids), ("cpu", limits.cpus)):
            if value is not None:
                facts[f"limit_{name}"] = f"{value} (engine)"
        if limits.disk_bytes is not None:
            kept_by = "sized tmpfs" if self.mounted else "looked at while commands run"
            facts["limit_disk"] = f"{limits.disk_bytes} ({kept_by})"
        return facts

    # ---- life --------------------------------------------------------------------------------------------------
    async def prepare(self) -> None:
        """Make the folders, the container and start it."""
        self._engine = await anyio.to_thread.run_sync(engine)
        try:
            await anyio.to_thread.run_sync(self._make)
            if (key := (self._engine.socket_path, str(self.spec.scratch))) not in _seen:
                await self._prove()
                _seen.add(key)
        except BaseException:
            await self.destroy()
            raise

    def _make(self) -> None:
        self.image_id, variables = find_image(self.engine, str(self.spec.image))
        self._foreign = {*variables, "HOSTNAME", "TERM", "PATH", "HOME"}
        self.make_folders()
        write_identity(self.control, self.user)
        if self.spec.network == "gateway":
            (self.control / "run").mkdir(mode=0o755)
            (self.control / "run" / "forward.py").write_bytes(FORWARDER.read_bytes())
        labels = labels_of({"label": self.spec.label, "experiment": self.spec.experiment}, self.root_name)
        config = container_config(self.spec, self.image_id, self._places(), labels, mounted=self.mounted)
        with speaking("making a container"):
            made = self.engine.api.create_container_from_config(config, name=f"pairtrial-{self.root_name}")
            self._container = made["Id"]
        with speaking("starting a container"):
            self.engine.api.start(self._container)
        self._custody = Custody(self.engine, self._container)

    @property
    def root_name(self) -> str:
        """Name of our folder: random, and the same length every time."""
        return self.control.parent.name

    def _places(self) -> list[Place]:
        names = (("w", WORKSPACE), ("h", HOME), ("t", TMP))
        places = [Place(self.root / name, inside, writable=True) for name, inside in names]
        places += [Place(self.control / name, f"/etc/{name}") for name in ("passwd", "group", "nsswitch.conf")]
        places += [Place(mount.source.absolute(), mount.target, mount.writable) for mount in self.spec.mounts]
        if self.spec.network == "gateway":
            places.append(Place(self.control / "run", RUN_FOLDER))
        return places

    async def _prove(self) -> None:
        """Once an engine: it must see the folders of this machine, and commands must get through."""
        await self.put_file(f"{TMP}/.probe", b"seen")
        result = await self.exec(["cat", f"{TMP}/.probe"], env={"PATH": "/usr/bin:/bin"}, timeout_s=60)
        self.host_path(f"{TMP}/.probe").unlink()
        if result.stdout != b"seen":
            raise SandboxUnavailableError(
                "the engine does not see the folders of this machine",
                hint=f"name a scratch folder that it shares ({result.stderr.decode(errors='replace').strip()[:200]})",
                slug="remote-engine",
            )

    # ---- commands ----------------------------------------------------------------------------------------------
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
        process = await self._begin(argv, env, cwd, timeout_s, output_cap, on_stdout is not None, interactive=False)
        if stdin:
            process.offer(stdin)
        else:
            process._close_input()
        return await process.wait(on_stdout)

    async def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        timeout_s: float,
        output_cap: int | None = None,
    ) -> AttachedProcess:
        """Start a command that can be talked to."""
        return await self._begin(argv, env, cwd, timeout_s, output_cap, True, interactive=True)

    async def _begin(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str | None,
        timeout_s: float,
        output_cap: int | None,
        lines: bool,
        *,
        interactive: bool,
    ) -> AttachedProcess:
        await self.settle()
        mark = secrets.token_hex(12)
        own = {**env, "HOME": HOME, "TMPDIR": TMP}
        foreign = " ".join(sorted(self._foreign - own.keys()))
        command = ["/bin/sh", "-c", WRAP_STREAM, "sh", mark, foreign, cwd or WORKSPACE, *argv]
        if self.watch is not None:
            self.watch.was_full = False
        custody = self.custody
        before = custody.inmates.counters()
        exec_id, (connection, first) = await anyio.to_thread.run_sync(self._attach, command, own)
        process = AttachedProcess(
            Attachment(
                connection=connection,
                first=first,
                mark=mark.encode(),
                signal_all=partial(custody.signal, exec_id),
                clear=partial(custody.clear, exec_id),
                explain=partial(self._explain, exec_id, before),
                watch=None if self.watch is None else self.watch.look,
            ),
            timeout_s=min(timeout_s, self.spec.limits.wall_s),
            output_cap=self.spec.limits.output_bytes if output_cap is None else output_cap,
            lines=lines,
            interactive=interactive,
        )
        custody.admit(exec_id, process)
        return process

    def _attach(self, command: list[str], env: dict[str, str], user: int | None = None) -> Any:
        user = self.user if user is None else user
        with speaking("starting a command"):
            made = self.engine.api.exec_create(
                self._container, command, stdin=True, user=f"{user}:{user}", environment=_pairs(env), workdir="/"
            )
        return made["Id"], self.engine.attach(made["Id"])

    # ---- ends of commands --------------------------------------------------------------------------------------
    async def _explain(self, exec_id: str, before: Counters, ending: Ending) -> ExecResult:
        after = self.custody.inmates.counters()
        oom = after.oom_kills > before.oom_kills
        note = ""
        code, number = ending.code, None
        if code is not None and 128 < code <= 192 and ending.message:
            number, code = code - 128, None
        elif code is None:
            number = signal.SIGKILL.value
            if not ending.killed and ending.limit is None:
                note, lost_for_memory = await anyio.to_thread.run_sync(self.custody.why_gone, exec_id)
                oom = oom or lost_for_memory
        limit: LimitName | None = ending.limit
        if limit is None and oom:
            limit = "memory"
        if limit is None and self.watch is not None and (self.watch.look() or self.watch.was_full):
            limit = "disk"
        if limit is None and after.pids_refused > before.pids_refused:
            limit = "pids"
        return ExecResult(
            exit_code=code,
            signal=number,
            stdout=ending.stdout,
            stderr=ending.stderr,
            truncated=ending.truncated,
            timed_out=ending.limit == "wall",
            limit=limit,
            oom=oom,
            duration_s=ending.duration_s,
            survivors=ending.survivors,
            note=note,
        )

    # ---- the rest ----------------------------------------------------------------------------------------------
    async def serve_gateway(self, *, host_port: int | None = None, unix_socket: Path | None = None) -> str:
        """Answer on a fixed loopback port inside with what a server of the host says."""
        if self.spec.network != "gateway":
            raise SandboxError(f"the network of this sandbox is {self.spec.network!r}, not 'gateway'", slug="gateway")
        if self._relay is not None:
            raise SandboxError("the gateway is served already", slug="gateway")
        if os.geteuid() == 0:
            number = os.open(f"/proc/{self.custody.inmates.init}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._spaces = make_namespaces(enter_net=number, port=GATEWAY_PORT)
            finally:
                os.close(number)
            assert self._spaces.listener is not None
            self.custody.gateway = True
            self._relay = Relay.to(self._spaces.listener.dup(), host_port=host_port, unix_socket=unix_socket)
        else:
            place = self.control / "run" / "g"
            self.custody.gateway = True
            self._relay = Relay.at(place, host_port=host_port, unix_socket=unix_socket)
            command = ["python3", f"{RUN_FOLDER}/forward.py", str(GATEWAY_PORT), f"{RUN_FOLDER}/g"]
            await anyio.to_thread.run_sync(self._detach, command)
        return f"http://127.0.0.1:{GATEWAY_PORT}"

    def _detach(self, command: list[str]) -> None:
        """Run something of ours beside the commands, as the container's own user: no command can end it."""
        with speaking("starting the forwarder"):
            made = self.engine.api.exec_create(self._container, command, user=f"{KEEPER}:{KEEPER}", workdir="/")
            self.engine.api.exec_start(made["Id"], detach=True)

    async def kill(self) -> None:
        """End every process that was started in it."""
        if self._custody is not None:
            await self._custody.kill_all()

    async def destroy(self) -> None:
        """Remove the container with all in it, then the folders."""
        with anyio.CancelScope(shield=True):
            if self._relay is not None:
                self._relay.close()
                self._relay = None
            self._spaces.close()
            try:
                if self._container is not None:
                    await anyio.to_thread.run_sync(self._remove_container)
                if self._custody is not None:
                    await self._custody.wait_all()
            finally:  # an engine that is gone keeps its container until the next start's sweep, but not our folders
                self._custody = None
                await self.remove_folders()
                self._engine = None

    def _remove_container(self) -> None:
        from docker import errors

        container, self._container = self._container, None
        with speaking("removing a container"), contextlib.suppress(errors.NotFound):
            self.engine.api.remove_container(container, force=True, v=True)


def _pairs(env: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in env.items()]
