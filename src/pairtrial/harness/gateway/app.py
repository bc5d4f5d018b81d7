"""The gateway itself: one Starlette application on loopback between every agent and its provider."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from decimal import Decimal
from urllib.parse import parse_qsl, urlencode

import anyio
import httpx
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as HttpRoute

from pairtrial.harness.gateway.answers import STAND_IN, Answer, refusal, render
from pairtrial.harness.gateway.ledger import Budget, Exchange, Ledger, Terms
from pairtrial.harness.gateway.meter import Meter
from pairtrial.harness.gateway.prices import PriceTable
from pairtrial.harness.gateway.relay import relay
from pairtrial.harness.gateway.wire import Family, Kind, Request, classify

HOP_BY_HOP = frozenset(
    ("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding",
     "upgrade", "host", "content-length")
)  # fmt: skip
SECRET_HEADERS = frozenset(("x-api-key", "authorization", "x-goog-api-key", "cookie", "api-key"))
HOLD_S, HOLD_STEP_S = 20.0, 0.005
TIMEOUT = httpx.Timeout(connect=15.0, read=900.0, write=60.0, pool=30.0)


class Gateway:
    """Accounts and application. `pairtrial.harness.gateway.server` gives it a port and a thread.

    Parameters
    ----------
    budget
        The experiment's money.
    prices
        The registered price table.
    environment
        Where credentials are read from, by name, at the moment of a request.
    transport
        Another way to reach providers; tests use it.
    """

    def __init__(
        self,
        budget: Budget,
        prices: PriceTable,
        *,
        environment: Mapping[str, str] = os.environ,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.budget = budget
        self.prices = prices
        self.environment = environment
        self._ledgers: dict[str, Ledger] = {}
        self._transport = transport
        self._client: httpx.AsyncClient | None = None
        every = ["GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"]
        self.app = Starlette(routes=[HttpRoute("/{path:path}", self.handle, methods=every)])

    def open(self, terms: Terms) -> Ledger:
        """An account for one rollout; its token is the only thing that the agent gets."""
        ledger = Ledger(terms, self.prices, self.budget)
        self._ledgers[ledger.token] = ledger
        return ledger

    def close(self, ledger: Ledger) -> None:
        """From now on the token opens nothing, and a request that was held back goes nowhere."""
        ledger.closed = True
        self._ledgers.pop(ledger.token, None)

    @property
    def client(self) -> httpx.AsyncClient:
        """The one client; belongs to the event loop of the server's thread. Reads no proxy or netrc settings."""
        if self._client is None:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
            self._client = httpx.AsyncClient(
                timeout=TIMEOUT, limits=limits, transport=self._transport, trust_env=False, follow_redirects=False
            )
        return self._client

    def credential(self, name: str | None) -> str | None:
        """Value of a credential, read when it is needed and kept nowhere."""
        return self.environment.get(name) if name else None

    async def handle(self, http: HttpRequest) -> Response:
        """Every request of every agent."""
        path = http.url.path
        ledger = self._ledgers.get(token_of(http) or "")
        if ledger is None:
            return _refuse(None, path, 401, "no rollout has this token")
        if path.startswith("/mcp/"):
            return await relay(self, ledger, http, path.removeprefix("/mcp/"))
        raw = await http.body()
        request = classify(http.method, path, raw)
        if request is None or request.family is not ledger.terms.route.family:
            return self._turn_away(ledger, http, path, raw)
        exchange = ledger.open(request, path, raw)
        if request.main and ledger.terms.hold:
            await _cleared(ledger)
        if why := _not_allowed(ledger, request):
            exchange.refused, exchange.status = why, 403
            return _refuse(request.dialect, path, 403, why)
        held = Decimal(0)
        if request.kind is Kind.MODEL:
            price = self.prices.models.get(ledger.terms.model)
            held = price.ceiling(request.size, request.max_output) if price else Decimal(0)
            if not ledger.reserve(held):
                exchange.refused, exchange.status = "a spend cap would be passed", 403
                return _refuse(request.dialect, path, 403, f"pairtrial: {exchange.refused}")
        if ledger.terms.route.endpoint == STAND_IN:
            return _stand_in(ledger, exchange, request, held)
        return await self._forward(ledger, exchange, request, http, raw, held)

    def _turn_away(self, ledger: Ledger, http: HttpRequest, path: str, raw: bytes) -> Response:
        if http.method in ("GET", "HEAD"):  # a look whether the server lives, or a list of models
            return _refuse(None, path, 404, "pairtrial's gateway has nothing here")
        exchange = ledger.open(None, path, raw)
        exchange.refused, exchange.status = "not a request that the gateway knows", 404
        return _refuse(None, path, 404, f"pairtrial: {exchange.refused}")

    async def _forward(
        self, ledger: Ledger, exchange: Exchange, request: Request, http: HttpRequest, raw: bytes, held: Decimal
    ) -> Response:
        settled = False
        try:
            outgoing = self._outgoing(ledger, request, http, raw)
            answer = await self.client.send(outgoing, stream=True)
            exchange.status = answer.status_code
            settled = True  # from here the stream settles, also when nobody reads it to its end
            return _Stream(answer, ledger, exchange, request, held)
        except httpx.HTTPError as fault:
            exchange.status, exchange.error = 502, True
            name = type(fault).__name__
            return _refuse(request.dialect, exchange.path, 502, f"pairtrial: the provider was not reached ({name})")
        finally:
            if not settled:
                ledger.settle(exchange, held)

    def _outgoing(self, ledger: Ledger, request: Request, http: HttpRequest, raw: bytes) -> httpx.Request:
        route = ledger.terms.route
        headers = [
            (name, value)
            for name, value in http.headers.items()
            if name not in HOP_BY_HOP and name not in SECRET_HEADERS and name != "accept-encoding"
        ]
        headers.append(("accept-encoding", "identity"))
        key = self.credential(route.credential)
        if key is not None:
            headers.append(credential_header(request.family, route.credential or "", key))
        query = [(name, value) for name, value in parse_qsl(http.url.query, True) if name != "key"]
        url = route.endpoint.rstrip("/") + http.url.path + (f"?{urlencode(query)}" if query else "")
        return self.client.build_request("POST", url, headers=headers, content=raw)

    async def aclose(self) -> None:
        """Give connections back."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None


async def _cleared(ledger: Ledger) -> None:
    """Wait until the harness has seen and checked the agent's startup event: only then may a token be spent."""
    for _ in range(int(HOLD_S / HOLD_STEP_S)):
        if ledger.cleared or ledger.problems or ledger.closed:
            return
        await anyio.sleep(HOLD_STEP_S)
    ledger.problem("the agent asked its model before it said what it had started with")


