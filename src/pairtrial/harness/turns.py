"""The turns of a prompt as they really leave for the agent.

A session says which turn it sends; what goes over the pipe is looked at as well, so that a session that says one thing and
sends another is found. The order is compared with the registered one at the moment of sending.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pairtrial.core.canonical import sha256_hex
from pairtrial.harness.agents.base import split_turns
from pairtrial.harness.agents.session import Reply
from pairtrial.runs.turns import disorder, turns_name


def turn_digests(prompt: str) -> tuple[str, ...]:
    """SHA-256 of each turn of a prompt, in their order."""
    return tuple(sha256_hex(turn.encode()) for turn in split_turns(prompt))


def turn_identities(prompts: Mapping[str, str]) -> dict[str, str]:
    """The registered order of every task that has several turns; ``prompts`` are whole, with the template filled in."""
    return {
        turns_name(task): " ".join(turn_digests(prompt))
        for task, prompt in prompts.items()
        if len(split_turns(prompt)) > 1
    }


class TurnLog:
    """Watches what is sent; for a prompt of one turn it sees nothing."""

    def __init__(self, prompt: str, on_turn: Callable[[int, str], None] = lambda number, digest: None) -> None:
        turns = split_turns(prompt)
        self.registered = turn_digests(prompt) if len(turns) > 1 else ()
        self._known = dict(zip(turns, self.registered, strict=True)) if self.registered else {}
        self._on_turn = on_turn
        self.sent: list[str] = []

    @property
    def problems(self) -> list[str]:
        """What is wrong with the order so far."""
        return disorder(self.sent, self.registered)

    def look(self, reply: Reply) -> None:
        """Note the turns in what is about to be sent."""
        if not self.registered:
            return
        found = [digest for data in reply.send for digest in self._turns(data, reply.turn)]
        if reply.turn is not None and sha256_hex(reply.turn.encode()) not in found:
            found.append(sha256_hex(f"said and not sent: {reply.turn}".encode()))
        for digest in found:
            self.sent.append(digest)
            self._on_turn(len(self.sent), digest)

    def _turns(self, data: bytes, said: str | None) -> list[str]:
        try:
            stack: list[Any] = [json.loads(data)]
        except ValueError:
            return []
        found = []
        while stack:
            item = stack.pop()
            if isinstance(item, str):
                if item in self._known or item == said:
                    found.append(sha256_hex(item.encode()))
            elif isinstance(item, dict):
                stack.extend(reversed(item.values()))
            elif isinstance(item, list):
                stack.extend(reversed(item))
        return found
