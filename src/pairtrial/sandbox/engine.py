"""The container engine of this machine: one client, its errors in our words, and raw streams of commands.

Only a local engine will do: work trees are folders of this machine, and the gateway enters a container's network.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairtrial.core.errors import SandboxError, SandboxUnavailableError

TIMEOUT_S = 120
HINT = "start a local Docker engine, or set DOCKER_HOST=unix:///path/of/its/socket; see `pairtrial doctor`"


@dataclass(frozen=True, slots=True)
class Engine:
    """A connection to an engine, and what it says about itself."""

    client: Any
    socket_path: str
    api_version: str
    version: str
    cgroup_version: str
    storage: str
    security: tuple[str, ...]

    @property
    def api(self) -> Any:
        """The low-level client: one request a call."""
        return self.client.api

    def attach(self, exec_id: str) -> tuple[socket.socket, bytes]:
        """Start a created command and take over the connection; gives bytes that came along with the answer.

        The SDK gives away a socket whose first bytes may already sit in a buffer of its own, so this asks directly.
        """
        body = b'{"Detach": false, "Tty": false}'
        head = (
            f"POST /v{self.api_version}/exec/{exec_id}/start HTTP/1.1\r\nHost: docker\r\n"
            "Content-Type: application/json\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(TIMEOUT_S)
            connection.connect(self.socket_path)
            connection.sendall(head.encode() + body)
            answer = b""
            while b"\r\n\r\n" not in answer:
                piece = connection.recv(1 << 16)
                if not piece:
                    raise SandboxError("the engine closed the connection", hint=HINT, slug="engine-lost")
                answer += piece
            start, _, rest = answer.partition(b"\r\n\r\n")
            status = int(start.split(b" ", 2)[1])
            if status not in (101, 200):
                raise SandboxError(f"the engine did not start the command: {_reason(start, rest)}", slug="exec-failed")
            connection.setblocking(False)
        except OSError as fault:
            connection.close()
            raise SandboxError(f"the engine is gone: {fault}", hint=HINT, slug="engine-lost") from fault
        except BaseException:
            connection.close()
            raise
        return connection, rest


def _reason(start: bytes, rest: bytes) -> str:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        text = rest[rest.index(b"{") : rest.rindex(b"}") + 1]
        return str(json.loads(text)["message"])
    return start.split(b"\r\n", 1)[0].decode("latin-1")


@contextlib.contextmanager
def speaking(what: str) -> Iterator[None]:
    """Turn whatever the SDK raises into a `SandboxError` that says what was being done."""
    from docker import errors
    from requests import exceptions

    try:
        yield
    except errors.ImageNotFound as fault:
        raise SandboxError(f"{what}: the image is not on this machine", slug="no-image") from fault
    except errors.NotFound as fault:
        raise SandboxError(f"{what}: the container is gone ({fault.explanation})", slug="container-lost") from fault
    except errors.APIError as fault:
        text = str(fault.explanation or fault)
        slug = "disk-full" if "no space left" in text.lower() else "engine-refused"
        raise SandboxError(f"{what}: {text}", slug=slug) from fault
    except (errors.DockerException, exceptions.RequestException, http.client.HTTPException, OSError) as fault:
        raise SandboxError(f"{what}: the engine does not answer ({fault})", hint=HINT, slug="engine-lost") from fault


_lock = threading.Lock()
_engines: dict[str, Engine] = {}


def engine_address() -> str:
    """Where the engine should be."""
    return os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"


def engine_present() -> bool:
    """True when there is a socket to ask at; says nothing about an answer."""
    address = engine_address()
    return address.startswith("unix://") and Path(address.removeprefix("unix://")).exists()


def engine() -> Engine:
    """The engine that DOCKER_HOST names, or the usual one; raises `SandboxUnavailableError`. Blocks."""
    named = engine_address()
    with _lock:
        if named not in _engines:
            _engines[named] = _connect(named)
        return _engines[named]


def forget_engines() -> None:
    """Close all connections; the next call connects anew."""
    with _lock:
        for one in _engines.values():
            one.client.close()
        _engines.clear()


def ping(place: str) -> None:
    """Raise when nobody answers; the SDK would leave a socket open."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(10)
        connection.connect(place)
        connection.sendall(b"GET /_ping HTTP/1.1\r\nHost: docker\r\nConnection: close\r\n\r\n")
        if b" 200 " not in connection.recv(64):
            raise ConnectionError("the engine is not ready")


def _connect(named: str) -> Engine:
    if not named.startswith("unix://"):
        raise SandboxUnavailableError(
            f"DOCKER_HOST is {named}: only an engine on this machine, at a unix socket, can be used",
            hint=HINT,
            slug="remote-engine",
        )
    import docker
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    client = None
    try:
        ping(named.removeprefix("unix://"))
        client = docker.DockerClient(base_url=named, timeout=TIMEOUT_S, version="auto")
        info, version = client.info(), client.version()
    except (DockerException, RequestException, OSError) as fault:
        if client is not None:
            client.close()
        raise SandboxUnavailableError(f"no Docker engine answers at {named}", hint=HINT, slug="no-engine") from fault
    return Engine(
        client=client,
        socket_path=named.removeprefix("unix://"),
        api_version=client.api.api_version,
        version=str(version.get("Version", "?")),
        cgroup_version=str(info.get("CgroupVersion", "1")),
        storage=str(info.get("Driver", "?")),
        security=tuple(str(item) for item in info.get("SecurityOptions") or ()),
    )


def find_image(known: Engine, name: str) -> tuple[str, list[str]]:
    """Id of an image on this machine and the names of its variables; a run never pulls. Blocks."""
    from docker import errors

    try:
        with speaking(f"image {name}"):
            found = known.api.inspect_image(name)
    except SandboxError as fault:
        if not isinstance(fault.__cause__, errors.NotFound):
            raise
        raise SandboxUnavailableError(
            f"image {name} is not on this machine",
            hint="build it with sandbox/images/host/build.py, or pull it before the run; a run never pulls",
            slug="no-image",
        ) from None
    variables = found.get("Config", {}).get("Env") or []
    return str(found["Id"]), [item.partition("=")[0] for item in variables if item.partition("=")[0].isidentifier()]
