"""The harness's end of the spawner: one for each process of ours, started at the first command."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any


class _Spawner:
    def __init__(self) -> None:
        self.owner = os.getpid()
        ours, theirs = socket.socketpair()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", str(Path(__file__).with_name("_spawner.py")), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={"LC_ALL": "C.UTF-8"},
                cwd="/",
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self.channel = ours

    def send(self, body: bytes, fds: list[int]) -> None:
        socket.send_fds(self.channel, [len(body).to_bytes(4, "big")], fds)
        self.channel.sendall(body)

    def close(self) -> None:
        self.channel.close()
        if self.owner == os.getpid():
            self.process.kill()
            self.process.wait()


_lock = threading.Lock()
_current: _Spawner | None = None


def spawn(request: dict[str, Any], fds: list[int]) -> None:
    """Have the spawner start a command; a spawner that was killed is replaced once."""
    global _current
    body = json.dumps(request).encode()
    with _lock:
        for attempt in range(2):
            if _current is None or _current.owner != os.getpid() or _current.process.poll() is not None:
                close()
                _current = _Spawner()
            try:
                _current.send(body, fds)
            except OSError:
                if attempt:
                    raise
                _current.process.kill()
                _current.process.wait()
            else:
                return


def close() -> None:
    """End the spawner; commands that still run go on until their own control socket closes."""
    global _current
    if _current is not None:
        _current.close()
        _current = None


atexit.register(close)
