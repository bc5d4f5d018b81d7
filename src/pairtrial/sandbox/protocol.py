"""What every sandbox offers, whatever stands behind it.

The harness, the grader and the tests talk to `Sandbox` only. A backend keeps workspace, HOME and TMPDIR in host
folders below ``SandboxSpec.scratch``, so that the work an agent left behind can be read when its processes are dead.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol

OUTPUT_BYTES = 64 << 20
"""Bytes kept of each output stream unless a limit says otherwise."""


class Isolation(StrEnum):
    """What stands between the agent and the machine, weakest first."""

    NONE = "none"
    """A process group of its own; the host's files and network are in reach."""
    NAMESPACES = "namespaces"
    """Kernel namespaces: no other process, no network, no file but the declared ones."""
    CONTAINER = "container"
    """The same by a container engine, with an image of its own."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a sandbox may use; ``None`` leaves it unlimited."""

    wall_s: float
    """Longest time of one command; a call may ask for less."""
    memory_bytes: int | None = None
    pids: int | None = None
    cpus: float | None = None
    disk_bytes: int | None = None
    """Workspace, HOME and TMPDIR together."""
    output_bytes: int = OUTPUT_BYTES


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of the host made visible inside at ``target``."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What the plan and the cell want of one sandbox."""

    label: str
    """The cell and what the sandbox is for; recorded beside it, never visible inside."""
    scratch: Path
    """Folder for work trees; one owner file a sandbox tells a later start whether its maker still lives."""
    mounts: tuple[Mount, ...] = ()
    """Readable extras: agent runtime, provider, task environment."""
    network: Literal["none", "gateway", "open"] = "none"
    image: str | None = None
    limits: Limits = Limits(wall_s=3600.0)
    experiment: str = ""
    """Name of the experiment, for the labels."""


LimitName = Literal["wall", "memory", "pids", "disk"]


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How one command ended. A failing command is a result, never an exception."""

    exit_code: int | None
    """The code that the command returned; ``None`` when a signal ended it."""
    signal: int | None
    """The signal that ended it; ``None`` when it returned by itself, whatever its code."""
    stdout: bytes
    stderr: bytes
    truncated: bool
    """Some output was dropped: a stream passed its cap, or a line passed `streams.LINE_BYTES`."""
    timed_out: bool
    limit: LimitName | None
    """The limit that fired, if one did."""
    oom: bool
    """The kernel killed something in it for memory."""
    duration_s: float
    survivors: tuple[str, ...] = ()
    """Names of processes that outlived the command and were killed, as far as they could be seen."""
    note: str = ""
    """What else the record should say."""

    @property
    def ok(self) -> bool:
        """True when the command returned 0 in time."""
        return self.exit_code == 0 and not self.timed_out


LineCallback = Callable[[bytes], None]


class Process(Protocol):
    """A running command that can be talked to."""

    async def send(self, data: bytes) -> None:
        """Write to its stdin; silently drops what a command that has closed its stdin does not take."""

    async def close_stdin(self) -> None:
        """Give it the end of its input."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Lines of its stdout, without the line end."""

    async def wait(self) -> ExecResult:
        """Wait until it and everything that it started is gone."""

    async def kill(self) -> None:
        """End it and everything that it started; `wait` gives the result."""


class Sandbox(Protocol):
    """One place where commands of one rollout (or one grading) run."""

    kind: str
    """``local``, ``bubblewrap`` or ``docker``."""
    isolation: Isolation
    workspace: str
    """Absolute path as seen inside, as are ``home`` and ``tmp``."""
    home: str
    tmp: str

    @property
    def facts(self) -> Mapping[str, str]:
        """What the receipt says about this sandbox: versions, user, how each limit is enforced."""

    async def prepare(self) -> None:
        """Make it ready; raises `SandboxError`."""

    async def put_tree(self, source: Path, target: str) -> None:
        """Copy the content of a host folder to the inside path ``target``; links stay links and are never followed."""

    async def put_file(self, target: str, data: bytes, *, executable: bool = False) -> None:
        """Write one file; an existing one is replaced, a link on the way is refused."""

    async def get_tree(self, source: str, target: Path, *, max_bytes: int) -> tuple[str, ...]:
        """Copy an inside folder to a new host folder; gives the paths left out (devices, sockets, pipes)."""

    def host_path(self, inside: str) -> Path:
        """Where an inside path below workspace, HOME or TMPDIR lies on the host."""

    def inside_path(self, source: Path) -> str:
        """Where a host path below a mount's source is seen inside."""

    def mount_points(self, folder: str) -> frozenset[str]:
        """Names in an inside folder at or below which something is mounted; removing one on the host unmounts it."""

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
        """Run a command to its end and kill what it left; ``env`` is all it gets besides HOME and TMPDIR."""

    async def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        timeout_s: float,
        output_cap: int | None = None,
    ) -> Process:
        """The same, interactive."""

    async def serve_gateway(self, *, host_port: int | None = None, unix_socket: Path | None = None) -> str:
        """Let commands inside reach one server of the host; gives the URL to use inside."""

    async def kill(self) -> None:
        """End every process that was started in it."""

    async def destroy(self) -> None:
        """Kill, then remove everything; safe to call twice."""
