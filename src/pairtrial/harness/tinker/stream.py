"""Writes the event stream: one JSON object a line, with no time and no absolute path in it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from pairtrial.harness.tinker import NAME, TOOLS, VERSION


class Stream:
    """The events of one rollout."""

    def __init__(self, out: BinaryIO, model: str) -> None:
        self._out = out
        self._model = model
        self._calls = 0

    def startup(self, servers: Sequence[Mapping[str, object]]) -> None:
        """What the agent really started with."""
        self._write(
            type="startup",
            agent=NAME,
            version=VERSION,
            model=self._model,
            mcp_servers=list(servers),
            tools=list(TOOLS),
            skills=[],
            context_files=[],
        )

    def message(self, text: str) -> None:
        """Something worth reading."""
        self._write(type="message", role="assistant", text=text, model=self._model)

    def call(
        self, server: str | None, name: str, arguments: Mapping[str, object], ok: bool, size: int | None = None
    ) -> None:
        """One tool call that has ended."""
        self._calls += 1
        fields: dict[str, object] = {"id": str(self._calls), "server": server, "name": name, "arguments": arguments}
        fields["status"] = "ok" if ok else "error"
        if size is not None:
            fields["result_bytes"] = size
        self._write(type="tool_call", **fields)

    def usage(self, steps: int) -> None:
        """How many candidates were tried."""
        self._write(type="usage", model=self._model, steps=steps)

    def result(self, stop_reason: str, text: str) -> None:
        """The end."""
        self._write(type="result", stop_reason=stop_reason, is_error=stop_reason == "crashed", text=text)

    def _write(self, **event: object) -> None:
        self._out.write(json.dumps(event, separators=(",", ":")).encode("ascii") + b"\n")
        self._out.flush()
