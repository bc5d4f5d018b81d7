"""Carries connections from a listening socket to one server, byte for byte. Imports nothing of ours.

In the harness it is a thread behind a listener that lies in a sandbox's network namespace. As a script it is the
fallback inside a sandbox: ``python forward.py PORT SOCKET [-- command…]`` listens on loopback there, carries to a unix
socket that is mounted in, and becomes the command in the process that was started.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys
import threading
from typing import Any

PIECE = 1 << 16
MAX_WAITING = 1 << 20
MAX_CONNECTIONS = 256
Address = Any


class _Half:
    """One direction of a connection."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source = source
        self.target = target
        self.waiting = bytearray()
        self.ended = False
        self.closed = False

    def read(self) -> None:
        try:
            piece = self.source.recv(PIECE)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        self.waiting += piece
        self.ended = not piece

    def write(self) -> None:
        try:
            while self.waiting:
                del self.waiting[: self.target.send(self.waiting[:PIECE])]
        except BlockingIOError:
            return
        except OSError:
            self.waiting.clear()
            self.ended = True
        if self.ended and not self.waiting and not self.closed:
            self.closed = True
            with contextlib.suppress(OSError):
                self.target.shutdown(socket.SHUT_WR)


class Forwarder:
    """Serves one listener until told to stop."""

    def __init__(self, listener: socket.socket, family: int, address: Address) -> None:
        self.listener = listener
        self.family = family
        self.address = address
        self.selector = selectors.DefaultSelector()
        self.pairs: list[tuple[_Half, _Half]] = []
        self.stopper, self._stop_end = socket.socketpair()
        listener.setblocking(False)

    def stop(self) -> None:
        """Make `serve` return; may be called from any thread."""
        with contextlib.suppress(OSError):
            self._stop_end.send(b"x")

    def serve(self) -> None:
        """Carry until stopped."""
        self.selector.register(self.stopper, selectors.EVENT_READ)
        self.selector.register(self.listener, selectors.EVENT_READ)
        try:
            while True:
                ready = {key.fileobj for key, _ in self.selector.select()}
                if self.stopper in ready:
                    return
                if self.listener in ready:
                    self._accept()
                self._carry(ready)
        finally:
            for one, _ in self.pairs:
                one.source.close()
                one.target.close()
            for last in (self.selector, self.listener, self.stopper, self._stop_end):
                last.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            near, _ = self.listener.accept()
            far = socket.socket(self.family, socket.SOCK_STREAM)
            try:
                if len(self.pairs) >= MAX_CONNECTIONS:
                    raise OSError("too many connections")
                far.settimeout(10)
                far.connect(self.address)
            except OSError:
                near.close()
                far.close()
                return
            near.setblocking(False)
            far.setblocking(False)
            for one in (near, far):
                if one.family in (socket.AF_INET, socket.AF_INET6):
                    with contextlib.suppress(OSError):  # small pieces of an answer must not wait for each other
                        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.selector.register(one, selectors.EVENT_READ)
            self.pairs.append((_Half(near, far), _Half(far, near)))

    def _carry(self, ready: set[Any]) -> None:
        for pair in list(self.pairs):
            for half in pair:
                if half.source in ready and not half.ended and len(half.waiting) < MAX_WAITING:
                    half.read()
                if half.waiting or half.ended:
                    half.write()
            if all(half.closed for half in pair):
                self.pairs.remove(pair)
                for half in pair:
                    self._want(half.source, 0)
                    half.source.close()
                continue
            for half, other in (pair, pair[::-1]):
                events = 0
                if not half.ended and len(half.waiting) < MAX_WAITING:
                    events |= selectors.EVENT_READ
                if other.waiting:
                    events |= selectors.EVENT_WRITE
                self._want(half.source, events)

    def _want(self, one: socket.socket, events: int) -> None:
        known = one in self.selector.get_map()
        if events and known:
            self.selector.modify(one, events)
        elif events:
            self.selector.register(one, events)
        elif known:
            self.selector.unregister(one)


def main(port: str, address: str, command: list[str]) -> None:
    """Listen, carry in a child process, and become the command."""
    listener = socket.create_server(("127.0.0.1", int(port)))
    if command and os.fork():
        listener.close()
        try:
            os.execvp(command[0], command)  # noqa: S606 - that is what it is for
        except OSError as fault:
            os.write(2, f"pairtrial: cannot start {command[0]}: {fault.strerror}\n".encode())
            os._exit(127 if isinstance(fault, FileNotFoundError) else 126)
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    Forwarder(listener, socket.AF_UNIX, address).serve()


def in_thread(forwarder: Forwarder) -> threading.Thread:
    """Serve in a thread of this process."""
    thread = threading.Thread(target=forwarder.serve, name="pairtrial-gateway", daemon=True)
    thread.start()
    return thread


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[4:])
