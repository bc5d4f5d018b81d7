"""Runs a command as on a machine that is far too busy: ``load.py BURNERS COMMAND ...``.

Busy processes share one core with it by affinity, so the load is the same on two cores and on sixty. And it is stopped for
moments of changing length, as a machine does that has other things to do: a busy core alone slows everything down alike,
which a test that compares two times does not notice. What does this stays in the command's process group, which its
supervisor kills at the end, and ends by itself when the command is gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
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


def stutter(command: int) -> None:
    """20 to 59 ms of work, then 40 to 108 ms of rest, in 20 combinations; always woken at the end."""
    os.closerange(0, 256)
    end, number = time.monotonic() + LONGEST_S, 0
    while time.monotonic() < end and alive(command):
        number += 1
        time.sleep(0.020 + 0.013 * (number % 4))
        try:
            os.kill(command, signal.SIGSTOP)
            time.sleep(0.040 + 0.017 * (number % 5))
        except OSError:
            return
        finally:
            with contextlib.suppress(OSError):
                os.kill(command, signal.SIGCONT)


def main() -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
    command = os.getpid()
    for work in (*[burn] * int(sys.argv[1]), stutter):
        # Forked twice: a child of the command itself would be waited for by tests that wait for their own.
        if (middle := os.fork()) == 0:
            if os.fork() == 0:
                work(command)
            os._exit(0)
        os.waitpid(middle, 0)
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - an argument list of ours


main()
