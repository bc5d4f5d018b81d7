"""The scripted model as a server in a thread, and what it was asked."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODEL = Path(__file__).parents[2] / "harness" / "scripted" / "model.py"


@dataclass(frozen=True)
class Scripted:
    """A scripted model that listens."""

    url: str
    log: Path

    @property
    def requests(self) -> list[dict[str, Any]]:
        """Every POST that it got."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    @property
    def main(self) -> list[dict[str, Any]]:
        """Those with tools."""
        return [item for item in self.requests if item["main"]]


@contextlib.contextmanager
def scripted(script: dict[str, Any], folder: Path) -> Iterator[Scripted]:
    """Serve a script until the block ends."""
    spec = importlib.util.spec_from_file_location("scripted_model", MODEL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    log = folder / "scripted.jsonl"
    log.touch()
    server = module.serve(script, log=log)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield Scripted(f"http://127.0.0.1:{server.server_address[1]}", log)
    finally:
        server.shutdown()
        server.server_close()
        server.RequestHandlerClass.log.close()
        thread.join()
