"""The startup assertion: what the agent itself says that it started with, against what the arm registered.

It runs on every rollout, before its outcome is known. A rollout that fails it is ``invalid_environment``: logged,
excluded with its block, and never run again until it passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pairtrial.harness.agents.base import Expected
from pairtrial.harness.events import ServerStatus, Startup


def startup_problems(startup: Startup, expected: Expected) -> tuple[str, ...]:
    """Everything in which a startup event differs from what the arm registered; empty when it is right.

    What the agent's startup event gives no evidence of (``expected.covers``) is read off its first request instead.
    """
    problems: list[str] = []
    optional = set(expected.optional_tools)

    def same(what: str, seen: object, wanted: object) -> None:
        if seen != wanted:
            problems.append(f"{what} is {seen!r}, registered is {wanted!r}")

    same("agent", startup.agent, expected.agent)
    same("version", startup.version, expected.version)
    same("model", startup.model, expected.model)
    if "servers" in expected.covers:
        problems += server_problems(startup.mcp_servers, expected)
    if "tools" in expected.covers:
        same("tools", sorted(tool for tool in startup.tools if tool not in optional), sorted(expected.tools))
    for skill in sorted(set(startup.skills) - set(expected.skills)):
        problems.append(f"skill {skill!r} is an intruder")
    for skill in sorted(set(expected.skills) - set(startup.skills)):
        problems.append(f"skill {skill!r} is missing: the treatment was not delivered")
    for name in sorted(startup.undeclared):
        problems.append(
            f"{name!r} is reported at start-up and no arm declares it: {str(startup.undeclared[name])[:200]}"
        )
    if "context" in expected.covers:
        same("context files", sorted(startup.context_files), sorted(expected.context_files))
    return tuple(problems)


def server_problems(
    servers: Sequence[ServerStatus], expected: Expected, *, tools: bool = True, errors: Mapping[str, str] | None = None
) -> list[str]:
    """The same for MCP servers alone; without their ``tools`` where the agent does not tell them here."""
    problems = []
    why = {name: f" ({text})" for name, text in (errors or {}).items()}
    names = [server.name for server in servers]
    for name in sorted({n for n in names if names.count(n) > 1}):
        problems.append(f"MCP server {name!r} is listed twice")
    for name in sorted(set(expected.servers) - set(names)):
        problems.append(f"MCP server {name!r} is missing: the treatment was not delivered")
    for server in servers:
        if server.name not in expected.servers:
            problems.append(f"MCP server {server.name!r} is an intruder")
        elif server.status != "connected":
            problems.append(f"MCP server {server.name!r} is {server.status!r}, not connected{why.get(server.name, '')}")
        elif tools and sorted(server.tools) != sorted(expected.servers[server.name]):
            seen, wanted = sorted(server.tools), sorted(expected.servers[server.name])
            problems.append(f"tools of {server.name!r} is {seen!r}, registered is {wanted!r}")
    return problems