def _not_allowed(ledger: Ledger, request: Request) -> str | None:
    terms = ledger.terms
    if ledger.closed:
        return "pairtrial: the rollout is over"
    if request.model != terms.model:
        return f"pairtrial: the plan registers {terms.model}, this request asks for {str(request.model)[:100]}"
    if ledger.problems:
        return f"pairtrial: the rollout is void: {ledger.problems[0]}"
    if terms.turns is not None and request.main and ledger.answers >= terms.turns:
        ledger.turned = True
        return f"pairtrial: the plan registers {terms.turns} turns"
    if ledger.first is None and request.main:
        ledger.first = request
        for problem in terms.check(request) if terms.check else ():
            ledger.problem(problem)
        if ledger.problems:
            return f"pairtrial: the rollout is void: {ledger.problems[0]}"
    return None


def token_of(http: HttpRequest) -> str | None:
    """The rollout's token, wherever the agent's provider wants its key."""
    headers = http.headers
    bearer = headers.get("authorization", "")
    if bearer[:7].lower() == "bearer ":
        return bearer[7:].strip()
    return headers.get("x-api-key") or headers.get("x-goog-api-key") or http.query_params.get("key")


def credential_header(family: Family, name: str, key: str) -> tuple[str, str]:
    """Where a provider wants its key. A name that ends in ``_AUTH_TOKEN`` is a bearer token for every provider."""
    if family is Family.OPENAI or name.endswith("_AUTH_TOKEN"):
        return "authorization", f"Bearer {key}"
    return ("x-goog-api-key" if family is Family.GEMINI else "x-api-key"), key


def _refuse(dialect: str | None, path: str, status: int, message: str) -> Response:
    guess = "gemini" if ":" in path else "responses" if path.endswith(("/responses", "/completions")) else "messages"
    return Response(refusal(dialect or guess, status, message), status, media_type="application/json")


def _stand_in(ledger: Ledger, exchange: Exchange, request: Request, held: Decimal) -> Response:
    kind, pieces = render(request, Answer(text="Noted.", input_tokens=0, output_tokens=0))
    exchange.status, exchange.finished = 200, True
    ledger.settle(exchange, held)
    return Response(b"".join(pieces), 200, headers={"content-type": kind})


class _Stream(StreamingResponse):
    """An answer on its way through: every piece goes on as it comes, and the meter reads along."""

    def __init__(
        self, answer: httpx.Response, ledger: Ledger, exchange: Exchange, request: Request, held: Decimal
    ) -> None:
        headers = {name: value for name, value in answer.headers.items() if name not in HOP_BY_HOP}
        if (length := answer.headers.get("content-length")) is not None:
            headers["content-length"] = length
        super().__init__(self._pieces(), answer.status_code, headers)
        self._answer, self._ledger, self._exchange, self._held = answer, ledger, exchange, held
        self._length = int(length) if length is not None and length.isdigit() else None
        self._free = request.kind is Kind.COUNT
        kind = answer.headers.get("content-type", "")
        self._meter = Meter(request.dialect, kind, answer.headers.get("content-encoding", ""))
        self._settled = False

    async def __call__(self, scope: object, receive: object, send: object) -> None:
        try:
            await super().__call__(scope, receive, send)  # type: ignore[arg-type]
        finally:
            self._settle()
            with anyio.CancelScope(shield=True):
                await self._answer.aclose()

    async def _pieces(self) -> AsyncIterator[bytes]:
        async for piece in self._answer.aiter_raw():
            self._meter.feed(piece)
            self._ledger.keep_answer(self._exchange, piece)
            if self._exchange.answer_bytes == self._length:
                self._settle()  # the books are closed before the agent can see the end of the answer and leave
            yield piece
        self._settle()

    def _settle(self) -> None:
        if self._settled:
            return
        self._settled = True
        exchange, meter = self._exchange, self._meter
        meter.close()
        if not self._free:
            exchange.tokens, exchange.served = meter.tokens, tuple(meter.served)
        exchange.finished = meter.finished or self._free
        exchange.error = meter.error or (exchange.status or 0) >= 400
        self._ledger.settle(exchange, self._held)
