"""The one server that a sandbox may reach.

The command inside talks to ``http://127.0.0.1:8080``, whatever the backend, so that nothing in its configuration
differs. Where we are root that port is a listener of ours in the sandbox's own network namespace; without root a unix
socket is mounted in, and a small forwarder beside the command listens on the port.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from pairtrial.core.errors import SandboxError
from pairtrial.sandbox import _relay

GATEWAY_PORT = 8080
RUN_FOLDER = "/run/pairtrial"
FORWARDER = Path(_relay.__file__)
SOCKET_PATH_BYTES = 107


class Relay:
    """A thread that carries connections from a listener to a server of the host."""

    def __init__(self, listener: socket.socket, family: int, address: Any, *, remove: Path | None = None) -> None:
        self._forwarder = _relay.Forwarder(listener, family, address)
        self._remove = remove
        self._thread: threading.Thread = _relay.in_thread(self._forwarder)

    @classmethod
    def to(cls, listener: socket.socket, *, host_port: int | None, unix_socket: Path | None) -> Self:
        """Carry from a listener to a port or a unix socket of the host."""
        family, address = _address(host_port, unix_socket)
        return cls(listener, family, address)

    @classmethod
    def at(cls, place: Path, *, host_port: int | None, unix_socket: Path | None) -> Self:
        """The same from a new unix socket at ``place``."""
        family, address = _address(host_port, unix_socket)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:  # by way of the folder's descriptor: the path itself may be longer than a socket's name can be
            listener.bind(f"/proc/self/fd/{folder}/{place.name}" if len(os.fsencode(place)) > 100 else str(place))
            place.chmod(0o666)
            listener.listen(64)
        except OSError as fault:
            listener.close()
            raise SandboxError(f"{place}: no socket can be made ({fault.strerror})", slug="gateway") from fault
        finally:
            os.close(folder)
        return cls(listener, family, address, remove=place)

    def close(self) -> None:
        """Stop and cut what is open."""
        self._forwarder.stop()
        self._thread.join(10)
        if self._remove is not None:
            self._remove.unlink(missing_ok=True)


def _address(host_port: int | None, unix_socket: Path | None) -> tuple[int, Any]:
    if (host_port is None) == (unix_socket is None):
        raise SandboxError("the gateway is at a port or at a unix socket: give exactly one", slug="gateway")
    if unix_socket is not None:
        if len(os.fsencode(unix_socket)) > SOCKET_PATH_BYTES:
            raise SandboxError(f"{unix_socket}: longer than a socket's name may be", slug="gateway")
        return socket.AF_UNIX, str(unix_socket)
    return socket.AF_INET, ("127.0.0.1", host_port)


def forwarded(argv: Sequence[str]) -> tuple[str, ...]:
    """A command behind the forwarder that listens inside."""
    head = ("python3", f"{RUN_FOLDER}/forward.py", str(GATEWAY_PORT), f"{RUN_FOLDER}/g", "--")
    return (*head, *argv)
