"""A scripted model on 127.0.0.1: real agents run against it in tests, without a key and without a network.

usage: python harness/scripted/model.py SCRIPT.json [--port N] [--log LOG.jsonl]

It prints its port. It speaks Anthropic Messages, OpenAI Responses and Chat, and Gemini, and keeps no state: which step
comes next follows from how many answers the conversation holds already. So a retry repeats its step, and any number of
conversations can run at the same time.

SCRIPT.json::

    {"cases": [{"when": "text of the task's prompt", "steps": [...]}], "steps": [...], "faults": {"2": {...}}}

A step is one answer. ``{"say": "..."}`` is text. ``{"do": "read", "file": "a.py"}``, ``{"do": "edit", "file": "a.py",
"old": "...", "new": "..."}``, ``{"do": "run", "command": "..."}`` and ``{"do": "mcp", "server": "s", "tool": "t",
"arguments": {}}`` become a call of whatever tool the agent offers for that; ``mcp`` is left out where the agent names no
such tool (the control arm). ``{"call": "ExactName", "arguments": {}}`` calls a tool by its own name. Files are relative
to the workspace, which is read out of the agent's own prompt.

A fault replaces the answer to the n-th request with tools (or ``*``: every one): ``{"status": 529, "message": "..."}``;
``{"cut": n}`` ends the stream after n events; ``{"raw": "..."}`` sends that as a stream; ``{"sleep": s}`` waits;
``{"model": "..."}`` answers as another model; ``{"stop": "max_tokens"}`` gives another stop reason.
"""

from __future__ import annotations

import argparse
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any

from pairtrial.harness.gateway.answers import Answer, Call, refusal, render
from pairtrial.harness.gateway.wire import Kind, Request, classify, texts, tool_names

SCRIPTED_HEADER = ("x-pairtrial-scripted", "1")
WORKSPACES = (
    re.compile(r"[Ww]orking directory: (/[^\s<]+)"),
    re.compile(r"<cwd>(/[^<]+)</cwd>"),
    re.compile(r"Workspace Directories:\*\*\n\s*- (/[^\s]+)"),
)
KINDS = {"status", "cut", "raw", "sleep", "model", "stop", "message", "headers"}


CALLS = ("function_call", "custom_tool_call")


def ends_answer(item: dict[str, Any], following: dict[str, Any]) -> bool:
    """Whether an input item is the last of an answer: a call, or text that no call follows."""
    text = item.get("type") == "message" and item.get("role") == "assistant"
    return item.get("type") in CALLS or (text and following.get("type") not in CALLS)


def answered(request: Request) -> int:
    """How many answers the conversation holds."""
    body = request.body
    if request.dialect == "gemini":
        return sum(item.get("role") == "model" for item in body.get("contents", []))
    if request.dialect == "responses":
        items = body.get("input")
        items = items if isinstance(items, list) else []
        return sum(map(ends_answer, items, [*items[1:], {}]))
    return sum(item.get("role") == "assistant" for item in body.get("messages", []))


def workspace(request: Request) -> str:
    """The folder that the agent says it works in."""
    for text in texts(request.body):
        for pattern in WORKSPACES:
            if match := pattern.search(text):
                return match[1]
    return "."


def mcp_name(step: dict[str, Any], request: Request) -> tuple[str, str | None] | None:
    """The name under which the agent offers an MCP tool (and its namespace); None when it does not."""
    server, tool = step["server"], step["tool"]
    offered = tool_names(request)
    forms = (f"mcp__{server}__{tool}", f"mcp_{server}_{tool}", f"{server}_{tool}")
    for form in forms:
        if form in offered:
            return (tool, f"mcp__{server}") if request.dialect == "responses" else (form, None)
    for form in forms[:1]:  # deferred tools are named in the text and can be called all the same
        if any(form in text for text in texts(request.body)):
            return form, None
    return None


def call(step: dict[str, Any], request: Request) -> Call:
    """The tool call of a step, in the agent's own words."""
    if "call" in step:
        return Call(step["call"], step.get("arguments", {}))
    if step["do"] == "mcp":
        name, space = mcp_name(step, request) or ("", None)
        return Call(name, step.get("arguments", {}), space)
    offered = set(tool_names(request))
    path = f"{workspace(request)}/{step['file']}" if "file" in step else ""
    match step["do"]:
        case "read":
            table = {"Read": {"file_path": path}, "read": {"filePath": path}, "read_file": {"file_path": path}}
            shell = f"cat {step['file']}"
        case "edit":
            old, new = step["old"], step["new"]
            table = {
                "Edit": {"file_path": path, "old_string": old, "new_string": new},
                "edit": {"filePath": path, "oldString": old, "newString": new},
                "replace": {"file_path": path, "old_string": old, "new_string": new, "instruction": "repair"},
            }
            program = f"p={step['file']!r};s=open(p).read();assert s.count({old!r})==1;"
            program += f"open(p,'w').write(s.replace({old!r},{new!r}))"
            shell = f"python - <<'END'\n{program}\nEND"
        case _:
            command = step["command"]
            table, shell = {}, command
    for name, arguments in table.items():
        if name in offered:
            return Call(name, arguments)
    for name, key in (("Bash", "command"), ("bash", "command"), ("run_shell_command", "command")):
        if name in offered:
            return Call(name, {key: shell, "description": "step"})
    return Call("exec_command", {"cmd": shell})


