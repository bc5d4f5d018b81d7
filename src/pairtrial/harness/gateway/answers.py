"""Answers in each of the four formats, from one plain description.

Two things answer without a model: the gateway's own stand-in, which ends an agent at its first request (`pairtrial
purity`), and the scripted model of the tests. Both build their bytes here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pairtrial.harness.gateway.wire import Kind, Request

STAND_IN = "stand-in:"
"""The endpoint of a rollout that no provider answers."""
Event = tuple[str | None, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call that an answer makes."""

    name: str
    arguments: dict[str, Any]
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says: text, tool calls, both."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    model: str | None = None
    """The model that it claims to be; None: the one that was asked for."""
    index: int = 0
    """Number of the answer in its conversation; makes the ids."""
    stop: str | None = None
    """A stop reason of its own instead of the plain one."""
    input_tokens: int | None = None
    """None: a quarter of the request's bytes."""
    output_tokens: int = 20
    usage: dict[str, int] = field(default_factory=dict)
    """Further usage figures by the provider's own names."""


def render(request: Request, answer: Answer) -> tuple[str, list[bytes]]:
    """Content type and body pieces of an answer in the request's own format; one piece an event when it streams."""
    if request.kind is Kind.COUNT:
        tokens = max(1, request.size // 4)
        key = "totalTokens" if request.dialect == "gemini" else "input_tokens"
        return "application/json", [json.dumps({key: tokens}).encode()]
    whole, events = {"messages": _messages, "responses": _responses, "chat": _chat, "gemini": _gemini}[request.dialect](
        request, answer
    )
    if not request.stream:
        return "application/json", [json.dumps(whole).encode()]
    return "text/event-stream", [encode_event(event) for event in events]


def encode_event(event: Event) -> bytes:
    """One server-sent event."""
    name, data = event
    text = data if isinstance(data, str) else json.dumps(data)
    return ((f"event: {name}\n" if name else "") + f"data: {text}\n\n").encode()


def _model(request: Request, answer: Answer) -> str:
    return answer.model or request.model or ""


def _input(request: Request, answer: Answer) -> int:
    return request.size // 4 if answer.input_tokens is None else answer.input_tokens


def _messages(request: Request, answer: Answer) -> tuple[Any, list[Event]]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": answer.text}] if answer.text else []
    for number, call in enumerate(answer.calls):
        ident = f"toolu_{answer.index:02d}_{number}"
        blocks.append({"type": "tool_use", "id": ident, "name": call.name, "input": call.arguments})
    stop = answer.stop or ("tool_use" if answer.calls else "end_turn")
    usage = {
        "input_tokens": _input(request, answer),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        **answer.usage,
    }
    head: dict[str, Any] = {
        "id": f"msg_{answer.index:04d}", "type": "message", "role": "assistant", "model": _model(request, answer),
        "content": [], "stop_reason": None, "stop_sequence": None, "usage": {**usage, "output_tokens": 1},
    }  # fmt: skip
    events: list[Event] = [("message_start", {"type": "message_start", "message": head})]
    for number, block in enumerate(blocks):
        events += [(event["type"], event) for event in _block(number, block)]
    end = {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}}
    events.append(("message_delta", {**end, "usage": {"output_tokens": answer.output_tokens}}))
    events.append(("message_stop", {"type": "message_stop"}))
    final = {**usage, "output_tokens": answer.output_tokens}
    return {**head, "content": blocks, "stop_reason": stop, "usage": final}, events


