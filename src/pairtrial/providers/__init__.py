"""Context layers under test: the contract and how one is loaded."""

from __future__ import annotations

from pairtrial.providers.contract import AgentConfig, Index, Provider, Server, expand, mcp_template
from pairtrial.providers.loading import load_provider

__all__ = ["AgentConfig", "Index", "Provider", "Server", "expand", "load_provider", "mcp_template"]
