"""Running the agent: its event stream, the startup assertion, and the one rule for how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import anyio
import zstandard

from pairtrial.core.status import Status, StopReason
from pairtrial.harness.agents import Expected
from pairtrial.harness.agents.session import PlainSession, Preflight, Reply, Session, Void
from pairtrial.harness.events import Event, Malformed, Message, Other, Result, Startup, ToolCall, Usage, encode
from pairtrial.harness.startup import server_problems, startup_problems
from pairtrial.harness.turns import TurnLog
from pairtrial.sandbox import ExecResult, Process, Sandbox

MAX_STREAM_BYTES = 32 << 20
"""Of the agent's stream this much is kept; the rest is read and dropped, and the receipt says so."""
MAX_READS = 10_000
"""So many names of files read are kept; the rest is dropped, and the receipt says so."""
GRACE_S = 3.0
"""How long an agent may live on once it has said its last word: a background task can keep it alive for hours."""
WATCH_S = 0.1
TURN_ENDED = "native.turn-ended"


@dataclass(slots=True)
class Trial:
    """What one run of the agent said and used."""

    startup: Startup | None = None
    problems: tuple[str, ...] = ()
    voids: tuple[Void, ...] = ()
    """Reasons why the run says nothing about the task, whatever work it left."""
    result: Result | None = None
    usage: list[Usage] = field(default_factory=list)
    messages: int = 0
    turns: int = 0
    """Turns that ended well and were followed by another."""
    tool_calls: int = 0
    context_tool_calls: int = 0
    reads: set[str] | None = None
    """Files that the agent said it read, in its own words; None when it never said anything of the kind."""
    foreign_servers: set[str] = field(default_factory=set)
    """Servers that were called though the arm has none of that name."""
    malformed: int = 0
    kept: int = 0
    truncated: bool = False
    lines: list[bytes] = field(default_factory=list)
    """The agent's own lines."""
    events: list[bytes] | None = None
    """Our events, where the agent's own lines are no such events."""
    ended: ExecResult | None = None
    said_all: bool = False
    ended_by_us: bool = False
    """It was ended because it had said its last word and lived on."""
    halted: str | None = None
    """Why the harness stopped it at once, where it did."""
    capped: bool = False
    """It was stopped by a spend cap."""
    turned: bool = False
    """It was stopped at the turn limit, which the gateway counts for agents that do not."""

    def hear(self, raw: bytes, session: Session, expected: Expected) -> Reply:
        """Account for one line of the stream; gives what is to be answered."""
        self._keep(self.lines, raw)
        reply = session.take(raw)
        self.enter(reply, session, expected)
        return reply

    def enter(self, reply: Reply, session: Session, expected: Expected) -> None:
        """Account for what a line meant."""
        for event in reply.events:
            if isinstance(event, Void):
                self.voids = (*self.voids, event)
            elif isinstance(event, Preflight):
                found = server_problems(event.servers, expected, tools=event.tools_known, errors=event.errors)
                self.problems = (*self.problems, *found)
            else:
                if not isinstance(session, PlainSession):
                    self.events = [] if self.events is None else self.events
                    self._keep(self.events, encode(event).rstrip(b"\n"))
                self._event(event, expected)
        self.said_all = self.said_all or reply.done

    def _keep(self, lines: list[bytes], raw: bytes) -> None:
        if self.kept + len(raw) <= MAX_STREAM_BYTES:
            self.kept += len(raw)
            lines.append(raw)
        else:
            self.truncated = True

    def _event(self, event: Event, expected: Expected) -> None:
        if isinstance(event, Startup):
            problems = startup_problems(event, expected)
            if self.startup is not None:
                problems = ("a second startup event", *problems)
            self.startup = event
            self.problems = (*self.problems, *problems)
        elif isinstance(event, ToolCall):
            self.tool_calls += 1
            self._reads(event)
            if event.server is not None:
                self.context_tool_calls += 1
                if event.server not in expected.servers:
                    self.foreign_servers.add(event.server)
        elif isinstance(event, Usage):
            self.usage.append(event)
        elif isinstance(event, Message):
            self.messages += 1
        elif isinstance(event, Result):
            self.result = event
        elif isinstance(event, Malformed):
            self.malformed += 1
        elif isinstance(event, Other) and event.type == TURN_ENDED:
            self.turns += 1

    def _reads(self, call: ToolCall) -> None:
        if call.reads is None:
            return
        self.reads = set() if self.reads is None else self.reads
        if len(self.reads) + len(call.reads) <= MAX_READS:
            self.reads.update(call.reads)
        else:
            self.truncated = True

    def compressed(self, clean: Callable[[bytes], bytes]) -> bytes:
        """The kept events as zstd, each line passed through ``clean``, which redacts."""
        return _compress(self.lines if self.events is None else self.events, clean)

    def raw(self, clean: Callable[[bytes], bytes]) -> bytes | None:
        """The agent's own lines in the same way; None where they are the events."""
        return None if self.events is None else _compress(self.lines, clean)

    @property
    def stop_reason(self) -> StopReason:
        """One rule over exit code, signal, error flag and the agent's own word, never the word alone."""
        ended, result = self.ended, self.result
        if ended is None or self.startup is None:
            return StopReason.NOT_STARTED
        if self.capped:
            return StopReason.SPEND_LIMIT
        if self.turned:
            return StopReason.TURN_LIMIT
        if ended.timed_out and not self.ended_by_us:
            return StopReason.TIMEOUT
        if result is not None and result.stop_reason in (StopReason.TURN_LIMIT, StopReason.SPEND_LIMIT):
            return result.stop_reason  # agents end such a run with an error code of their own
        clean = ended.exit_code == 0 or self.ended_by_us
        if not clean or result is None or result.is_error:
            return StopReason.CRASHED
        return result.stop_reason

    @property
    def void(self) -> tuple[Status, str] | None:
        """The status of a run that says nothing about the task, and why; None when its work is to be graded."""
        if self.problems:
            return Status.INVALID_ENVIRONMENT, "; ".join(self.problems)
        if self.voids:
            return self.voids[0].status, "; ".join(void.reason for void in self.voids)
        if self.startup is None:
            tail = (self.ended.stderr if self.ended else b"").decode(errors="replace").strip().splitlines()[-1:]
            code = self.ended.exit_code if self.ended else None
            reason = f"the agent never said that it started (exit {code}): {''.join(tail)[:300]}"
            return Status.INVALID_ENVIRONMENT, reason
        if self.foreign_servers:
            return Status.CONTAMINATED, f"called {', '.join(sorted(self.foreign_servers))}, which the arm has not"
        return None