def _block(number: int, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if block["type"] == "text":
        start: dict[str, Any] = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": block["text"]}
    else:
        start = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    yield {"type": "content_block_start", "index": number, "content_block": start}
    yield {"type": "content_block_delta", "index": number, "delta": delta}
    yield {"type": "content_block_stop", "index": number}


def _responses(request: Request, answer: Answer) -> tuple[Any, list[Event]]:
    items: list[dict[str, Any]] = []
    if answer.text:
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        items.append({"type": "message", "id": f"msg_{answer.index}", "role": "assistant", "status": "completed",
                      "content": content})  # fmt: skip
    for number, call in enumerate(answer.calls):
        item: dict[str, Any] = {
            "type": "function_call", "id": f"fc_{answer.index}_{number}", "call_id": f"call_{answer.index}_{number}",
            "name": call.name, "arguments": json.dumps(call.arguments), "status": "completed",
        }  # fmt: skip
        if call.namespace:
            item["namespace"] = call.namespace
        items.append(item)
    total = _input(request, answer)
    usage = {
        "input_tokens": total, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": answer.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": total + answer.output_tokens,
    }  # fmt: skip
    base = {
        "id": f"resp_{answer.index}", "object": "response", "created_at": 1, "model": _model(request, answer),
        "status": "in_progress", "output": [], "parallel_tool_calls": False, "tools": [], "tool_choice": "auto",
        "error": None, "incomplete_details": None, "instructions": None, "metadata": {},
    }  # fmt: skip
    whole = {**base, "status": "completed", "output": items, "usage": usage}
    steps: list[dict[str, Any]] = [{"type": "response.created", "response": base}]
    for index, item in enumerate(items):
        steps += _output_item(index, item)
    steps.append({"type": "response.completed", "response": whole})
    return whole, [(str(step["type"]), {**step, "sequence_number": number}) for number, step in enumerate(steps)]


def _output_item(index: int, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    place = {"output_index": index}
    if item["type"] == "message":
        text = item["content"][0]["text"]
        part = {**place, "item_id": item["id"], "content_index": 0}
        empty = {"type": "output_text", "text": "", "annotations": []}
        yield {"type": "response.output_item.added", **place, "item": {**item, "status": "in_progress", "content": []}}
        yield {"type": "response.content_part.added", **part, "part": empty}
        yield {"type": "response.output_text.delta", **part, "delta": text}
        yield {"type": "response.output_text.done", **part, "text": text}
    else:
        started = {**item, "status": "in_progress", "arguments": ""}
        part = {**place, "item_id": item["id"]}
        yield {"type": "response.output_item.added", **place, "item": started}
        yield {"type": "response.function_call_arguments.delta", **part, "delta": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **part, "arguments": item["arguments"]}
    yield {"type": "response.output_item.done", **place, "item": item}


def _chat(request: Request, answer: Answer) -> tuple[Any, list[Event]]:
    total = _input(request, answer)
    usage = {
        "prompt_tokens": total,
        "completion_tokens": answer.output_tokens,
        "total_tokens": total + answer.output_tokens,
    }
    calls = [
        {"id": f"call_{answer.index}_{number}", "type": "function",
         "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
        for number, call in enumerate(answer.calls)
    ]  # fmt: skip
    finish = answer.stop or ("tool_calls" if calls else "stop")
    head = {"id": f"chatcmpl-{answer.index}", "created": 1, "model": _model(request, answer)}
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": finish}
    whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}

    def chunk(delta: dict[str, Any], reason: str | None = None) -> Event:
        part = {"index": 0, "delta": delta, "finish_reason": reason}
        return None, {**head, "object": "chat.completion.chunk", "choices": [part]}

    events = [chunk({"role": "assistant", "content": answer.text})]
    if calls:
        events.append(chunk({"tool_calls": [{**call, "index": number} for number, call in enumerate(calls)]}))
    events.append(chunk({}, finish))
    events.append((None, {**head, "object": "chat.completion.chunk", "choices": [], "usage": usage}))
    events.append((None, "[DONE]"))
    return whole, events


def _gemini(request: Request, answer: Answer) -> tuple[Any, list[Event]]:
    parts: list[dict[str, Any]] = [{"text": answer.text}] if answer.text else []
    for number, call in enumerate(answer.calls):
        ident = f"call_{answer.index}_{number}"
        parts.append({"functionCall": {"name": call.name, "args": call.arguments, "id": ident}})
    total = _input(request, answer)
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": answer.stop or "STOP", "index": 0}
    whole = {
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": total,
            "candidatesTokenCount": answer.output_tokens,
            "totalTokenCount": total + answer.output_tokens,
        },
        "modelVersion": _model(request, answer),
    }
    return whole, [(None, whole)]


def refusal(dialect: str, status: int, message: str) -> bytes:
    """An error in the format of the provider that the agent believes to talk to."""
    if dialect == "gemini":
        name = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}.get(status, "UNAVAILABLE")
        return json.dumps({"error": {"code": status, "message": message, "status": name}}).encode()
    kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
    kind = kinds.get(status, "api_error")
    if dialect in ("responses", "chat"):
        return json.dumps({"error": {"message": message, "type": kind, "code": kind}}).encode()
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()
