"""Between a rollout and the gateway: its terms, the check of its first request, and what the wire said afterwards."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import zstandard

from pairtrial.core.errors import PlanError
from pairtrial.harness.agents import AgentAdapter, Expected
from pairtrial.harness.delivery import Arm
from pairtrial.harness.events import ServerStatus
from pairtrial.harness.gateway import ENDPOINTS, Family, HostedServer, Ledger, Request, Route, Terms
from pairtrial.harness.gateway.wire import texts, tool_names
from pairtrial.harness.trial import Trial
from pairtrial.prereg.plan import AgentSpec
from pairtrial.providers import Provider
from pairtrial.runs.receipt import Usage, WireRecord
from pairtrial.runs.redact import Redactor

SCRIPTED_VARIABLE = "PAIRTRIAL_SCRIPTED_MODEL"
"""Address of a scripted model that answers instead of the provider; the lock and every report say so."""
SCRIPTED = "scripted"
PROVIDERS_FAULT = frozenset({401, 402, 403, 404, 408, 409, 429}) | frozenset(range(500, 600))
"""HTTP statuses that say nothing about the agent's own request."""


def make_route(agent: AgentSpec, adapter: AgentAdapter, environment: Mapping[str, str] = os.environ) -> Route | None:
    """Where an agent's requests go; None for an agent that asks no model."""
    api = adapter.api(agent)
    if api is None:
        return None
    family = Family(api.family)
    if scripted := environment.get(SCRIPTED_VARIABLE):
        return Route(family, scripted.rstrip("/"), None)
    credential = agent.credential or api.credential
    return Route(family, (agent.endpoint or ENDPOINTS[family]).rstrip("/"), credential)


def endpoint_identity(
    agent: AgentSpec, adapter: AgentAdapter, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """What the lock says about where answers come from."""
    route = make_route(agent, adapter, environment)
    if route is None:
        return {}
    return {"agent.endpoint": SCRIPTED if environment.get(SCRIPTED_VARIABLE) else route.endpoint}


def demand_credential(route: Route, environment: Mapping[str, str] = os.environ) -> None:
    """Raise `PlanError` before the first rollout when the key is not there (bug report 61)."""
    if route.credential is not None and not environment.get(route.credential):
        raise PlanError(
            f"the environment has no {route.credential}, and every request needs it",
            hint=f"export {route.credential}=…, or set {SCRIPTED_VARIABLE} to a scripted model's address",
            slug="no-credential",
        )


def make_terms(
    agent: AgentSpec,
    adapter: AgentAdapter,
    route: Route,
    cap_usd: Decimal,
    expected: Expected,
    provider: Provider | None,
) -> Terms:
    """What one rollout may do on the wire."""
    servers = provider.config.servers if provider else {}
    context = provider.context if provider else {}

    def check(request: Request) -> tuple[str, ...]:
        return first_request_problems(request, adapter, expected, context)

    return Terms(
        route=route,
        model=agent.model,
        served=frozenset((agent.model, *agent.served)),
        cap_usd=cap_usd,
        check=check,
        expected=expected,
        hold=adapter.starts_first,
        turns=None if adapter.counts_turns else agent.limits.turns,
        hosted={
            name: HostedServer(server.url, server.credential, server.header)
            for name, server in servers.items()
            if server.url is not None
        },
    )


def first_request_problems(
    request: Request, adapter: AgentAdapter, expected: Expected, context: Mapping[str, bytes]
) -> tuple[str, ...]:
    """What the first request with tools lacks, or has too much, against the arm as registered.

    This is the last moment at which nothing has been spent, and what stands here is what the model will see.
    """
    offered = set(tool_names(request))
    spoken = list(texts(request.body))
    problems = []
    wanted = expected.tool_names
    for name, server in sorted(wanted.items()):
        if name not in offered and not any(name in text for text in spoken):
            problems.append(
                f"the model is not offered {name} of MCP server {server!r}: the treatment was not delivered"
            )
    own = set(expected.tools)
    if adapter.wire_tools:
        strangers = offered - own - set(expected.optional_tools) - set(wanted)
        problems += [f"the model is not offered {name}, which the agent should have" for name in sorted(own - offered)]
    else:
        prefix = expected.tool_prefix
        strangers = {name for name in offered - set(wanted) if prefix and name.startswith(prefix)}
    problems += [f"the model is offered {name}, which the arm does not have" for name in sorted(strangers)]
    for path, data in sorted(context.items()):
        marks = context_marks(path, data)
        if marks and not any(mark in text for mark in marks for text in spoken):
            problems.append(f"context file {path} is not in the first request: the treatment was not delivered")
    return tuple(problems)


def context_marks(path: str, data: bytes) -> list[str]:
    """Pieces of a context file of which at least one must reach the model: its longest lines.

    Of a skill only the description is in the first request; the file is read when it is used.
    """
    text = data.decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines()]
    if path.endswith("SKILL.md"):
        lines = [line.partition(":")[2].strip() for line in lines if line.startswith("description:")]
    return sorted((line for line in lines if line), key=len, reverse=True)[:3]


