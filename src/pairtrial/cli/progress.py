"""Progress for people: a bar on a terminal, a plain line now and then elsewhere. Always on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

PLAIN_EVERY_S = 15.0


class Tracker(Protocol):
    """What a command tells about its work."""

    def update(self, done: int, text: str = "") -> None:
        """So much of the total is done; ``text`` stands beside the bar."""
        ...


class _Plain:
    def __init__(self, title: str, total: int) -> None:
        self.title, self.total = title, total
        self.start = self.last = time.monotonic()
        self.first = 0

    def update(self, done: int, text: str = "") -> None:
        now = time.monotonic()
        if done < self.total and now - self.last < PLAIN_EVERY_S:
            return
        self.last = now
        left = (
            f", about {_clock((now - self.start) / done * (self.total - done))} left" if 0 < done < self.total else ""
        )
        print(f"{self.title}: {done}/{self.total}{' ' + text if text else ''}{left}", file=sys.stderr, flush=True)  # noqa: T201


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


@contextmanager
def tracking(title: str, total: int, done: int = 0) -> Iterator[Tracker]:
    """A tracker for ``total`` units of work of which ``done`` are behind us."""
    if not sys.stderr.isatty():
        yield _Plain(title, total)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[text]}"),
        console=Console(stderr=True),
    )  # fmt: skip

    class _Bar:
        def __init__(self) -> None:
            self.id = bar.add_task(title, total=total, completed=done, text="")

        def update(self, done: int, text: str = "") -> None:
            bar.update(self.id, completed=done, text=text)

    with bar:
        yield _Bar()
