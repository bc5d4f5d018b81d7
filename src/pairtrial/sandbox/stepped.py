"""A running command served by whoever waits for it: what processes of every backend have in common."""

from __future__ import annotations

import selectors
import time
from collections import deque
from collections.abc import AsyncIterator, Callable

import anyio

from pairtrial.core.errors import SandboxError
from pairtrial.sandbox.protocol import ExecResult, LimitName, LineCallback
from pairtrial.sandbox.streams import Capture

WATCH_S = 0.25
"""Shortest time between two looks at what only a look can tell (the disk)."""
GRACE_S = 2.0
"""Time between TERM and KILL."""
PIECE = 1 << 16


class SteppedProcess:
    """Pipes, deadline and result of a command.

    Nothing runs in the background: whichever coroutine waits for something serves all pipes meanwhile. A command whose
    output nobody asks for is held back by its full pipe.
    """

    def __init__(self, *, timeout_s: float, output_cap: int, lines: bool, interactive: bool) -> None:
        self._began = time.monotonic()
        self._deadline = self._began + timeout_s
        self._selector = selectors.DefaultSelector()
        self._lock = anyio.Lock()
        self._out = Capture(output_cap, lines=lines)
        self._err = Capture(output_cap, lines=False)
        self._input: deque[memoryview] = deque()
        self._input_open = True
        self._close_when_sent = not interactive
        self._limit: LimitName | None = None
        self._watch: Callable[[], LimitName | None] | None = None
        self._watch_at = 0.0
        self._iterated = False
        self._result: ExecResult | None = None

    # ---- what callers do ---------------------------------------------------------------------------------------
    async def send(self, data: bytes) -> None:
        """Write to stdin; what a command that closed its stdin does not take is dropped."""
        self.offer(data)
        await self._serve_until(lambda: not self._input)

    async def close_stdin(self) -> None:
        """Send what is waiting, then the end of input."""
        await self._serve_until(lambda: not self._input)
        self._close_input()

    def offer(self, data: bytes) -> None:
        """Queue input; it is sent while the process is served."""
        if data and self._input_open:
            self._input.append(memoryview(data))
            self._watch_input()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        lines = self._out.lines
        if lines is None:
            raise SandboxError("this process was started without line splitting", slug="no-lines")
        self._iterated = True
        try:
            while True:
                await self._serve_until(lambda: bool(lines))
                while lines:
                    yield lines.popleft()
                if self.ended:
                    return
        finally:
            self._iterated = False

    async def wait(self, on_stdout: LineCallback | None = None) -> ExecResult:
        """Serve until the command and all that it started are gone."""
        lines = self._out.lines
        try:
            while True:
                await self._serve_until(lambda: bool(lines) and not self._iterated)
                while lines and not self._iterated:
                    line = lines.popleft()
                    if on_stdout is not None:
                        on_stdout(line)
                if self.ended:
                    return self.result
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.kill()
            raise

    async def kill(self) -> None:
        """KILL the whole tree now, and wait until it is gone."""
        if self.ended:
            return
        if self._out.lines is not None:
            self._out.lines.clear()
        await self._kill_now()
        await self._serve_until(lambda: False)

    @property
    def ended(self) -> bool:
        """True when everything is gone and `result` can be read."""
        return self._result is not None

    @property
    def result(self) -> ExecResult:
        """The result; only after `wait`."""
        if self._result is None:
            raise SandboxError("the process is still running", slug="not-ended")
        return self._result

    # ---- for backends ------------------------------------------------------------------------------------------
    async def _step(self) -> None:
        """Wait for one thing to happen, at most until the next limit is due, and deal with it."""
        raise NotImplementedError

    async def _kill_now(self) -> None:
        raise NotImplementedError

    def _watch_input(self) -> None:
        raise NotImplementedError

    def _close_input(self) -> None:
        raise NotImplementedError

    async def _serve_until(self, condition: Callable[[], bool]) -> None:
        while not condition() and not self.ended:
            async with self._lock:
                if condition() or self.ended:
                    return
                await self._step()

    def _new_limit(self) -> LimitName | None:
        """A limit that has been passed since the last look."""
        if self._limit is not None:
            return None
        now = time.monotonic()
        if now >= self._deadline:
            self._limit = "wall"
        elif self._watch is not None and now >= self._watch_at:
            self._limit = self._watch()
            self._watch_at = now + max(WATCH_S, 20 * (time.monotonic() - now))
        return self._limit

    def _until_limit(self) -> float:
        """Seconds until a limit may be passed."""
        due = self._deadline if self._watch is None else min(self._deadline, self._watch_at)
        return max(0.0, due - time.monotonic())
