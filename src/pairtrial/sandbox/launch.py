"""What a command is, how it is handed to the spawner, and what its keeper's words mean."""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pairtrial.core.errors import SandboxError
from pairtrial.sandbox._client import spawn
from pairtrial.sandbox.protocol import ExecResult, LimitName
from pairtrial.sandbox.streams import Capture


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything about a command but its input, its output and its deadline."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None = None
    cgroups: tuple[str, ...] = ()
    """Control groups to enter before the command starts."""
    netns: int | None = None
    """Descriptor of a network namespace to enter."""
    user: int | None = None
    """User and group to become (root only)."""
    rlimits: tuple[tuple[int, int], ...] = ()
    """Pairs of a ``resource.RLIMIT_…`` number and a value."""
    pass_fds: tuple[tuple[int, int], ...] = ()
    """Pairs of a descriptor here and its number in the command (3 to 99)."""
    spared: tuple[str, ...] = ()
    """Names of processes that do not get the TERM before the KILL: helpers whose end would end the command too."""
    on_end: Callable[[ExecResult], ExecResult] | None = None
    """Called with the result when all is over; may say more about it, or raise `SandboxError`."""
    watch: Callable[[], LimitName | None] | None = None
    """Called every now and then while the command runs; names a limit that was passed, and the command is killed."""
    on_lost: Callable[[], tuple[str, ...]] | None = None
    """Called when the command killed its own keeper: kills what is left by other means, gives the names."""


class Ends(NamedTuple):
    """Our ends of a command's pipes, and the socket to its keeper."""

    stdin: int
    stdout: int
    stderr: int
    control: socket.socket


def open_command(launch: Launch) -> Ends:
    """Have the spawner start a command; raises `SandboxError` when this machine has no room for one more."""
    request: dict[str, Any] = {
        "argv": list(launch.argv),
        "env": dict(launch.env),
        "cwd": launch.cwd,
        "cgroups": list(launch.cgroups),
        "netns": None,
        "user": launch.user,
        "rlimits": [list(pair) for pair in launch.rlimits],
        "spared": list(launch.spared),
        "pass": [[index, pair[1]] for index, pair in enumerate(launch.pass_fds)],
    }
    extra = [pair[0] for pair in launch.pass_fds]
    if launch.netns is not None:
        request["netns"] = len(extra)
        extra.append(launch.netns)
    ours: list[int] = []
    theirs: list[int] = []
    try:
        for reading in (False, True, True):
            read, write = os.pipe()
            ours.append(read if reading else write)
            theirs.append(write if reading else read)
        control, far = socket.socketpair()
        ours.append(control.detach())
        theirs.append(far.detach())
        spawn(request, [*theirs, *extra])
    except BaseException as fault:
        for number in ours:
            os.close(number)
        if isinstance(fault, OSError):
            raise SandboxError(f"cannot start a process: {fault}", slug="spawn-failed") from fault
        raise
    finally:
        for number in theirs:
            os.close(number)
    return Ends(ours[0], ours[1], ours[2], socket.socket(fileno=ours[3]))


def outcome(
    launch: Launch,
    messages: Sequence[Mapping[str, Any]],
    *,
    out: Capture,
    err: Capture,
    limit: LimitName | None,
    pipe_held: bool,
    duration_s: float,
) -> ExecResult:
    """The result of a command from what its keeper said."""
    merged: dict[str, Any] = {}
    for message in messages:
        merged.update(message)
    code, number, notes, stderr = None, None, [], bytes(err.kept)
    if "failed" in merged:
        code = 127 if merged["failed"][0] == errno.ENOENT else 126
        stderr += f"pairtrial: cannot start {launch.argv[0]}: {merged['failed'][1]}\n".encode()
    elif "ended" in merged:
        status = int(merged["ended"])
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
        else:
            code = os.WEXITSTATUS(status)
    else:
        number = signal.SIGKILL.value
    if "lost" in merged:
        notes.append("the keeper of this command was killed from inside")
    if pipe_held:
        notes.append("a process outside the tree kept the output open")
    if merged.get("clean") is False:
        notes.append("some processes could not be killed")
    return ExecResult(
        exit_code=code,
        signal=number,
        stdout=bytes(out.kept),
        stderr=stderr,
        truncated=out.truncated or err.truncated or pipe_held,
        timed_out=limit == "wall",
        limit=limit,
        oom=False,
        duration_s=duration_s,
        survivors=tuple(name for name in merged.get("survivors", ()) if name not in launch.spared),
        note="; ".join(notes),
    )
