"""Accounts: what each rollout sent and spent, its caps, and what stops it."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from pairtrial.harness.agents.base import Expected
from pairtrial.harness.gateway.prices import PriceTable, Tokens
from pairtrial.harness.gateway.wire import Family, Request

WIRE_BYTES = 48 << 20
"""Of the bodies of one rollout this much is kept for its wire log."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a rollout's requests go, and as whom."""

    family: Family
    endpoint: str
    credential: str | None
    """Name of the environment variable that holds the key; None for an endpoint that wants none."""


@dataclass(frozen=True, slots=True)
class HostedServer:
    """A hosted MCP server that the relay forwards to."""

    url: str
    credential: str | None = None
    header: str = "authorization"


@dataclass(frozen=True, slots=True)
class Terms:
    """What one rollout may do."""

    route: Route
    model: str
    """The only model that it may ask for."""
    served: frozenset[str]
    """Names by which that model may answer."""
    cap_usd: Decimal
    check: Callable[[Request], tuple[str, ...]] | None = None
    """Looks at the first request with tools before it leaves; what it returns ends the rollout."""
    expected: Expected | None = None
    """The arm as registered, for the record of what the wire said."""
    hold: bool = False
    """Hold the first request with tools back until the rollout is cleared."""
    turns: int | None = None
    """Answers to requests with tools after which no further one is let through."""
    hosted: Mapping[str, HostedServer] = field(default_factory=dict)


@dataclass(slots=True)
class Exchange:
    """One request and its answer."""

    number: int
    dialect: str
    path: str
    main: bool
    model: str | None
    request_bytes: int
    status: int | None = None
    """HTTP status that the agent saw; None when it left before there was one."""
    refused: str | None = None
    """Why the gateway did not pass it on."""
    served: tuple[str, ...] = ()
    tokens: Tokens = field(default_factory=Tokens)
    finished: bool = False
    error: bool = False
    answer_bytes: int = 0
    cost: Decimal | None = None
    charged: Decimal = Decimal(0)
    """What it counts for against the caps: its cost, or its ceiling where the cost is not known."""
    request: bytes = b""
    answer: bytearray = field(default_factory=bytearray)


class Ledger:
    """The account of one rollout. Every method may be called from any thread."""

    def __init__(self, terms: Terms, prices: PriceTable, parent: Budget) -> None:
        self.terms = terms
        self.prices = prices
        self.parent = parent
        self.token = secrets.token_hex(24)
        self.exchanges: list[Exchange] = []
        self.problems: list[str] = []
        """What was wrong on the wire: the rollout is void."""
        self.capped = False
        """A request was held back by a cap."""
        self.cleared = False
        """What the agent said that it started with was checked and is right."""
        self.closed = False
        self.turned = False
        """A request was held back by the turn limit."""
        self.relayed = 0
        self.wire_truncated = False
        self.first: Request | None = None
        """The first request with tools."""
        self._kept = 0
        self._reserved = Decimal(0)
        self._spent = Decimal(0)
        self._lock = threading.Lock()

    @property
    def spent(self) -> Decimal:
        """Charged so far."""
        with self._lock:
            return self._spent

    @property
    def halted(self) -> str | None:
        """Why the agent should be stopped at once; None while it may go on."""
        if self.problems:
            return self.problems[0]
        if self.capped:
            return "a spend cap was reached"
        return "the turn limit was reached" if self.turned else None

    @property
    def answers(self) -> int:
        """Answers to requests with tools so far: turns of the agent."""
        return sum(item.main and item.status is not None and item.status < 400 for item in list(self.exchanges))

    @property
    def tokens(self) -> Tokens:
        """All classes over all exchanges."""
        total = Tokens()
        for exchange in list(self.exchanges):
            total = total + exchange.tokens
        return total

    def open(self, request: Request | None, path: str, raw: bytes) -> Exchange:
        """Enter a request."""
        with self._lock:
            exchange = Exchange(
                number=len(self.exchanges) + 1,
                dialect=request.dialect if request else "unknown",
                path=path,
                main=request.main if request else False,
                model=request.model if request else None,
                request_bytes=len(raw),
                request=self._keep(raw),
            )
            self.exchanges.append(exchange)
            return exchange

    def _keep(self, raw: bytes) -> bytes:
        room = WIRE_BYTES - self._kept
        if len(raw) > room:
            self.wire_truncated = True
        kept = raw[: max(0, room)]
        self._kept += len(kept)
        return kept

    def keep_answer(self, exchange: Exchange, piece: bytes) -> None:
        """Remember bytes of an answer, within the cap."""
        exchange.answer_bytes += len(piece)
        with self._lock:
            exchange.answer += self._keep(piece)

    def reserve(self, amount: Decimal) -> bool:
        """Hold money for a request; False when it could pass a cap of the rollout or of the experiment."""
        with self._lock:
            if self._spent + self._reserved + amount > self.terms.cap_usd or not self.parent.reserve(amount):
                self.capped = True
                return False
            self._reserved += amount
            return True

    def settle(self, exchange: Exchange, reserved: Decimal) -> None:
        """Replace what was held for a request by what it cost."""
        price = self.prices.models.get(self.terms.model)
        answered = exchange.status is not None and exchange.status < 400
        if price is not None and exchange.tokens.complete:
            exchange.cost = price.cost(exchange.tokens)
            exchange.charged = exchange.cost
        elif answered or exchange.status is None:
            exchange.charged = reserved
        with self._lock:
            self._reserved -= reserved
            self._spent += exchange.charged
            self.parent.settle(reserved, exchange.charged)
        strangers = [name for name in exchange.served if name not in self.terms.served]
        if strangers:
            self.problem(f"asked for {self.terms.model}, {', '.join(strangers)} answered")

    def clear(self) -> None:
        """Let the agent's first request through."""
        self.cleared = True

    def problem(self, text: str) -> None:
        """Enter what makes the rollout void."""
        with self._lock:
            if text not in self.problems:
                self.problems.append(text)


class Budget:
    """The money of the whole experiment."""

    def __init__(self, ceiling: Decimal, spent: Decimal = Decimal(0)) -> None:
        self.ceiling = ceiling
        self.spent = spent
        self.reserved = Decimal(0)
        self._lock = threading.Lock()

    def reserve(self, amount: Decimal) -> bool:
        """Hold money; False when the ceiling could be passed."""
        with self._lock:
            if self.spent + self.reserved + amount > self.ceiling:
                return False
            self.reserved += amount
            return True

    def settle(self, reserved: Decimal, charged: Decimal) -> None:
        """Replace held money by what was charged."""
        with self._lock:
            self.reserved -= reserved
            self.spent += charged
