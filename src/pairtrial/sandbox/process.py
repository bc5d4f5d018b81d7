"""The one process helper: every command that pairtrial starts goes through here.

Argument lists only, an environment that holds nothing but what is given, a session of its own, a deadline, TERM then
KILL for the whole tree (descendants that called setsid included), both pipes drained with a cap, bytes and not text.
What does the forking is `_spawner`, a small program that survives neither the harness nor its commands.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import anyio

from pairtrial.sandbox.launch import Launch, open_command, outcome
from pairtrial.sandbox.protocol import OUTPUT_BYTES, ExecResult, LineCallback
from pairtrial.sandbox.stepped import GRACE_S, PIECE, SteppedProcess

ORPHANED_PIPE_S = 2.0
"""How long to wait for the end of a pipe once every process that we know of is dead."""


class HostProcess(SteppedProcess):
    """A running command of this machine; made by `start` and `begin`."""

    def __init__(self, launch: Launch, *, timeout_s: float, output_cap: int, lines: bool, interactive: bool) -> None:
        super().__init__(timeout_s=timeout_s, output_cap=output_cap, lines=lines, interactive=interactive)
        self.launch = launch
        self._watch = launch.watch
        self._control_text = b""
        self._messages: list[dict[str, Any]] = []
        self._gone_at: float | None = None
        self._killed = False
        self._tries = 0
        self._fds: dict[str, int] = {}
        self._control: socket.socket
        self._spawn()

    # ---- start -------------------------------------------------------------------------------------------------
    def _spawn(self) -> None:
        self._tries += 1
        if self._tries > 1:
            self._release()
            self._selector = selectors.DefaultSelector()
        ends = open_command(self.launch)
        self._control = ends.control
        self._fds = {"stdin": ends.stdin, "stdout": ends.stdout, "stderr": ends.stderr}
        if not self._input_open:
            os.close(self._fds.pop("stdin"))
        self._control.setblocking(False)
        for number in self._fds.values():
            os.set_blocking(number, False)
        for name in ("stdout", "stderr"):
            self._selector.register(self._fds[name], selectors.EVENT_READ, name)
        self._selector.register(self._control, selectors.EVENT_READ, "control")

    @property
    def pid(self) -> int | None:
        """Process id of the command on the host, once it is known."""
        for message in self._messages:
            if "started" in message:
                return int(message["started"])
        return None

    async def started(self) -> int | None:
        """Wait until the command runs; ``None`` when it could not be started."""
        await self._serve_until(lambda: len(self._messages) > 1 or self._gone_at is not None)
        return self.pid

    async def _kill_now(self) -> None:
        self._killed = True
        self._tell(b"K\n")

    # ---- the machinery -----------------------------------------------------------------------------------------
    async def _step(self) -> None:
        with anyio.move_on_after(self._patience()):
            await anyio.wait_readable(self._selector.fileno())
        for key, _ in self._selector.select(0):
            if key.data == "control":
                if self._read_control():
                    return
            elif key.data not in self._fds:
                continue  # what the control message said has closed it since `select` looked
            elif key.data == "stdin":
                self._write_input()
            else:
                self._read(key.data)
        if self._gone_at is None:
            if (limit := self._new_limit()) is not None:
                self._tell(b"T%f\n" % GRACE_S if limit == "wall" else b"K\n")
            return
        open_pipes = {"stdout", "stderr"} & self._fds.keys()
        if not open_pipes or time.monotonic() - self._gone_at > ORPHANED_PIPE_S:
            self._finish(bool(open_pipes))

    def _patience(self) -> float:
        if self._gone_at is not None:
            return ORPHANED_PIPE_S
        return 60.0 if self._limit is not None or self._killed else self._until_limit()

    def _read(self, name: str) -> None:
        capture = self._out if name == "stdout" else self._err
        for _ in range(16):
            try:
                piece = os.read(self._fds[name], PIECE)
            except BlockingIOError:
                return
            if not piece:
                self._selector.unregister(self._fds[name])
                os.close(self._fds.pop(name))
                return
            capture.feed(piece)

    def _read_control(self) -> bool:
        """Take what the keeper says; True when the spawner had died and the command was asked for again."""
        try:
            piece = self._control.recv(PIECE)
        except BlockingIOError:
            return False
        except OSError:
            piece = b""
        self._control_text += piece
        *whole, self._control_text = self._control_text.split(b"\n")
        for line in whole:
            self._messages.append(json.loads(line))
            if "started" in self._messages[-1]:
                self._watch_input()
        if piece:
            return False
        if not self._messages and self._tries < 3:  # not even a keeper: nothing was started
            self._spawn()
            return True
        self._selector.unregister(self._control)
        self._gone_at = time.monotonic()
        self._close_input()
        if not any("clean" in message or "failed" in message for message in self._messages):
            self._messages.append({"lost": True})
            if self.launch.on_lost is not None:
                self._messages.append({"survivors": self.launch.on_lost()})
        return False

    def _tell(self, words: bytes) -> None:
        with contextlib.suppress(OSError):
            self._control.send(words)

    def _watch_input(self) -> None:
        if self._input and self.pid is not None:
            with contextlib.suppress(KeyError):
                self._selector.register(self._fds["stdin"], selectors.EVENT_WRITE, "stdin")

    def _write_input(self) -> None:
        try:
            while self._input:
                sent = os.write(self._fds["stdin"], self._input[0][:PIECE])
                self._input[0] = self._input[0][sent:]
                if not self._input[0]:
                    self._input.popleft()
        except BlockingIOError:
            return
        except OSError:  # the command closed its stdin
            self._input.clear()
            self._close_input()
            return
        if self._close_when_sent:
            self._close_input()
        else:
            self._selector.unregister(self._fds["stdin"])

    def _close_input(self) -> None:
        self._input.clear()
        self._input_open = False
        if (number := self._fds.pop("stdin", None)) is not None:
            with contextlib.suppress(KeyError):
                self._selector.unregister(number)
            os.close(number)

    def _release(self) -> None:
        for number in self._fds.values():
            os.close(number)
        self._fds.clear()
        self._selector.close()
        self._control.close()

    def _finish(self, pipe_held: bool) -> None:
        for capture in (self._out, self._err):
            capture.finish()
        result = outcome(
            self.launch,
            self._messages,
            out=self._out,
            err=self._err,
            limit=self._limit,
            pipe_held=pipe_held,
            duration_s=time.monotonic() - self._began,
        )
        self._close_input()
        self._release()
        self._result = result
        if self.launch.on_end is not None:
            self._result = self.launch.on_end(result)


def begin(
    launch: Launch,
    *,
    timeout_s: float,
    stdin: bytes = b"",
    lines: bool = False,
    output_cap: int = OUTPUT_BYTES,
) -> HostProcess:
    """Start a command that gets ``stdin`` and nothing more; `HostProcess.wait` runs it to its end."""
    process = HostProcess(launch, timeout_s=timeout_s, output_cap=output_cap, lines=lines, interactive=False)
    if stdin:
        process.offer(stdin)
    else:
        process._close_input()
    return process


async def start(launch: Launch, *, timeout_s: float, output_cap: int = OUTPUT_BYTES) -> HostProcess:
    """Start a command and keep its stdin open; stdout can be iterated line by line."""
    return HostProcess(launch, timeout_s=timeout_s, output_cap=output_cap, lines=True, interactive=True)


async def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | os.PathLike[str] | None = None,
    stdin: bytes = b"",
    timeout_s: float,
    on_stdout: LineCallback | None = None,
    output_cap: int = OUTPUT_BYTES,
) -> ExecResult:
    """Run one of our own tools (git, uv) on the host. ``env`` is the whole environment; see `host_env`."""
    launch = Launch(tuple(argv), dict(env), None if cwd is None else os.fspath(cwd))
    running = begin(launch, timeout_s=timeout_s, stdin=stdin, lines=on_stdout is not None, output_cap=output_cap)
    return await running.wait(on_stdout)


def run_blocking(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | os.PathLike[str] | None = None,
    stdin: bytes = b"",
    timeout_s: float,
) -> ExecResult:
    """`run` for code outside an event loop."""
    return anyio.run(partial(run, argv, env=env, cwd=cwd, stdin=stdin, timeout_s=timeout_s))


_HOST_VARIABLES = (
    "PATH", "HOME", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
    "PIP_INDEX_URL", "PIP_CERT", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_CACHE_DIR", "XDG_CACHE_HOME",
    "NODE_EXTRA_CA_CERTS", "NPM_CONFIG_CAFILE", "npm_config_cafile", "NPM_CONFIG_REGISTRY", "npm_config_registry",
)  # fmt: skip


def host_env(**additions: str) -> dict[str, str]:
    """Environment for our own tools on the host: an allow-list of ours plus ``additions``."""
    env = {name: os.environ[name] for name in _HOST_VARIABLES if name in os.environ}
    return {"LC_ALL": "C.UTF-8", **env, **additions}