def _compress(lines: Sequence[bytes], clean: Callable[[bytes], bytes]) -> bytes:
    data = b"\n".join(clean(line) for line in lines)
    return zstandard.ZstdCompressor(level=12).compress(data + b"\n" if data else b"")


def _goes_on() -> str | None:
    return None


async def run_agent(
    sandbox: Sandbox,
    argv: Sequence[str],
    env: Mapping[str, str],
    session: Session,
    expected: Expected,
    wall_s: float,
    halted: Callable[[], str | None] = _goes_on,
    cleared: Callable[[], None] | None = None,
    turns: TurnLog | None = None,
) -> Trial:
    """Start the agent and hold the conversation to its end.

    It is stopped at once when what it started with is not the arm's, when a turn is not the one that is due, when
    ``halted`` (asked ten times a second) gives a reason, and a short grace after its last word. ``cleared`` is called
    once it has said what it started with and that was right.
    """
    trial = Trial()
    process = await sandbox.start(argv, env=env, cwd=sandbox.workspace, timeout_s=wall_s)
    async with anyio.create_task_group() as group:
        group.start_soon(_watch, process, trial, halted)
        heard = False
        try:
            await _say(process, session.open(), turns)
            async for line in process:
                reply = trial.hear(line.rstrip(b"\n"), session, expected)
                if trial.problems or trial.voids or trial.halted:
                    break
                if trial.startup is not None and cleared is not None:
                    cleared()
                await _say(process, reply, turns)
                if turns is not None and turns.problems:
                    break
            heard = True
        finally:
            with anyio.CancelScope(shield=True):
                # Ctrl-C or an error of ours: nobody listens any more, and waiting would last to the wall limit.
                if not heard or trial.problems or trial.voids or trial.halted or (turns and turns.problems):
                    await process.kill()
                ended = trial.ended = await process.wait()
            trial.truncated = trial.truncated or ended.truncated
            group.cancel_scope.cancel()
    trial.enter(session.finish(ended), session, expected)
    return trial


async def _say(process: Process, reply: Reply, turns: TurnLog | None) -> None:
    if turns is not None:
        turns.look(reply)
        if turns.problems:  # it does not even leave
            return
    for data in reply.send:
        await process.send(data)
    if reply.close:
        await process.close_stdin()


async def _watch(process: Process, trial: Trial, halted: Callable[[], str | None]) -> None:
    """End an agent that must not go on, and one that lives on after its last word."""
    last_word = None
    while True:
        await anyio.sleep(WATCH_S)
        trial.halted = halted()
        if trial.said_all and last_word is None:
            last_word = time.monotonic()
        if last_word is not None and time.monotonic() - last_word > GRACE_S:
            trial.ended_by_us = True
        if trial.halted or trial.ended_by_us:
            await process.kill()
            return
