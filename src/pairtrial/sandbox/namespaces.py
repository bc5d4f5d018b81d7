"""Kernel namespaces made in advance, for sandboxes that enter them. Linux only; root only where a user is mapped."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass

from pairtrial.core.errors import SandboxError
from pairtrial.sandbox._client import spawn


@dataclass(slots=True)
class Namespaces:
    """Descriptors of what was made; `close` when the sandbox ends."""

    user: int | None = None
    """User namespace in which root and one other user exist, and no further user namespace can be made."""
    net: int | None = None
    """Network namespace with nothing but loopback."""
    listener: socket.socket | None = None
    """Listening socket on 127.0.0.1 in that network; served from here."""

    def close(self) -> None:
        """Let go of them; the kernel removes them with their last process."""
        for number in (self.user, self.net):
            if number is not None:
                os.close(number)
        self.user = self.net = None
        if self.listener is not None:
            self.listener.close()
            self.listener = None


def make_namespaces(
    *, user: int | None = None, net: bool = False, enter_net: int | None = None, port: int | None = None
) -> Namespaces:
    """Make a user namespace that holds ``user``, a network namespace, and a listener in it, as asked.

    ``enter_net`` is a descriptor of an existing network namespace for the listener instead of a new one.
    """
    ours, theirs = socket.socketpair()
    with ours:
        request = {"namespaces": True, "user": user, "net": net, "port": port}
        try:
            with theirs:
                spawn(request, [theirs.fileno()] + ([] if enter_net is None else [enter_net]))
            ours.settimeout(10)
            text, fds, _, _ = socket.recv_fds(ours, 4096, 3)
        except OSError as fault:
            raise SandboxError(f"cannot make namespaces: {fault}", slug="namespaces") from fault
    if not fds:
        reason = json.loads(text).get("error") or json.loads(text).get("failed") if text else "no answer"
        raise SandboxError(f"cannot make namespaces: {reason}", slug="namespaces")
    queue = list(fds)
    made = Namespaces()
    if user is not None:
        made.user = queue.pop(0)
    if net:
        made.net = queue.pop(0)
    if port is not None:
        made.listener = socket.socket(fileno=queue.pop(0))
    return made
