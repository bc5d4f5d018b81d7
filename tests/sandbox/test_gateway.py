"""One server of the host is in reach of an isolated command, and nothing else is."""

from __future__ import annotations

import contextlib
import http.server
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from pairtrial.core.errors import SandboxError
from pairtrial.sandbox import Sandbox, _relay
from pairtrial.sandbox.network import FORWARDER, Relay

pytestmark = pytest.mark.anyio
Env = dict[str, str]
Maker = Callable[..., Awaitable[Sandbox]]
FETCH = """
import sys, urllib.request
url, text = sys.argv[1:]
print(urllib.request.urlopen(url, data=text.encode(), timeout=10).read().decode())
"""


class Echo(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass

    def address_string(self) -> str:
        return "-"


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@pytest.fixture
def gateway() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture
def unix_gateway(tmp_path: Path) -> Iterator[Path]:
    with UnixServer(str(tmp_path / "g.sock"), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield tmp_path / "g.sock"
        server.shutdown()
        thread.join()


async def test_the_gateway_answers_at_one_address_in_every_rollout(
    new_sandbox: Maker, env: Env, python: str, gateway: int, isolating: bool
) -> None:
    one, two = await new_sandbox(network="gateway"), await new_sandbox(network="gateway")
    urls = []
    for number, sandbox in enumerate((one, two)):
        url = await sandbox.serve_gateway(host_port=gateway)
        urls.append(url)
        for word in ("first", "second"):
            said = await sandbox.exec([python, "-c", FETCH, url, f"{word} {number}"], env=env, timeout_s=30)
            assert said.stdout.decode() == f"{word} {number}\n", said.stderr
    assert urls[0] == urls[1]
    assert (urls[0] == "http://127.0.0.1:8080") == isolating


async def test_nothing_but_the_gateway(
    new_sandbox: Maker, env: Env, python: str, gateway: int, isolating: bool
) -> None:
    if not isolating:
        pytest.skip("the local sandbox isolates nothing, and says so")
    sandbox = await new_sandbox(network="gateway")
    await sandbox.serve_gateway(host_port=gateway)
    code = f"import socket\nfor a in ('127.0.0.1', {gateway}), ('192.0.2.1', 80):\n"
    code += "  try: socket.create_connection(a, 3); print('in')\n  except OSError as e: print(e.strerror)"
    said = await sandbox.exec([python, "-c", code], env=env, timeout_s=30)
    assert said.stdout == b"Connection refused\nNetwork is unreachable\n"


async def test_a_unix_socket_of_the_host(
    new_sandbox: Maker, env: Env, python: str, unix_gateway: Path, isolating: bool
) -> None:
    sandbox = await new_sandbox(network="gateway")
    if not isolating:
        with pytest.raises(SandboxError):
            await sandbox.serve_gateway(unix_socket=unix_gateway)
        return
    url = await sandbox.serve_gateway(unix_socket=unix_gateway)
    large = "x" * 100_000
    said = await sandbox.exec([python, "-c", FETCH, url, large], env=env, timeout_s=30)
    assert said.stdout.decode() == large + "\n"


async def test_a_plan_without_gateway_gets_none(sandbox: Sandbox, isolating: bool, gateway: int) -> None:
    if isolating:
        with pytest.raises(SandboxError, match="not 'gateway'"):
            await sandbox.serve_gateway(host_port=gateway)


async def test_after_the_end_nobody_listens(new_sandbox: Maker, gateway: int, isolating: bool) -> None:
    before = threading.active_count()
    sandbox = await new_sandbox(network="gateway")
    await sandbox.serve_gateway(host_port=gateway)
    if isolating:
        with pytest.raises(SandboxError, match="already"):
            await sandbox.serve_gateway(host_port=gateway)
    await sandbox.destroy()
    assert not [thread for thread in threading.enumerate() if thread.name == "pairtrial-gateway"]
    assert threading.active_count() <= before + 1  # the thread that anyio keeps for blocking calls


def test_the_relay_carries_large_bodies_both_ways_at_once(gateway: int) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    relay = Relay.to(listener, host_port=gateway, unix_socket=None)
    answers: list[bool] = []

    def fetch(number: int) -> None:
        body = bytes([number]) * 3_000_000
        with urllib.request.urlopen(f"http://127.0.0.1:{port}", data=body, timeout=30) as answer:
            answers.append(answer.read() == body)

    threads = [threading.Thread(target=fetch, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    relay.close()
    assert answers == [True] * 6


def test_peers_that_reset_and_half_close_leave_the_relay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the connections end rudely, in every place; the next one is served, and nothing is left over."""
    faults: list[object] = []
    monkeypatch.setattr(threading, "excepthook", faults.append)
    rude = struct.pack("ii", 1, 0)

    def answer(server: socket.socket) -> None:
        for number in range(300):
            peer, _ = server.accept()
            with contextlib.suppress(OSError):
                peer.sendall(peer.recv(1 << 16) * 3)
                if number % 4 == 0:
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, rude)
                elif number % 4 == 1:
                    peer.shutdown(socket.SHUT_WR)
            peer.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        listener = socket.create_server(("127.0.0.1", 0))
        place = listener.getsockname()
        threading.Thread(target=answer, args=(server,), daemon=True).start()
        forwarder = _relay.Forwarder(listener, socket.AF_INET, server.getsockname())
        thread = _relay.in_thread(forwarder)
        for number in range(300):
            with socket.create_connection(place, timeout=10) as client, contextlib.suppress(OSError):
                client.sendall(b"x" * (1, 1000, 70_000)[number % 3])
                if number % 5 == 0:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, rude)
                elif number % 5 == 1:
                    client.shutdown(socket.SHUT_WR)
                if number % 5 != 2:
                    assert client.recv(1) in (b"x", b"")
        forwarder.stop()
        thread.join(10)
    assert not thread.is_alive()
    assert faults == []


def test_small_pieces_are_not_held_back(gateway: int) -> None:
    """An answer streams through in pieces of a few bytes: with Nagle's algorithm each would wait for the one before."""
    listener = socket.create_server(("127.0.0.1", 0))
    place = listener.getsockname()
    forwarder = _relay.Forwarder(listener, socket.AF_INET, ("127.0.0.1", gateway))
    thread = _relay.in_thread(forwarder)
    with socket.create_connection(place, timeout=10) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(1)
        near, far = (pair.source for pair in forwarder.pairs[0])
        assert [one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for one in (near, far)] == [1, 1]
    forwarder.stop()
    thread.join(10)


def test_a_dead_server_is_a_closed_connection(tmp_path: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    relay = Relay.to(listener, host_port=None, unix_socket=tmp_path / "nobody")
    with socket.create_connection(listener.getsockname(), 5) as near:
        assert near.recv(10) == b""
    relay.close()


def test_a_relay_wants_exactly_one_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for port, path in ((None, None), (1, tmp_path)):
            with pytest.raises(SandboxError, match="exactly one"):
                Relay.to(listener, host_port=port, unix_socket=path)


def test_the_forwarder_becomes_the_command_and_listens_beside_it(tmp_path: Path, gateway: int) -> None:
    relay = Relay.at(tmp_path / "s", host_port=gateway, unix_socket=None)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    script = f"echo $$; {sys.executable} -c '{FETCH}' http://127.0.0.1:{port} through; exit 4"
    command = [sys.executable, str(FORWARDER), str(port), str(tmp_path / "s"), "--", "sh", "-c", script]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    out, _ = process.communicate(timeout=30)
    assert out.split() == [str(process.pid), "through"] and process.returncode == 4
    subprocess.run(["pkill", "-s", str(process.pid)], check=False)
    relay.close()
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                break
        time.sleep(0.05)
    assert not (tmp_path / "s").exists()


def test_a_long_path_of_a_socket(tmp_path: Path, gateway: int) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    relay = Relay.at(deep / "g", host_port=gateway, unix_socket=None)
    assert (deep / "g").is_socket()
    relay.close()
    with pytest.raises(SandboxError, match="longer"), socket.create_server(("127.0.0.1", 0)) as listener:
        Relay.to(listener, host_port=None, unix_socket=deep / "g")
