"""The command line and the MCP config file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pairtrial.harness.tinker import MODELS


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One stdio server of the config file."""

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Options:
    """The command line."""

    model: str
    servers: tuple[ServerConfig, ...]
    max_steps: int
    seed: int


def parse_options(argv: Sequence[str]) -> Options:
    """Read the command line and the file that it names; SystemExit(2) with one line on what is wrong."""
    parser = argparse.ArgumentParser(prog="tinker", description="Search for a one-edit repair.", allow_abbrev=False)
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--mcp-config", type=Path, required=True, metavar="FILE")
    parser.add_argument("--max-steps", type=int, default=200, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    arguments = parser.parse_args(argv)
    if arguments.max_steps < 0:
        parser.error("--max-steps must not be negative")
    try:
        servers = parse_servers(arguments.mcp_config.read_bytes())
    except OSError as fault:
        parser.error(f"--mcp-config {arguments.mcp_config.name}: {fault.strerror}")
    except ValueError as fault:
        parser.error(f"--mcp-config {arguments.mcp_config.name}: {fault}")
    return Options(arguments.model, servers, arguments.max_steps, arguments.seed)


def parse_servers(data: bytes) -> tuple[ServerConfig, ...]:
    """Servers of the config file in its order; ValueError that names the field."""
    value = json.loads(data)
    if not isinstance(value, dict) or not isinstance(value.get("mcpServers"), dict):
        raise ValueError("'mcpServers' must be an object")
    servers = []
    for name, entry in value["mcpServers"].items():
        where = f"mcpServers.{name}"
        if not isinstance(entry, dict) or not isinstance(entry.get("command"), str):
            raise ValueError(f"{where}.command must be a string")
        args, env = entry.get("args", []), entry.get("env", {})
        if not isinstance(args, list) or not all(isinstance(item, str) for item in args):
            raise ValueError(f"{where}.args must be a list of strings")
        if not isinstance(env, dict) or not all(isinstance(item, str) for item in env.values()):
            raise ValueError(f"{where}.env must map names to strings")
        servers.append(ServerConfig(name, entry["command"], tuple(args), env))
    return tuple(servers)
