"""Latency that the gateway adds to the first byte of a streamed answer. Goal: at most 5 ms at the median.

usage: python benchmarks/gateway.py [ROUNDS]

A provider on loopback answers at once; requests go to it directly and through the gateway in turn, so that what else
the machine does hits both alike. The request has the size of a real agent's (90 kB, 25 tool schemas).
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from pairtrial.harness.gateway import Budget, Family, PriceTable, Route, Terms
from pairtrial.harness.gateway.answers import Answer, render
from pairtrial.harness.gateway.app import Gateway
from pairtrial.harness.gateway.server import GatewayServer
from pairtrial.harness.gateway.wire import classify

TOOLS = [{"name": f"tool_{n}", "description": "words " * 500, "input_schema": {"type": "object"}} for n in range(25)]
BODY = json.dumps(
    {
        "model": "m",
        "stream": True,
        "max_tokens": 1000,
        "tools": TOOLS,
        "messages": [{"role": "user", "content": "x" * 14_000}],
    }
).encode()
PRICES = {"m": {"input": "3", "output": "15", "cache_read": "0.3", "cache_write": "3.75", "max_output_tokens": 1000}}


class Provider(BaseHTTPRequestHandler):
    """Answers at once."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # as real servers have it; else their second small write waits 40 ms

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        request = classify("POST", self.path, raw)
        assert request is not None
        kind, pieces = render(request, Answer(text="hello", input_tokens=10))
        data = b"".join(pieces)
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        """Nothing on stderr."""


def first_byte(client: httpx.Client, url: str, token: str) -> float:
    """Milliseconds to the first byte of the body."""
    begun = time.perf_counter()
    with client.stream("POST", f"{url}/v1/messages", content=BODY, headers={"x-api-key": token}) as answer:
        pieces = answer.iter_raw()
        next(pieces)
        spent = time.perf_counter() - begun
        for _ in pieces:
            pass
    return spent * 1000


def main(rounds: int) -> int:
    """Print medians; 1 when the goal is missed."""
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    upstream.daemon_threads = True
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    direct = f"http://127.0.0.1:{upstream.server_address[1]}"
    prices = PriceTable.model_validate({"schema": "pairtrial.prices.v1", "as_of": "2026-11-30", "models": PRICES})
    with GatewayServer(Gateway(Budget(Decimal(10**6)), prices)) as server, httpx.Client(trust_env=False) as client:
        terms = Terms(Route(Family.ANTHROPIC, direct, None), "m", frozenset({"m"}), Decimal(10**6))
        ledger = server.open(terms)
        through = f"http://127.0.0.1:{server.port}"
        times: dict[str, list[float]] = {"direct": [], "gateway": []}
        for turn in range(rounds + 20):
            pair = {
                name: first_byte(client, url, ledger.token) for name, url in (("direct", direct), ("gateway", through))
            }
            if turn >= 20:
                for name, value in pair.items():
                    times[name].append(value)
    added = [two - one for one, two in zip(times["direct"], times["gateway"], strict=True)]
    for name, values in (*times.items(), ("added", added)):
        low, middle, high = (
            statistics.quantiles(values, n=20)[0],
            statistics.median(values),
            statistics.quantiles(values, n=20)[-1],
        )
        print(f"{name:>8}: median {middle:6.2f} ms, 5 % {low:6.2f} ms, 95 % {high:6.2f} ms")
    print(f"request {len(BODY)} bytes, {rounds} pairs")
    return 0 if statistics.median(added) <= 5 else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 300))