def complete_startup(trial: Trial, ledger: Ledger) -> None:
    """Put what the first request said into the startup record of an agent whose own words do not cover it."""
    seen, first, expected = trial.startup, ledger.first, ledger.terms.expected
    if seen is None or first is None or expected is None or "servers" in expected.covers:
        return
    offered = tool_names(first)
    told = {server.name: server.status for server in seen.mcp_servers}
    servers = []
    for server, tools in expected.servers.items():
        names = tuple(tool for tool in tools if expected.tool_name(server, tool) in offered)
        status = told.get(server, "offered") if names else "absent"
        servers.append(ServerStatus(name=server, status=status, tools=names))
    own = tuple(name for name in offered if name not in expected.tool_names)
    trial.startup = seen.model_copy(update={"mcp_servers": tuple(servers), "tools": own})


def provider_failure(ledger: Ledger) -> str | None:
    """Why the provider, not the agent, ended the run; None when the last answer of the model was whole."""
    asked = [item for item in list(ledger.exchanges) if item.main and item.refused is None]
    if not asked:
        return None
    last = asked[-1]
    if last.status is not None and last.status in PROVIDERS_FAULT:
        return f"the provider answered HTTP {last.status} to the last request"
    return None


def secret_values(route: Route | None, arms: Iterable[Arm], ledger: Ledger | None) -> dict[str, str]:
    """Name → value of everything that must not reach a record, whoever printed it."""
    names = {route.credential} if route else set()
    for arm in arms:
        names |= set(arm.provider.config.credentials) if arm.provider else set()
    secrets = {name: os.environ[name] for name in names if name and os.environ.get(name)}
    if ledger is not None:
        secrets["gateway-token"] = ledger.token
    return secrets


def wire_usage(ledger: Ledger, model: str) -> tuple[Usage, ...]:
    """Usage as the wire said it: what counts, whatever the agent reports about itself."""
    tokens = ledger.tokens
    asked = [item for item in ledger.exchanges if item.refused is None and (item.status is not None or item.charged)]
    if not asked:
        return ()
    writes = [n for n in (tokens.cache_write, tokens.cache_write_1h) if n is not None]
    return (
        Usage(
            model=model,
            steps=sum(item.main and (item.status or 999) < 400 for item in asked),
            input_tokens=tokens.input,
            output_tokens=tokens.output,
            cache_read_tokens=tokens.cache_read,
            cache_write_tokens=sum(writes) if writes else None,
            cost_usd=_money(ledger.spent),
        ),
    )


def wire_record(ledger: Ledger) -> WireRecord:
    """What the receipt says about the wire."""
    price = ledger.prices.models.get(ledger.terms.model)
    tokens = ledger.tokens
    exchanges = list(ledger.exchanges)
    first = ledger.first
    return WireRecord(
        requests=len(exchanges),
        main_requests=sum(item.main for item in exchanges),
        refused=sum(item.refused is not None for item in exchanges),
        errors=sum((item.status or 0) >= 400 and item.refused is None for item in exchanges),
        unfinished=sum(item.main and item.refused is None and not item.finished for item in exchanges),
        unpriced=sum(item.charged > 0 and item.cost is None for item in exchanges),
        relayed=ledger.relayed,
        served=tuple(sorted({name for item in exchanges for name in item.served})),
        first_request_bytes=first.size if first else None,
        first_request_tools=tool_names(first) if first else None,
        cost_neutral_usd=_money(price.neutral_cost(tokens)) if price and tokens.complete else None,
        capped=ledger.capped,
        truncated=ledger.wire_truncated,
    )


def wire_log(ledger: Ledger, redactor: Redactor) -> bytes:
    """Every exchange as one line of JSON, redacted, zstd. Long windows make the repeated conversation small."""
    out = io.BytesIO()
    settings = zstandard.ZstdCompressionParameters.from_level(6, window_log=25, enable_ldm=True)
    with zstandard.ZstdCompressor(compression_params=settings).stream_writer(out, closefd=False) as writer:
        for item in list(ledger.exchanges):
            line: dict[str, Any] = {
                "n": item.number,
                "path": item.path,
                "dialect": item.dialect,
                "main": item.main,
                "model": item.model,
                "status": item.status,
                "refused": item.refused,
                "served": list(item.served),
                "finished": item.finished,
                "request_bytes": item.request_bytes,
                "answer_bytes": item.answer_bytes,
                "tokens": {
                    "input": item.tokens.input,
                    "cache_read": item.tokens.cache_read,
                    "cache_write": item.tokens.cache_write,
                    "cache_write_1h": item.tokens.cache_write_1h,
                    "output": item.tokens.output,
                },
                "cost_usd": None if item.cost is None else _money(item.cost),
                "request": redactor.data(item.request).decode("utf-8", "replace"),
                "answer": redactor.data(bytes(item.answer)).decode("utf-8", "replace"),
            }
            writer.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
    return out.getvalue()


def _money(value: Decimal) -> str:
    """Ten-thousandths of a cent are enough; no exponent."""
    return format(value.quantize(Decimal("0.000001")), "f")
