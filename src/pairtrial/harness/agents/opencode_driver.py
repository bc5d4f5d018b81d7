"""Runs OpenCode in two steps inside the sandbox: what it says about its MCP servers, then the prompt.

This file is copied into the agent's home and needs nothing but an interpreter. It starts ``opencode serve``, asks it for
its version and for ``GET /mcp`` (which it answers when every server has started or failed), prints both as one line,
and reads the prompt from standard input. The prompt then runs in that same process (``opencode run --attach``), so what
was asked is what answers. No prompt, no request: whoever reads the line may hang up.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import IO, Any

LISTENS_S = 60.0
ANSWERS_S = 120.0
WATCH_S = 0.1
EVENTS = {"text": "text", "tool": "tool_use", "step-start": "step_start", "step-finish": "step_finish"}
"""Type of a part of a message → type of the event in which the client prints it."""
LOST = 70
"""Exit code when the server died under the prompt."""


def address(output: IO[str]) -> str:
    """Where the server listens, as it says itself."""
    for line in output:
        if "listening on " in line:
            return line.rpartition("listening on ")[2].strip()
    raise SystemExit("opencode serve ended before it listened")


def ask(url: str, path: str) -> Any:
    """The answer to a GET; the password is the rollout's token."""
    word = base64.b64encode(f"opencode:{os.environ['OPENCODE_SERVER_PASSWORD']}".encode()).decode()
    request = urllib.request.Request(url + path, headers={"Authorization": f"Basic {word}"})  # noqa: S310 - loopback
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=ANSWERS_S) as answer:
        return json.load(answer)


def converse(command: list[str], server: subprocess.Popen[str], url: str) -> int:
    """Tell the status, read the prompt, run it; gives the exit code."""
    status = {"type": "mcp_status", "version": ask(url, "/global/health").get("version"), "mcp": ask(url, "/mcp")}
    sys.stdout.write(json.dumps(status) + "\n")
    sys.stdout.flush()
    prompt = sys.stdin.buffer.read()
    if not prompt:
        return 0
    argv = [*command, "run", "--format", "json", "--pure", "--title", "task", "--attach", url, "--dir", str(Path.cwd())]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        threading.Thread(target=watch, args=(server, client), daemon=True).start()
        client.stdin.write(prompt)
        client.stdin.close()
        seen = relay(client.stdout)
    if server.poll() is not None:
        sys.stderr.write(f"opencode serve ended with {server.returncode} under the prompt\n")
        return LOST
    for session in sorted(seen.sessions):
        complete(url, session, seen.parts)
    return client.returncode if client.returncode >= 0 else 128 - client.returncode


class Seen:
    """What went past."""

    def __init__(self) -> None:
        self.sessions: set[str] = set()
        self.parts: set[str] = set()


def watch(server: subprocess.Popen[str], client: subprocess.Popen[bytes]) -> None:
    """A client whose server is gone would wait for ever."""
    while client.poll() is None:
        if server.poll() is not None:
            client.kill()
        time.sleep(WATCH_S)


def relay(stream: IO[bytes]) -> Seen:
    """Pass every line on, and note which parts of the conversation went past."""
    seen = Seen()
    for line in stream:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        try:
            value = json.loads(line)
            seen.sessions.add(str(value["sessionID"]))
            seen.parts.add(str(value["part"]["id"]))
        except (ValueError, KeyError, TypeError):
            continue
    return seen


def complete(url: str, session: str, seen: set[str]) -> None:
    """Print what the client left out: attached, it ends without the last events when the server is the faster one."""
    until = time.monotonic() + ANSWERS_S
    while session in ask(url, "/session/status") and time.monotonic() < until:
        time.sleep(WATCH_S)
    for message in ask(url, f"/session/{session}/message"):
        if message["info"]["role"] != "assistant":
            continue
        for part in message["parts"]:
            if part["type"] in EVENTS and part["id"] not in seen:
                event = {"type": EVENTS[part["type"]], "sessionID": session, "part": part}
                sys.stdout.buffer.write(json.dumps(event).encode() + b"\n")
    sys.stdout.buffer.flush()


def main(command: list[str]) -> int:
    """Serve, converse, and leave nothing behind."""
    argv = [*command, "serve", "--pure", "--hostname", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as server:
        timer = threading.Timer(LISTENS_S, server.kill)
        timer.start()
        try:
            assert server.stdout is not None
            url = address(server.stdout)
            timer.cancel()
            threading.Thread(target=server.stdout.read, daemon=True).start()
            return converse(command, server, url)
        finally:
            timer.cancel()
            server.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
