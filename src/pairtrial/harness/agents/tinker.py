"""Adapter of the embedded repair agent."""

from __future__ import annotations

from pathlib import Path

from pairtrial.core.canonical import tree_digest
from pairtrial.harness.agents.base import Adapter, AgentManifest, Invocation, load_manifest
from pairtrial.prereg.plan import AgentSpec

PROGRAM = Path(__file__).parent.parent / "tinker"


class TinkerAdapter(Adapter):
    """Starts ``python -m pairtrial.harness.tinker`` with the prompt on standard input."""

    def __init__(self) -> None:
        self.manifest: AgentManifest = load_manifest(__file__)

    def program_digest(self, agent: AgentSpec) -> str:
        """Digest of the agent's source."""
        return tree_digest(PROGRAM, exclude=("__pycache__",))

    def invocation(self, agent: AgentSpec, prompt: str) -> Invocation:
        """The command line; the turn limit is its number of repair steps.

        ``-I`` keeps the task's own packages out of the agent's process: the workspace may hold a broken copy of
        something that the agent itself imports.
        """
        argv = (
            "${PYTHON}", "-I", "-m", "pairtrial.harness.tinker",
            "--model", agent.model,
            "--mcp-config", "${MCP_FILE}",
            "--max-steps", str(agent.limits.turns),
            "--seed", "${SEED}",
        )  # fmt: skip
        return Invocation(argv=argv, env={}, stdin=prompt.encode())


ADAPTER = TinkerAdapter()
