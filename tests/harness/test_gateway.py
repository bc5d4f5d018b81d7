"""The running gateway between a client and a scripted provider, all on loopback."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from scripted import Scripted, scripted

from pairtrial.core.errors import SandboxError
from pairtrial.harness.gateway import (
    Budget,
    Family,
    HostedServer,
    Ledger,
    PriceTable,
    Request,
    Route,
    Terms,
)
from pairtrial.harness.gateway.app import Gateway
from pairtrial.harness.gateway.server import GatewayServer

KEY = "sk-test-1f9c2d7e4b8a"
ENVIRONMENT = {"THE_KEY": KEY, "VENDOR_KEY": "vendor-5150-secret"}
PRICES = PriceTable.model_validate(
    {"schema": "pairtrial.prices.v1", "as_of": "2026-11-30", "models": {"m-1": {
        "input": "10", "output": "100", "cache_read": "1", "cache_write": "20", "max_output_tokens": 100}}}
)  # fmt: skip
SCRIPT: dict[str, Any] = {"steps": [{"say": "hello"}]}
TOOLS = [{"name": "Read", "input_schema": {}}]
PATHS = {
    Family.ANTHROPIC: ("/v1/messages", "x-api-key"),
    Family.OPENAI: ("/v1/responses", "authorization"),
    Family.GEMINI: ("/v1beta/models/m-1:generateContent", "x-goog-api-key"),
}


def terms(url: str, family: Family = Family.ANTHROPIC, **changes: Any) -> Terms:
    route = Route(family, url, "THE_KEY")
    return replace(Terms(route, "m-1", frozenset({"m-1"}), Decimal(10)), **changes)


@pytest.fixture
def server() -> Iterator[GatewayServer]:
    with GatewayServer(Gateway(Budget(Decimal(100)), PRICES, environment=ENVIRONMENT)) as running:
        yield running


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Scripted]:
    with scripted(SCRIPT, tmp_path) as running:
        yield running


def ask(
    server: GatewayServer,
    token: str,
    *,
    path: str = "/v1/messages",
    header: str = "x-api-key",
    body: dict[str, Any] | None = None,
    **more: Any,
) -> httpx.Response:
    value = f"Bearer {token}" if header == "authorization" else token
    whole = {"model": "m-1", "max_tokens": 50, "messages": [], "tools": TOOLS, **(body or {})}
    url = f"http://127.0.0.1:{server.port}{path}"
    return httpx.post(url, json=whole, headers={header: value}, trust_env=False, timeout=20, **more)


@pytest.mark.parametrize("family", list(Family))
def test_adds_the_key_and_meters(server: GatewayServer, provider: Scripted, family: Family) -> None:
    ledger = server.open(terms(provider.url, family))
    path, header = PATHS[family]
    answer = ask(server, ledger.token, path=path, header=header)
    assert answer.status_code == 200
    assert "hello" in answer.text
    sent = provider.requests[0]
    assert sent["headers"][header] == (f"Bearer {KEY}" if family is Family.OPENAI else KEY)
    assert ledger.token not in json.dumps(sent)
    exchange = ledger.exchanges[0]
    assert exchange.tokens.output == 20
    assert exchange.tokens.input == sent["bytes"] // 4
    # 10 dollars a million fresh input tokens, 100 a million output tokens
    assert exchange.cost == (Decimal(10) * (sent["bytes"] // 4) + Decimal(100) * 20) / 1_000_000
    assert ledger.spent == exchange.cost
    assert server.gateway.budget.spent == exchange.cost
    assert server.gateway.budget.reserved == 0


def test_the_key_of_the_query_is_a_token_and_goes_no_further(server: GatewayServer, provider: Scripted) -> None:
    ledger = server.open(terms(provider.url, Family.GEMINI))
    url = f"http://127.0.0.1:{server.port}/v1beta/models/m-1:generateContent?key={ledger.token}&alt=json"
    assert httpx.post(url, json={"contents": []}, trust_env=False).status_code == 200
    assert provider.requests[0]["path"] == "/v1beta/models/m-1:generateContent?alt=json"


def test_no_record_holds_the_key(server: GatewayServer, provider: Scripted) -> None:
    ledger = server.open(terms(provider.url))
    ask(server, ledger.token)
    kept = b"".join(item.request + bytes(item.answer) for item in ledger.exchanges)
    assert kept
    assert KEY.encode() not in kept
    assert KEY not in repr(ledger.terms)


def test_the_request_body_goes_through_unchanged(server: GatewayServer, provider: Scripted) -> None:
    ledger = server.open(terms(provider.url))
    raw = b'{ "model":"m-1",  "tools":[{"name":"Read"}], "messages":[], "odd": "\\u2028 \\ud800" }'
    url = f"http://127.0.0.1:{server.port}/v1/messages?beta=true"
    httpx.post(url, content=raw, headers={"x-api-key": ledger.token, "anthropic-beta": "b-1"}, trust_env=False)
    sent = provider.requests[0]
    assert sent["bytes"] == len(raw)
    assert ledger.exchanges[0].request == raw
    assert sent["path"] == "/v1/messages?beta=true"
    assert sent["headers"]["anthropic-beta"] == "b-1"


def test_unknown_and_closed_tokens_open_nothing(server: GatewayServer, provider: Scripted) -> None:
    ledger = server.open(terms(provider.url))
    assert ask(server, "0" * 48).status_code == 401
    server.close(ledger)
    assert ask(server, ledger.token).status_code == 401
    assert provider.requests == []


def test_another_model_is_refused(server: GatewayServer, provider: Scripted) -> None:
    ledger = server.open(terms(provider.url))
    answer = ask(server, ledger.token, body={"model": "m-2"})
    assert answer.status_code == 403
    assert answer.json()["error"]["type"] == "permission_error"
    assert provider.requests == []
    assert ledger.exchanges[0].refused is not None
    assert ledger.problems == []


def test_another_api_is_refused(server: GatewayServer, provider: Scripted) -> None:
    ledger = server.open(terms(provider.url))
    assert ask(server, ledger.token, path="/v1/responses").status_code == 404
    assert ask(server, ledger.token, path="/v1/files").status_code == 404
    assert provider.requests == []


def test_served_model_is_checked_on_every_message(server: GatewayServer, tmp_path: Path) -> None:
    """A15: only the message itself says which model answered."""
    with scripted({**SCRIPT, "faults": {"2": {"model": "m-cheap"}}}, tmp_path) as provider:
        ledger = server.open(terms(provider.url))
        ask(server, ledger.token)
        assert ledger.problems == []
        ask(server, ledger.token)
        assert ledger.problems == ["asked for m-1, m-cheap answered"]
        assert ask(server, ledger.token).status_code == 403  # nothing more is spent on a void rollout


def test_dated_name_of_the_same_model_can_be_registered(server: GatewayServer, tmp_path: Path) -> None:
    with scripted({**SCRIPT, "faults": {"*": {"model": "m-1-20260101"}}}, tmp_path) as provider:
        ledger = server.open(terms(provider.url, served=frozenset({"m-1", "m-1-20260101"})))
        ask(server, ledger.token)
        assert ledger.problems == []


def test_rollout_cap_is_enforced_before_the_request_leaves(server: GatewayServer, provider: Scripted) -> None:
    # the ceiling of this request: half its bytes at 20 dollars a million, 50 tokens of answer at 100
    ledger = server.open(terms(provider.url, cap_usd=Decimal("0.008")))
    seen = [ask(server, ledger.token).status_code for _ in range(4)]
    assert seen[0] == 200
    assert seen[-1] == 403
    assert ledger.capped
    assert ledger.spent <= Decimal("0.008")
    assert len(provider.requests) == seen.count(200)


def test_experiment_cap_counts_what_is_under_way(tmp_path: Path) -> None:
    """Bug report 57: four workers that each look at the books before any of them has paid."""
    with scripted({**SCRIPT, "faults": {"*": {"sleep": 0.4}}}, tmp_path) as provider:
        gateway = Gateway(Budget(Decimal("0.015")), PRICES, environment=ENVIRONMENT)
        with GatewayServer(gateway) as server:
            ledgers = [server.open(terms(provider.url)) for _ in range(4)]
            statuses: list[int] = []
            threads = [
                threading.Thread(target=lambda one=one: statuses.append(ask(server, one.token).status_code))
                for one in ledgers
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        # one request may cost up to about 0.0067 dollars, so two fit under way and the others wait outside
        assert sorted(statuses) == [200, 200, 403, 403]
        assert gateway.budget.spent <= Decimal("0.015")


def test_unmetered_answer_is_charged_at_its_ceiling(server: GatewayServer, tmp_path: Path) -> None:
    with scripted({**SCRIPT, "faults": {"*": {"cut": 1}}}, tmp_path) as provider:
        ledger = server.open(terms(provider.url))
        ask(server, ledger.token, body={"stream": True})
    exchange = ledger.exchanges[0]
    assert exchange.cost is None
    assert not exchange.finished
    size = exchange.request_bytes
    assert exchange.charged == (Decimal(20) * (size // 2 + 1) + Decimal(100) * 50) / 1_000_000


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 529])
def test_provider_errors_pass_unchanged(server: GatewayServer, tmp_path: Path, status: int) -> None:
    fault = {"status": status, "message": "from the provider", "headers": {"retry-after": "7", "request-id": "r"}}
    with scripted({**SCRIPT, "faults": {"*": fault}}, tmp_path) as provider:
        ledger = server.open(terms(provider.url))
        answer = ask(server, ledger.token)
    assert answer.status_code == status
    assert answer.json()["error"]["message"] == "from the provider"
    assert answer.headers["retry-after"] == "7"
    assert ledger.spent == 0
    assert ledger.exchanges[0].error


def test_provider_that_is_away_is_a_502(server: GatewayServer) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        ledger = server.open(terms(f"http://127.0.0.1:{closed.getsockname()[1]}"))
        assert ask(server, ledger.token).status_code == 502
    assert ledger.spent == 0


def test_count_tokens_costs_nothing(server: GatewayServer, provider: Scripted) -> None:
    ledger = server.open(terms(provider.url))
    answer = ask(server, ledger.token, path="/v1/messages/count_tokens")
    assert answer.json() == {"input_tokens": provider.requests[0]["bytes"] // 4}
    assert ledger.spent == 0
    assert ledger.first is None


def test_first_request_is_checked_before_it_leaves(server: GatewayServer, provider: Scripted) -> None:
    """A5 on the wire: a rollout whose treatment is missing ends without a token spent."""

    def check(request: Request) -> Sequence[str]:
        return ("tool mcp__bm25__search is missing",) if request.main else ()

    ledger = server.open(terms(provider.url, check=check))
    assert ask(server, ledger.token).status_code == 403
    assert provider.requests == []
    assert ledger.problems == ["tool mcp__bm25__search is missing"]
    assert ledger.halted is not None


def test_first_byte_does_not_wait_for_the_last(server: GatewayServer) -> None:
    """Streaming: a provider that stops in the middle of its answer has its first half delivered."""
    release = threading.Event()

    class Slow(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write(b"data: {}\n\n")
            release.wait(10)
            self.wfile.write(b"data: {}\n\n")

        def log_message(self, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as upstream:
        threading.Thread(target=upstream.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        ledger = server.open(terms(f"http://127.0.0.1:{upstream.server_address[1]}"))
        url = f"http://127.0.0.1:{server.port}/v1/messages"
        headers = {"x-api-key": ledger.token}
        body = {"model": "m-1", "stream": True}
        with httpx.stream("POST", url, json=body, headers=headers, trust_env=False, timeout=10) as answer:
            pieces = answer.iter_raw()
            assert next(pieces) == b"data: {}\n\n"
            assert not release.is_set()
            release.set()
            assert b"".join(pieces) == b"data: {}\n\n"
        upstream.shutdown()


def test_agent_that_hangs_up_is_charged(server: GatewayServer, tmp_path: Path) -> None:
    with scripted({**SCRIPT, "faults": {"*": {"sleep": 1.0}}}, tmp_path) as provider:
        ledger = server.open(terms(provider.url))
        with pytest.raises(httpx.ReadTimeout):
            url = f"http://127.0.0.1:{server.port}/v1/messages"
            body = {"model": "m-1", "max_tokens": 50, "tools": TOOLS}
            httpx.post(url, json=body, headers={"x-api-key": ledger.token}, trust_env=False, timeout=0.2)
        deadline = time.monotonic() + 5
        while not ledger.spent and time.monotonic() < deadline:
            time.sleep(0.05)
    assert ledger.spent > 0
    assert server.gateway.budget.reserved == 0


def test_relay_adds_the_vendors_key_and_knows_only_declared_servers(server: GatewayServer) -> None:
    seen: list[tuple[str, str, bytes]] = []

    class Vendor(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            seen.append((self.path, self.headers["authorization"], body))
            self.send_response(200)
            self.send_header("mcp-session-id", "s-1")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Vendor) as vendor:
        threading.Thread(target=vendor.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        hosted = {"docs": HostedServer(f"http://127.0.0.1:{vendor.server_address[1]}/mcp", "VENDOR_KEY")}
        ledger = server.open(terms("http://unused.invalid", hosted=hosted))
        base = f"http://127.0.0.1:{server.port}/mcp/"
        headers = {"authorization": f"Bearer {ledger.token}"}
        answer = httpx.post(base + "docs", content=b"ping", headers=headers, trust_env=False)
        assert (answer.status_code, answer.headers["mcp-session-id"]) == (200, "s-1")
        assert seen == [("/mcp", "Bearer vendor-5150-secret", b"ping")]
        assert httpx.post(base + "other", content=b"", headers=headers, trust_env=False).status_code == 404
        assert ledger.problems == ["asked for hosted MCP server 'other', which the arm does not declare"]
        vendor.shutdown()


def test_dead_gateway_is_a_lost_sandbox(provider: Scripted) -> None:
    server = GatewayServer(Gateway(Budget(Decimal(1)), PRICES))
    server.start()
    server.open(terms(provider.url))
    server.stop()
    with pytest.raises(SandboxError):
        server.demand()
    with pytest.raises(SandboxError):
        server.open(terms(provider.url))


def test_unix_socket_serves_the_same(server: GatewayServer, provider: Scripted) -> None:
    ledger: Ledger = server.open(terms(provider.url))
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(server.socket_path))) as client:
        answer = client.post(
            "http://gateway/v1/messages",
            json={"model": "m-1", "messages": []},
            headers={"x-api-key": ledger.token},
        )
    assert answer.status_code == 200
