"""Codex, driven over its app-server: servers, tools, version and model are known before the prompt is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pairtrial.harness.agents.base import Expected, Invocation, Place, load_manifest, split_turns
from pairtrial.harness.agents.codex_stream import CodexSession
from pairtrial.harness.agents.native import NativeAdapter, toml
from pairtrial.harness.agents.programs import find_program
from pairtrial.prereg.plan import AgentSpec

STARTUP_S = 30


class CodexAdapter(NativeAdapter):
    """Writes config.toml, which holds the settings and the servers, and follows the app-server's notifications."""

    multi_turn = True
    mcp_file = ".codex/config.toml"
    covers = frozenset({"servers"})
    own_files = ("codex.py", "codex_stream.py", "codex.yaml")
    volatile = frozenset({"prompt_cache_key", "client_metadata", "input[].id"})

    def __init__(self) -> None:
        self.manifest = load_manifest(__file__)

    def invocation(self, agent: AgentSpec, prompt: str) -> Invocation:
        """The app-server reads everything from its settings and its standard input."""
        argv = (*find_program(self.manifest, agent.version).command, "app-server")
        env = {"LANG": "C.UTF-8", "CODEX_HOME": "${HOME}/.codex", "PAIRTRIAL_TOKEN": "${TOKEN}",
               "PAIRTRIAL_GATEWAY": "${GATEWAY}"}  # fmt: skip
        return Invocation(argv, env, prompt.encode())

    def render_mcp(self, agent: AgentSpec, servers: Mapping[str, Mapping[str, Any]]) -> bytes:
        """config.toml; a server that does not start ends the agent (``required``)."""
        reads = agent.options.get("context_files") is True
        settings: dict[str, Any] = {
            "model": agent.model,
            "model_provider": "pairtrial",
            "approval_policy": "never",
            "sandbox_mode": "danger-full-access",
            "web_search": "disabled",
            "allow_login_shell": False,
            "check_for_update_on_startup": False,
            **({} if reads else {"project_doc_max_bytes": 0}),
            "history": {"persistence": "none"},
            "analytics": {"enabled": False},
            "agents": {"enabled": False},
            "features": {"goals": False, "apps": False, "enable_request_compression": False},
            "skills": {"include_instructions": False, "bundled": {"enabled": False}},
            "model_providers": {
                "pairtrial": {
                    "name": "pairtrial",
                    "base_url": "${GATEWAY}/v1",
                    "env_key": "PAIRTRIAL_TOKEN",
                    "wire_api": "responses",
                    "request_max_retries": 4,
                    "stream_max_retries": 4,
                }
            },
        }
        table = {
            name: {
                **({"command": server["command"], "args": list(server["args"]), "env": dict(server["env"])}
                   if "command" in server else {"url": server["url"], "http_headers": dict(server["headers"])}),
                "required": True,
                "startup_timeout_sec": STARTUP_S,
            }
            for name, server in servers.items()
        }  # fmt: skip
        return toml({**settings, **({"mcp_servers": table} if table else {})}).encode()

    def tool_form(self, agent: AgentSpec) -> str:
        """A namespace a server; the gateway writes both as one name."""
        return "mcp__{server}__{tool}"

    def session(self, agent: AgentSpec, invocation: Invocation, expected: Expected, place: Place) -> CodexSession:
        """JSON-RPC over standard input and output."""
        first, *further = split_turns(invocation.stdin.decode())
        return CodexSession(first, expected, place.workspace, tuple(further))


ADAPTER = CodexAdapter()
