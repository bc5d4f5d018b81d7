"""Runs a command beside busy processes on the one core that all of them share: ``load.py BURNERS COMMAND ...``.

They share a core by affinity, so the load is the same on two cores and on sixty. The busy processes stay in the
command's process group, which its supervisor kills at the end, and end by themselves when the command is gone.
"""

from __future__ import annotations

import os
import sys
import time

LONGEST_S = 1800.0


def burn(command: int) -> None:
    os.closerange(0, 256)
    end = time.monotonic() + LONGEST_S
    while time.monotonic() < end and alive(command):
        for _ in range(20):
            sum(range(20_000))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def main() -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
    command = os.getpid()
    for _ in range(int(sys.argv[1])):
        # Forked twice: a child of the command itself would be waited for by tests that wait for their own.
        if (middle := os.fork()) == 0:
            if os.fork() == 0:
                burn(command)
            os._exit(0)
        os.waitpid(middle, 0)
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - an argument list of ours


main()
