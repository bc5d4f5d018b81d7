"""Hosted MCP servers: the agent talks to the gateway, the gateway to the vendor, with the vendor's key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import anyio
import httpx
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse

from pairtrial.harness.gateway.ledger import Ledger

if TYPE_CHECKING:
    from pairtrial.harness.gateway.app import Gateway

DROPPED = frozenset(
    ("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "content-length",
     "x-api-key", "authorization", "x-goog-api-key", "cookie", "accept-encoding")
)  # fmt: skip
METHODS = frozenset(("GET", "POST", "DELETE"))


async def relay(gateway: Gateway, ledger: Ledger, http: HttpRequest, name: str) -> Response:
    """Pass one request on to a hosted server that the rollout's arm declares; any other name does not exist."""
    server = ledger.terms.hosted.get(name)
    if server is None:
        ledger.problem(f"asked for hosted MCP server {name[:60]!r}, which the arm does not declare")
        return Response("no such server", 404)
    if http.method not in METHODS:
        return Response("method not allowed", 405)
    ledger.relayed += 1
    headers = [(key, value) for key, value in http.headers.items() if key not in DROPPED]
    headers.append(("accept-encoding", "identity"))
    secret = gateway.credential(server.credential)
    if secret is not None:
        value = f"Bearer {secret}" if server.header == "authorization" else secret
        headers.append((server.header, value))
    outgoing = gateway.client.build_request(http.method, server.url, headers=headers, content=await http.body())
    try:
        answer = await gateway.client.send(outgoing, stream=True)
    except httpx.HTTPError as fault:
        return Response(f"pairtrial: hosted server {name} was not reached ({type(fault).__name__})", 502)
    kept = {key: value for key, value in answer.headers.items() if key not in DROPPED}

    async def pieces() -> AsyncIterator[bytes]:
        try:
            async for piece in answer.aiter_raw():
                yield piece
        finally:
            with anyio.CancelScope(shield=True):
                await answer.aclose()

    return StreamingResponse(pieces(), answer.status_code, kept)
