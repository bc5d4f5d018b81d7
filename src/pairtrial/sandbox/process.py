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
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any

import anyio

from pairtrial.core.errors import SandboxError
from pairtrial.sandbox.launch import Launch, open_command, outcome
from pairtrial.sandbox.protocol import OUTPUT_BYTES, ExecResult, LimitName, LineCallback
from pairtrial.sandbox.streams import Capture

WATCH_S = 0.25
"""Shortest time between two looks at what only a look can tell (the disk)."""
GRACE_S = 2.0
"""Time between TERM and KILL."""
PIECE = 1 << 16
ORPHANED_PIPE_S = 2.0
"""How long to wait for the end of a pipe once every process that we know of is dead."""


class HostProcess:
    """A running command with its pipes; made by `start`.

    Nothing runs in the background: whichever coroutine waits for something serves all pipes meanwhile. A command whose
    output nobody asks for is held back by its full pipe.
    """

    def __init__(self, launch: Launch, *, timeout_s: float, output_cap: int, lines: bool, interactive: bool) -> None:
        self.launch = launch
        self._deadline = time.monotonic() + timeout_s
        self._began = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._lock = anyio.Lock()
        self._out = Capture(output_cap, lines=lines)
        self._err = Capture(output_cap, lines=False)
        self._input: deque[memoryview] = deque()
        self._input_open = True
        self._close_when_sent = not interactive
        self._control_text = b""
        self._messages: list[dict[str, Any]] = []
        self._gone_at: float | None = None
        self._limit: LimitName | None = None
        self._watch_at = 0.0
        self._killed = False
        self._iterated = False
        self._tries = 0
        self._result: ExecResult | None = None
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

    # ---- what callers do ---------------------------------------------------------------------------------------
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

    async def send(self, data: bytes) -> None:
        """Write to stdin; what a command that closed its stdin does not take is dropped."""
        self._offer(data)
        await self._serve_until(lambda: not self._input)

    async def close_stdin(self) -> None:
        """Send what is waiting, then the end of input."""
        await self._serve_until(lambda: not self._input)
        self._close_input()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        lines = self._out.lines
        if lines is None:
            raise SandboxError("this process was started without line splitting", slug="no-lines")
        self._iterated = True
        while True:
            await self._serve_until(lambda: bool(lines) or self._done)
            while lines:
                yield lines.popleft()
            if self._done:
                return

    async def wait(self, on_stdout: LineCallback | None = None) -> ExecResult:
        """Serve until the command and all that it started are gone."""
        lines = self._out.lines
        try:
            while not self._done:
                await self._serve_until(lambda: self._done or bool(lines))
                while lines and not self._iterated:
                    line = lines.popleft()
                    if on_stdout is not None:
                        on_stdout(line)
                if lines:  # somebody else iterates
                    await anyio.sleep(0)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.kill()
            raise
        while on_stdout is not None and lines and not self._iterated:
            on_stdout(lines.popleft())
        return self.result

    async def kill(self) -> None:
        """KILL the whole tree now, and wait until it is gone."""
        self._killed = True
        self._tell(b"K\n")
        if self._out.lines is not None and not self._done:
            self._out.lines.clear()
        await self._serve_until(lambda: self._done)

    @property
    def ended(self) -> bool:
        """True when everything is gone and `result` can be read."""
        return self._done

    @property
    def result(self) -> ExecResult:
        """The result; only after `wait`."""
        if self._result is None:
            raise SandboxError("the process is still running", slug="not-ended")
        return self._result

    # ---- the machinery -----------------------------------------------------------------------------------------
    @property
    def _done(self) -> bool:
        return self._result is not None

    async def _serve_until(self, condition: Any) -> None:
        while not condition() and not self._done:
            async with self._lock:
                if condition() or self._done:
                    return
                await self._step()

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
        now = time.monotonic()
        if self._limit is None and self._gone_at is None:
            self._check_limits(now)
        open_pipes = {"stdout", "stderr"} & self._fds.keys()
        if self._gone_at is not None and (not open_pipes or now - self._gone_at > ORPHANED_PIPE_S):
            self._finish(bool(open_pipes))

    def _check_limits(self, now: float) -> None:
        if now >= self._deadline:
            self._limit = "wall"
            self._tell(b"T%f\n" % GRACE_S)
        elif self.launch.watch is not None and now >= self._watch_at:
            self._limit = self.launch.watch()
            spent = time.monotonic() - now
            self._watch_at = now + max(WATCH_S, 20 * spent)
            if self._limit is not None:
                self._tell(b"K\n")

    def _patience(self) -> float | None:
        if self._gone_at is not None:
            return ORPHANED_PIPE_S
        if self._limit is not None or self._killed:
            return 60.0
        until = self._deadline if self.launch.watch is None else min(self._deadline, self._watch_at)
        return max(0.0, until - time.monotonic())

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

    def _offer(self, data: bytes) -> None:
        if not data or not self._input_open:
            return
        self._input.append(memoryview(data))
        if self.pid is not None:
            self._watch_input()

    def _watch_input(self) -> None:
        if self._input:
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
        process._offer(stdin)
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
)  # fmt: skip


def host_env(**additions: str) -> dict[str, str]:
    """Environment for our own tools on the host: an allow-list of ours plus ``additions``."""
    env = {name: os.environ[name] for name in _HOST_VARIABLES if name in os.environ}
    return {"LC_ALL": "C.UTF-8", **env, **additions}
