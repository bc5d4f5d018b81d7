"""The startup assertion: what the agent itself says that it started with, against what the arm registered.

It runs on every rollout, before its outcome is known. A rollout that fails it is ``invalid_environment``: logged,
excluded with its block, and never run again until it passes.
"""

from __future__ import annotations

from pairtrial.harness.agents.base import Expected
from pairtrial.harness.events import Startup


def startup_problems(startup: Startup, expected: Expected) -> tuple[str, ...]:
    """Everything in which a startup event differs from what the arm registered; empty when it is right."""
    problems: list[str] = []

    def same(what: str, seen: object, wanted: object) -> None:
        if seen != wanted:
            problems.append(f"{what} is {seen!r}, registered is {wanted!r}")

    same("agent", startup.agent, expected.agent)
    same("version", startup.version, expected.version)
    same("model", startup.model, expected.model)
    names = [server.name for server in startup.mcp_servers]
    for name in sorted({n for n in names if names.count(n) > 1}):
        problems.append(f"MCP server {name!r} is listed twice")
    for name in sorted(set(expected.servers) - set(names)):
        problems.append(f"MCP server {name!r} is missing: the treatment was not delivered")
    for server in startup.mcp_servers:
        if server.name not in expected.servers:
            problems.append(f"MCP server {server.name!r} is an intruder")
        elif server.status != "connected":
            problems.append(f"MCP server {server.name!r} is {server.status!r}, not connected")
        else:
            same(f"tools of {server.name!r}", sorted(server.tools or ()), sorted(expected.servers[server.name]))
    same("tools", sorted(startup.tools), sorted(expected.tools))
    for skill in startup.skills:
        problems.append(f"skill {skill!r} is an intruder")
    for name in sorted(startup.undeclared):
        problems.append(f"{name!r} is reported at start-up and no arm declares it")
    same("context files", sorted(startup.context_files), sorted(expected.context_files))
    return tuple(problems)
