"""Ends the program at once when it is told to, with everything that it started."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

EXIT_TERMINATED = 128 + signal.SIGTERM


def descendants(pid: int) -> list[int]:
    """Every process below ``pid``, parents first. Needs /proc; elsewhere the closing pipes end the children."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        try:
            tasks = list(Path(f"/proc/{parent}/task").iterdir())
        except OSError:
            continue
        for task in tasks:
            with suppress(OSError, ValueError):
                children = [int(word) for word in (task / "children").read_text().split()]
                found.extend(children)
                waiting.extend(children)
    return found


def kill_descendants() -> None:
    """Kill everything below this process. Servers and candidates have process groups of their own."""
    for pid in descendants(os.getpid()):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def end_on_signal(restore: Callable[[], None]) -> None:
    """On SIGTERM, SIGINT and SIGHUP: stop the children, put the tree back, exit without waiting for anything."""

    def end(_: int, __: FrameType | None) -> None:
        kill_descendants()
        with suppress(OSError):
            restore()
        os._exit(EXIT_TERMINATED)

    for kind in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(kind, end)
