"""Agent adapters, found by name at run time."""

from __future__ import annotations

from pairtrial.harness.agents.base import (
    AgentAdapter,
    AgentManifest,
    Expected,
    Invocation,
    Place,
    load_adapter,
    render_prompt,
)

__all__ = ["AgentAdapter", "AgentManifest", "Expected", "Invocation", "Place", "load_adapter", "render_prompt"]
