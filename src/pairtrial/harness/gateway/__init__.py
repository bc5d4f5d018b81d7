"""The agent's only way out: a loopback server that adds the key, meters, caps, and lets one model through.

The server itself (`pairtrial.harness.gateway.app`, `…server`) is imported where one is started: it brings a web
framework with it, and commands that only read receipts need none.
"""

from __future__ import annotations

from pairtrial.harness.gateway.ledger import Budget, Exchange, HostedServer, Ledger, Route, Terms
from pairtrial.harness.gateway.prices import Price, PriceTable, Tokens, load_prices
from pairtrial.harness.gateway.wire import ENDPOINTS, Family, Request

__all__ = [
    "ENDPOINTS", "Budget", "Exchange", "Family", "HostedServer", "Ledger", "Price",
    "PriceTable", "Request", "Route", "Terms", "Tokens", "load_prices",
]  # fmt: skip