class Script:
    """The script and how often it was asked."""

    def __init__(self, value: dict[str, Any]) -> None:
        self.value = value
        self.count = 0
        self.lock = threading.Lock()

    def steps(self, request: Request) -> list[dict[str, Any]]:
        for case in self.value.get("cases", ()):
            if any(case["when"] in text for text in texts(request.body)):
                chosen = case["steps"]
                break
        else:
            chosen = self.value.get("steps", [{"say": "No case fits."}])
        return [step for step in chosen if step.get("do") != "mcp" or mcp_name(step, request)]

    def next(self, request: Request) -> tuple[Answer, dict[str, Any]]:
        """The answer, and the fault that is put into it."""
        if not request.main and not self.value.get("toolless"):
            return Answer(text=self.value.get("side", "A title"), index=99), {}
        with self.lock:
            self.count += 1
            faults = self.value.get("faults", {})
            fault = faults.get(str(self.count)) or faults.get("*") or {}
        steps = self.steps(request)
        index = answered(request)
        step = steps[min(index, len(steps) - 1)]
        calls = (call(step, request),) if "do" in step or "call" in step else ()
        return Answer(
            text=step.get("say", ""), calls=calls, index=index, model=fault.get("model"), stop=fault.get("stop")
        ), fault


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    script: Script
    log: IO[str] | None = None

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Nothing on stderr."""

    def do_GET(self) -> None:
        self._whole(404, "application/json", refusal("messages", 404, "nothing here"))

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        request = classify("POST", self.path.split("?")[0], raw)
        self._note(raw, request)
        if request is None:
            self._whole(404, "application/json", refusal("messages", 404, "nothing here"))
            return
        if request.kind is Kind.COUNT:
            kind, pieces = render(request, Answer())
            self._whole(200, kind, b"".join(pieces))
            return
        answer, fault = self.script.next(request)
        time.sleep(fault.get("sleep", 0))
        if "status" in fault:
            body = refusal(request.dialect, fault["status"], fault.get("message", "scripted fault"))
            self._whole(fault["status"], "application/json", body, fault.get("headers", {}))
            return
        kind, pieces = render(request, answer)
        if request.stream:
            self._stream(kind, [fault["raw"].encode()] if "raw" in fault else pieces, fault.get("cut"))
        else:
            self._whole(200, kind, b"".join(pieces))

    def _whole(self, status: int, kind: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        every = [("content-type", kind), ("content-length", str(len(body))), SCRIPTED_HEADER]
        for name, value in (*every, *(headers or {}).items()):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _stream(self, kind: str, pieces: list[bytes], cut: int | None) -> None:
        self.send_response(200)
        for name, value in (("content-type", kind), ("connection", "close"), SCRIPTED_HEADER):
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        for piece in pieces if cut is None else pieces[:cut]:
            self.wfile.write(piece)
            self.wfile.flush()

    def _note(self, raw: bytes, request: Request | None) -> None:
        if self.log is None:
            return
        entry = {
            "path": self.path,
            "main": bool(request and request.main),
            "bytes": len(raw),
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": request.body if request else raw[:2000].decode("latin-1"),
        }
        with self.script.lock:
            self.log.write(json.dumps(entry) + "\n")
            self.log.flush()


class Server(ThreadingHTTPServer):
    """Broken connections are part of the play."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing on stderr."""


def serve(script: dict[str, Any], port: int = 0, log: Path | None = None) -> Server:
    """A server that listens; the caller runs ``serve_forever``."""
    handler = type("Bound", (Handler,), {"script": Script(script), "log": log.open("a") if log else None})
    return Server(("127.0.0.1", port), handler)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="A scripted model on 127.0.0.1.")
    parser.add_argument("script", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path)
    given = parser.parse_args()
    server = serve(json.loads(given.script.read_text()), given.port, given.log)
    print(server.server_address[1], flush=True)  # noqa: T201 - the caller reads the port
    server.serve_forever()


if __name__ == "__main__":
    main()
