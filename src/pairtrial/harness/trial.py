"""Running the agent: its event stream, the startup assertion, and the one rule for how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import zstandard

from pairtrial.core.status import StopReason
from pairtrial.harness.agents import Expected
from pairtrial.harness.events import Malformed, Result, Startup, ToolCall, Usage, parse_line
from pairtrial.harness.startup import startup_problems
from pairtrial.sandbox import ExecResult, Sandbox

MAX_STREAM_BYTES = 32 << 20
"""Of the agent's stream this much is kept; the rest is read and dropped, and the receipt says so."""


@dataclass(slots=True)
class Trial:
    """What one run of the agent said and used."""

    startup: Startup | None = None
    problems: tuple[str, ...] = ()
    result: Result | None = None
    usage: list[Usage] = field(default_factory=list)
    tool_calls: int = 0
    context_tool_calls: int = 0
    foreign_servers: set[str] = field(default_factory=set)
    """Servers that were called though the arm has none of that name."""
    malformed: int = 0
    kept: int = 0
    truncated: bool = False
    lines: list[bytes] = field(default_factory=list)
    ended: ExecResult | None = None

    def take(self, raw: bytes, expected: Expected) -> None:
        """Account for one line of the stream."""
        if self.kept + len(raw) <= MAX_STREAM_BYTES:
            self.kept += len(raw)
            self.lines.append(raw)
        else:
            self.truncated = True
        event = parse_line(raw)
        if isinstance(event, Startup):
            problems = startup_problems(event, expected)
            if self.startup is not None:
                problems = ("a second startup event", *problems)
            self.startup = event
            self.problems = (*self.problems, *problems)
        elif isinstance(event, ToolCall):
            self.tool_calls += 1
            if event.server is not None:
                self.context_tool_calls += 1
                if event.server not in expected.servers:
                    self.foreign_servers.add(event.server)
        elif isinstance(event, Usage):
            self.usage.append(event)
        elif isinstance(event, Result):
            self.result = event
        elif isinstance(event, Malformed):
            self.malformed += 1

    def compressed(self, clean: Callable[[bytes], bytes]) -> bytes:
        """The kept stream as zstd, each line passed through ``clean``, which redacts."""
        data = b"\n".join(clean(line) for line in self.lines)
        return zstandard.ZstdCompressor(level=12).compress(data + b"\n" if data else b"")

    @property
    def stop_reason(self) -> StopReason:
        """One rule over exit code, signal, error flag and the agent's own word, never the word alone."""
        ended, result = self.ended, self.result
        if ended is None or self.startup is None:
            return StopReason.NOT_STARTED
        if ended.timed_out:
            return StopReason.TIMEOUT
        if ended.exit_code != 0 or result is None or result.is_error:
            return StopReason.CRASHED
        return result.stop_reason


async def run_agent(
    sandbox: Sandbox,
    argv: Sequence[str],
    env: Mapping[str, str],
    stdin: bytes,
    expected: Expected,
    wall_s: float,
) -> Trial:
    """Start the agent, read its stream to the end, and stop it at once when its startup event is not the arm's."""
    trial = Trial()
    process = await sandbox.start(argv, env=env, cwd=sandbox.workspace, timeout_s=wall_s)
    try:
        await process.send(stdin)
        await process.close_stdin()
        async for line in process:
            trial.take(line.rstrip(b"\n"), expected)
            if trial.problems:
                break
    finally:
        if trial.problems:
            await process.kill()
        trial.ended = await process.wait()
        trial.truncated = trial.truncated or trial.ended.truncated
    return trial
