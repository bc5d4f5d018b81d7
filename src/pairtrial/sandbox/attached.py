"""A command in a container, over one raw connection to the engine."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

import anyio

from pairtrial.sandbox.protocol import ExecResult, LimitName
from pairtrial.sandbox.stepped import GRACE_S, PIECE, SteppedProcess
from pairtrial.sandbox.wrapper import TAIL_BYTES, read_tail

HEADER = 8
RETRY_S = 0.05
"""Time between two attempts to kill."""
LINGER_S = 5.0
"""How long to wait for the end of the stream once every process of the command is dead."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A started command: its connection, and what the sandbox does about it."""

    connection: socket.socket
    first: bytes
    """Bytes of the stream that came with the engine's answer."""
    mark: bytes
    """Unguessed word by which the wrapper's last words are known."""
    signal_all: Callable[[Literal["TERM", "KILL"]], Awaitable[None]]
    clear: Callable[[], Awaitable[tuple[str, ...]]]
    """Kills what outlived the command; gives the names."""
    explain: Callable[[Ending], Awaitable[ExecResult]]
    """Makes the result, or raises `SandboxError` when the container or the engine is gone."""
    watch: Callable[[], LimitName | None] | None


@dataclass(slots=True)
class Ending:
    """What is known when the stream is over."""

    code: int | None = None
    """What the wrapper reported; ``None`` when it did not live to do so."""
    message: str = ""
    stdout: bytes = b""
    stderr: bytes = b""
    truncated: bool = False
    limit: LimitName | None = None
    killed: bool = False
    """We ended it."""
    duration_s: float = 0.0
    survivors: tuple[str, ...] = field(default=())


class AttachedProcess(SteppedProcess):
    """A running command in a container."""

    def __init__(
        self, attachment: Attachment, *, timeout_s: float, output_cap: int, lines: bool, interactive: bool
    ) -> None:
        super().__init__(timeout_s=timeout_s, output_cap=output_cap, lines=lines, interactive=interactive)
        self._at = attachment
        self._watch = attachment.watch
        self._frames = bytearray(attachment.first)
        self._tail = bytearray()
        self._ended_by_itself: tuple[int, str, int] | None = None
        self._cleared = False
        self._survivors: tuple[str, ...] = ()
        self._killed = False
        self._kill_at: float | None = None
        self._over_at: float | None = None
        self._selector.register(attachment.connection, selectors.EVENT_READ)
        self._split()

    async def _kill_now(self) -> None:
        self._killed = True
        await self._at.signal_all("KILL")
        self._close_input()  # else the engine goes on waiting for it
        self._over_at = time.monotonic() + LINGER_S

    async def _step(self) -> None:
        ended = False
        with anyio.move_on_after(self._patience()):
            await anyio.wait_readable(self._selector.fileno())
        for _, events in self._selector.select(0):
            if events & selectors.EVENT_WRITE:
                self._write_input()
            if events & selectors.EVENT_READ:
                ended = self._read()
        if self._ended_by_itself and not self._cleared and not ended:
            self._cleared = True  # the command is over, but the engine waits for those that hold its output or input
            self._close_input()
            self._survivors = await self._at.clear()
            self._over_at = time.monotonic() + LINGER_S
        if not ended and not self._ended_by_itself:
            await self._obey_limits()
            if self._killed:  # it may have been killed before the engine had started it
                await self._at.signal_all("KILL")
        if ended or (self._over_at is not None and time.monotonic() > self._over_at):
            await self._finish()

    async def _obey_limits(self) -> None:
        now = time.monotonic()
        limit = self._new_limit()
        if limit == "wall":
            await self._at.signal_all("TERM")
            self._kill_at = now + GRACE_S
        elif limit is not None or (self._kill_at is not None and now >= self._kill_at):
            self._kill_at = None
            await self._kill_now()

    def _patience(self) -> float:
        if self._killed:
            return RETRY_S
        due = [60.0] if self._limit is not None else [self._until_limit()]
        due += [at - time.monotonic() for at in (self._kill_at, self._over_at) if at is not None]
        return max(0.0, min(due))

    def _read(self) -> bool:
        """Take what is there; True at the end of the stream."""
        for _ in range(16):
            try:
                piece = self._at.connection.recv(PIECE)
            except BlockingIOError:
                return False
            except OSError:
                return True
            if not piece:
                return True
            self._frames += piece
            self._split()
        return False

    def _split(self) -> None:
        """Take whole frames, and the begun part of a large one, off the front: eight bytes of kind and length each."""
        while len(self._frames) >= HEADER:
            kind, size = self._frames[0], int.from_bytes(self._frames[4:8], "big")
            got = min(size, len(self._frames) - HEADER)
            if got < size and got < PIECE:
                return
            piece = bytes(self._frames[HEADER : HEADER + got])
            if got < size:  # the rest stays behind a header of its own
                self._frames[4:8] = (size - got).to_bytes(4, "big")
                del self._frames[HEADER : HEADER + got]
            else:
                del self._frames[: HEADER + size]
            self._take(kind, piece)

    def _take(self, kind: int, piece: bytes) -> None:
        if kind != 2:
            self._out.feed(piece)
            return
        if self._ended_by_itself is not None:
            return  # somebody else still writes after the wrapper's last words
        self._err.feed(piece)
        self._tail += piece
        del self._tail[:-TAIL_BYTES]
        self._ended_by_itself = read_tail(bytes(self._tail), self._at.mark)

    def _watch_input(self) -> None:
        if self._input:
            self._selector.modify(self._at.connection, selectors.EVENT_READ | selectors.EVENT_WRITE)

    def _write_input(self) -> None:
        try:
            while self._input:
                sent = self._at.connection.send(self._input[0][:PIECE])
                self._input[0] = self._input[0][sent:]
                if not self._input[0]:
                    self._input.popleft()
        except BlockingIOError:
            return
        except OSError:  # the command closed its stdin
            self._input.clear()
            self._close_when_sent = True
        self._selector.modify(self._at.connection, selectors.EVENT_READ)
        if self._close_when_sent:
            self._close_input()

    def _close_input(self) -> None:
        self._input.clear()
        if self._input_open:
            self._input_open = False
            with contextlib.suppress(OSError):
                self._at.connection.shutdown(socket.SHUT_WR)

    async def _finish(self) -> None:
        self._selector.close()
        self._at.connection.close()
        stderr = bytes(self._err.kept)
        code, message = None, ""
        if self._ended_by_itself is not None:
            length, message, code = self._ended_by_itself
            overflow = self._err.total - len(stderr)
            stderr = stderr[: len(stderr) - max(0, length - overflow)]
            if overflow and overflow <= length:
                self._err.truncated = False  # only the wrapper's own words were cut
        for capture in (self._out, self._err):
            capture.finish()
        if not self._cleared:
            self._survivors = await self._at.clear()
        ending = Ending(
            code=code,
            message=message,
            stdout=bytes(self._out.kept),
            stderr=stderr,
            truncated=self._out.truncated or self._err.truncated,
            limit=self._limit,
            killed=self._killed,
            duration_s=time.monotonic() - self._began,
            survivors=self._survivors,
        )
        self._result = ExecResult(  # should `explain` raise, the process has ended all the same
            exit_code=None,
            signal=9,
            stdout=ending.stdout,
            stderr=stderr,
            truncated=ending.truncated,
            timed_out=self._limit == "wall",
            limit=self._limit,
            oom=False,
            duration_s=ending.duration_s,
            note="the sandbox was lost",
        )
        self._result = await self._at.explain(ending)
