"""One rollout: connect, look, order, try, keep."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pairtrial.harness.tinker.candidates import Candidate, candidates_of
from pairtrial.harness.tinker.config import Options
from pairtrial.harness.tinker.evaluate import Evaluator
from pairtrial.harness.tinker.localise import Focus, Hit, ranks_of
from pairtrial.harness.tinker.order import first_candidates
from pairtrial.harness.tinker.prompt import Prompt, parse_prompt
from pairtrial.harness.tinker.sources import SourceFile, read_sources
from pairtrial.harness.tinker.stream import Stream
from pairtrial.harness.tinker.tree import Tree

MAX_TEST_RUNS = 5


@dataclass(frozen=True, slots=True)
class End:
    """How the search ended."""

    stop_reason: str
    text: str
    steps: int


class Rollout:
    """The state of one run of the program."""

    def __init__(self, options: Options, stream: Stream, read_prompt: Callable[[], str], root: Path) -> None:
        self._options = options
        self._stream = stream
        self._read_prompt = read_prompt
        self._root = root
        self.tree = Tree(root)

    def run(self) -> None:
        """Emit the whole stream, from startup to result."""
        prompt, hits = self._connect()
        end = self._search(prompt, hits)
        self._stream.usage(end.steps)
        self._stream.result(end.stop_reason, end.text)

    def _connect(self) -> tuple[Prompt, tuple[Hit, ...]]:
        """Servers first, then the startup event, then the prompt, then what the servers say about it."""
        if not self._options.servers:
            self._stream.startup([])
            return parse_prompt(self._read_prompt()), ()
        import anyio

        from pairtrial.harness.tinker.mcp_client import consult

        prompts: list[Prompt] = []

        def question() -> str | None:
            prompts.append(parse_prompt(self._read_prompt()))
            return prompts[0].query or None

        asked = anyio.run(consult, self._options.servers, self._stream.startup, question)
        for call in asked:
            self._stream.call(call.server, call.tool, call.arguments, call.ok, call.size)
        return prompts[0], next((call.hits for call in asked if call.hits), ())

    def _search(self, prompt: Prompt, hits: Sequence[Hit]) -> End:
        if prompt.example is None:
            return End("gave_up", "the prompt has no example in a fenced python block", 0)
        sources = read_sources(self._root)
        candidates = [candidate for source in sources for candidate in candidates_of(source)]
        focus = Focus(prompt.words, ranks_of(hits, sources))
        chosen = first_candidates(candidates, focus, self._options.seed, self._options.max_steps)
        self._stream.message(f"{len(candidates)} candidate edits in {len(sources)} files; trying {len(chosen)}.")
        with Evaluator(prompt.example, sources) as evaluator:
            if evaluator.unedited == "pass":
                return End("gave_up", "the example passes as it is", 0)
            return self._try(chosen, {source.path: source for source in sources}, evaluator, prompt.command)

    def _try(
        self,
        chosen: Sequence[Candidate],
        sources: dict[str, SourceFile],
        evaluator: Evaluator,
        command: Sequence[str],
    ) -> End:
        """Candidates in order, one at a time: the first in order wins, not the first to end."""
        runs = 0
        for step, candidate in enumerate(chosen, 1):
            if evaluator.outcome(candidate) != "pass":
                continue
            data = sources[candidate.path].data
            self._stream.call(None, "edit", _described(candidate), ok=True)
            if command:
                runs += 1
                passed = self.tree.passes(candidate, data, command)
                self._stream.call(None, "run", {"command": list(command)}, ok=passed)
                if not passed and runs == MAX_TEST_RUNS:
                    return End("gave_up", f"{runs} edits passed the example but not the visible tests", step)
                if not passed:
                    continue
            self.tree.keep(candidate, data)
            return End("finished", f"kept one edit in {candidate.path}, line {candidate.line}", step)
        if len(chosen) < self._options.max_steps:
            return End("gave_up", "no candidate is left", len(chosen))
        return End("turn_limit", "the steps are used up", len(chosen))


def _described(candidate: Candidate) -> dict[str, object]:
    return {
        "file": candidate.path,
        "line": candidate.line,
        "old": candidate.old.decode(),
        "new": candidate.new.decode(),
        "operator": candidate.operator,
    }


def report_crash(stream: Stream, fault: BaseException) -> None:
    """The last event of a run that failed by a fault of its own."""
    sys.stderr.write(f"tinker: {type(fault).__name__}: {fault}\n")
    stream.result("crashed", type(fault).__name__)
