"""The gateway's port and thread.

It runs beside the rollouts in a thread with an event loop of its own, so that what the harness does on its loop
(copying trees, hashing) delays no agent. It listens on a loopback port, and on a unix socket for sandboxes without a
network.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import uvicorn

from pairtrial.core.errors import SandboxError
from pairtrial.harness.gateway.app import Gateway
from pairtrial.harness.gateway.ledger import Ledger, Terms

START_S = 10.0


class GatewayServer:
    """A running gateway; use it as a context manager."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.port = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._sockets: list[socket.socket] = []
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._fault: BaseException | None = None

    @property
    def socket_path(self) -> Path:
        """The unix socket."""
        if self._folder is None:
            raise SandboxError("the gateway is not running", slug="gateway")
        return Path(self._folder.name) / "gateway.sock"

    @property
    def alive(self) -> bool:
        """Whether it answers; once it is dead it stays dead."""
        running = self._thread is not None and self._thread.is_alive()
        return running and self._server is not None and self._server.started and not self._server.should_exit

    def start(self) -> None:
        """Listen; returns when requests are answered."""
        self._folder = tempfile.TemporaryDirectory(prefix="pt-gw-")
        # With the protocol named the event loop turns Nagle's algorithm off; without it every answer waits 40 ms.
        tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        tcp.bind(("127.0.0.1", 0))
        local = socket.socket(socket.AF_UNIX)
        local.bind(str(self.socket_path))
        # Agents may run as another user than the harness; the token, not the file's mode, opens the gateway.
        Path(self._folder.name).chmod(0o755)
        self.socket_path.chmod(0o666)
        self._sockets = [tcp, local]
        self.port = int(tcp.getsockname()[1])
        config = uvicorn.Config(
            self.gateway.app, log_config=None, access_log=False, lifespan="off", ws="none", http="h11",
            timeout_keep_alive=120, server_header=False, date_header=False, timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="pairtrial-gateway", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + START_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self.stop()
                raise SandboxError(f"the gateway did not start: {self._fault}", slug="gateway")
            time.sleep(0.005)

    def _run(self) -> None:
        server = self._server

        async def serve() -> None:
            try:
                if server is not None:
                    await server.serve(sockets=self._sockets)
            finally:
                await self.gateway.aclose()

        try:
            anyio.run(serve)
        except BaseException as fault:  # whatever ended the thread, the rollouts must see that it did
            self._fault = fault

    def stop(self) -> None:
        """End it; safe to call twice."""
        if self._server is not None:
            self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(timeout=10)
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.close()
        self._sockets = []
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def open(self, terms: Terms) -> Ledger:
        """An account for one rollout; raises `SandboxError` when the gateway is dead."""
        self.demand()
        return self.gateway.open(terms)

    def close(self, ledger: Ledger) -> None:
        """Close an account."""
        self.gateway.close(ledger)

    def demand(self) -> None:
        """Raise `SandboxError` when the gateway died: its rollouts are lost, not failed."""
        if not self.alive:
            raise SandboxError("the gateway died", slug="gateway-died")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
