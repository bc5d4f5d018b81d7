"""The four request formats that the gateway speaks: what a request asks for, and which tools it offers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

GEMINI_PATH = re.compile(r"^/v1(?:alpha|beta|beta1)?/models/(?P<model>[^/:]+):(?P<call>\w+)$")


class Family(StrEnum):
    """A provider's request format."""

    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    GEMINI = "gemini"


class Kind(StrEnum):
    """What a request is for."""

    MODEL = "model"
    """Asks the model for an answer: costs tokens."""
    COUNT = "count"
    """Asks how many tokens a request would have: costs nothing."""


ENDPOINTS = {
    Family.ANTHROPIC: "https://api.anthropic.com",
    Family.OPENAI: "https://api.openai.com",
    Family.GEMINI: "https://generativelanguage.googleapis.com",
}
"""Where requests go unless the plan names another place."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as far as the gateway reads it."""

    family: Family
    kind: Kind
    dialect: str
    """``messages``, ``responses``, ``chat`` or ``gemini``."""
    model: str | None
    stream: bool
    max_output: int | None
    body: Any
    size: int

    @property
    def main(self) -> bool:
        """Whether it offers tools: side requests (titles, summaries) offer none."""
        return self.kind is Kind.MODEL and bool(tool_names(self))


def classify(method: str, path: str, raw: bytes) -> Request | None:
    """The request behind a path and a body; None when it is none that the gateway knows."""
    if method != "POST":
        return None
    found = _route(path)
    if found is None:
        return None
    family, kind, dialect, model = found
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict):
        return None
    if model is None and isinstance(body.get("model"), str):
        model = body["model"]
    stream = "streamGenerateContent" in path if family is Family.GEMINI else body.get("stream") is True
    return Request(family, kind, dialect, model, stream, _max_output(body), body, len(raw))


def _route(path: str) -> tuple[Family, Kind, str, str | None] | None:
    if match := GEMINI_PATH.match(path):
        calls = {"generateContent": Kind.MODEL, "streamGenerateContent": Kind.MODEL, "countTokens": Kind.COUNT}
        kind = calls.get(match["call"])
        return None if kind is None else (Family.GEMINI, kind, "gemini", match["model"])
    return {
        "/v1/messages": (Family.ANTHROPIC, Kind.MODEL, "messages", None),
        "/v1/messages/count_tokens": (Family.ANTHROPIC, Kind.COUNT, "messages", None),
        "/v1/responses": (Family.OPENAI, Kind.MODEL, "responses", None),
        "/v1/chat/completions": (Family.OPENAI, Kind.MODEL, "chat", None),
    }.get(path)


def _max_output(body: Mapping[str, Any]) -> int | None:
    config = body.get("generationConfig")
    places = (
        body.get("max_tokens"),
        body.get("max_output_tokens"),
        body.get("max_completion_tokens"),
        config.get("maxOutputTokens") if isinstance(config, dict) else None,
    )
    return next((n for n in places if isinstance(n, int) and not isinstance(n, bool) and n > 0), None)


def tools(request: Request) -> list[Any]:
    """The tool schemas that the request offers, as they stand in it."""
    body = request.body
    listed = body.get("tools")
    return listed if isinstance(listed, list) else []


def tool_names(request: Request) -> tuple[str, ...]:
    """Names of the tools that the request offers; tools inside a namespace or group carry its name in front."""
    return tuple(name for tool in tools(request) for name in _names(tool))


def _names(tool: Any) -> Iterator[str]:
    if not isinstance(tool, dict):
        return
    for key in ("functionDeclarations", "function_declarations"):
        if isinstance(tool.get(key), list):
            yield from (str(item["name"]) for item in tool[key] if isinstance(item, dict) and "name" in item)
            return
    if tool.get("type") == "namespace" and isinstance(tool.get("tools"), list):
        prefix = str(tool.get("name", "")).removesuffix("__") + "__"
        for item in tool["tools"]:
            yield from (prefix + name for name in _names(item))
        return
    function = tool.get("function")
    if isinstance(function, dict) and isinstance(function.get("name"), str):
        yield function["name"]
    elif isinstance(tool.get("name"), str):
        yield tool["name"]
    elif isinstance(tool.get("type"), str):
        yield tool["type"]


def texts(value: Any) -> Iterator[str]:
    """Every string in a JSON value, depth first, without recursion."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            stack.extend(reversed(list(item.values())))
        elif isinstance(item, list):
            stack.extend(reversed(item))
