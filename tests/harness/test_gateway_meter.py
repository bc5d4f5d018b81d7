"""The meter against answers whose figures were written down by hand."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairtrial.harness.gateway.answers import Answer, Call, render
from pairtrial.harness.gateway.meter import Meter
from pairtrial.harness.gateway.prices import Price, Tokens
from pairtrial.harness.gateway.wire import Request, classify, tool_names

SSE = "text/event-stream"
PATHS = {
    "messages": "/v1/messages",
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "gemini": "/v1beta/models/m-1:streamGenerateContent",
}
PRICE = Price.model_validate(
    {"input": "3", "output": "15", "cache_read": "0.3", "cache_write": "3.75", "cache_write_1h": "6",
     "max_output_tokens": 1000}
)  # fmt: skip


def sse(*events: object) -> bytes:
    return b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events)


def metered(dialect: str, body: bytes, kind: str = SSE, encoding: str = "") -> Meter:
    meter = Meter(dialect, kind, encoding)
    meter.feed(body)
    meter.close()
    return meter


def request(dialect: str, *, stream: bool = True) -> Request:
    path = PATHS[dialect] if stream else PATHS[dialect].replace("streamG", "g")
    found = classify("POST", path, json.dumps({"model": "m-1", "stream": stream}).encode())
    assert found is not None
    return found


def test_anthropic_classes_are_kept_apart() -> None:
    usage = {
        "input_tokens": 10, "cache_read_input_tokens": 200, "cache_creation_input_tokens": 70, "output_tokens": 1,
        "cache_creation": {"ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 40},
    }  # fmt: skip
    body = sse(
        {"type": "message_start", "message": {"model": "m-1", "usage": usage}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 55}},
        {"type": "message_stop"},
    )
    meter = metered("messages", body)
    assert meter.tokens == Tokens(input=10, cache_read=200, cache_write=30, cache_write_1h=40, output=55)
    assert meter.served == ["m-1"]
    assert meter.finished
    # 10*3 + 200*0.3 + 30*3.75 + 40*6 + 55*15 = 30 + 60 + 112.5 + 240 + 825 = 1267.5 millionths
    assert PRICE.cost(meter.tokens) == Decimal("0.0012675")
    # (10+200+30+40)*3 + 55*15 = 840 + 825
    assert PRICE.neutral_cost(meter.tokens) == Decimal("0.001665")


def test_cut_anthropic_stream_has_no_output_figure() -> None:
    body = sse(
        {"type": "message_start", "message": {"model": "m-1", "usage": {"input_tokens": 10, "output_tokens": 1}}}
    )
    meter = metered("messages", body)
    assert meter.tokens.output is None
    assert not meter.tokens.complete
    assert not meter.finished


def test_openai_cached_tokens_are_no_fresh_input() -> None:
    usage = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 60}, "output_tokens": 7}
    event = {"type": "response.completed", "response": {"model": "m-1", "output": [], "usage": usage}}
    assert metered("responses", sse(event)).tokens == Tokens(input=40, cache_read=60, output=7)
    chat = {"model": "m-1", "choices": [], "usage": {
        "prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 60}, "completion_tokens": 7}}  # fmt: skip
    assert metered("chat", sse(chat) + b"data: [DONE]\n\n").tokens == Tokens(input=40, cache_read=60, output=7)


def test_gemini_thoughts_are_output_and_tool_prompts_are_input() -> None:
    usage = {"promptTokenCount": 100, "cachedContentTokenCount": 25, "toolUsePromptTokenCount": 5,
             "candidatesTokenCount": 9, "thoughtsTokenCount": 11}  # fmt: skip
    event = {"modelVersion": "m-1", "usageMetadata": usage, "candidates": [{"finishReason": "STOP"}]}
    meter = metered("gemini", json.dumps([event]).encode(), "application/json")
    assert meter.tokens == Tokens(input=80, cache_read=25, output=20)
    assert meter.served == ["m-1"]


@pytest.mark.parametrize("dialect", sorted(PATHS))
@pytest.mark.parametrize("stream", [True, False])
def test_every_format_is_metered_in_stream_and_body(dialect: str, stream: bool) -> None:
    asked = request(dialect, stream=stream)
    answer = Answer(text="hello", calls=(Call("t", {"a": 1}),), input_tokens=1234, output_tokens=56)
    kind, pieces = render(asked, answer)
    meter = metered(dialect, b"".join(pieces), kind)
    assert (meter.tokens.all_input, meter.tokens.output) == (1234, 56)
    assert meter.served == ["m-1"]
    assert meter.finished


@given(st.lists(st.integers(1, 60), max_size=40))
def test_the_cut_of_the_stream_into_pieces_does_not_matter(sizes: list[int]) -> None:
    kind, pieces = render(request("messages"), Answer(text="a\u2028b 😀", input_tokens=77, output_tokens=3))
    body = b"".join(pieces).replace(b"\n", b"\r\n")
    meter, at = Meter("messages", kind), 0
    for size in sizes:
        meter.feed(body[at : at + size])
        at += size
    meter.feed(body[at:])
    meter.close()
    assert (meter.tokens.input, meter.tokens.output) == (77, 3)


def test_compressed_answer_is_metered() -> None:
    kind, pieces = render(request("messages"), Answer(text="x", input_tokens=5, output_tokens=2))
    assert metered("messages", gzip.compress(b"".join(pieces)), kind, "gzip").tokens.input == 5
    assert not metered("messages", b"?", kind, "br").tokens.complete


@given(st.binary(max_size=400))
def test_garbage_never_raises(data: bytes) -> None:
    for dialect in PATHS:
        metered(dialect, data)
        metered(dialect, data, "application/json")
        metered(dialect, b"data: " + data + b"\n\n")


def test_error_event_inside_a_good_stream_is_seen() -> None:
    assert metered("messages", sse({"type": "error", "error": {"type": "overloaded_error"}})).error
    assert metered("responses", sse({"type": "response.failed", "response": {"model": "m-1"}})).error


def test_tools_in_every_shape_have_names() -> None:
    shapes: dict[str, list[object]] = {
        "/v1/messages": [{"name": "Read"}, {"name": "mcp__s__t"}, {"type": "web_search_20250305", "name": "web"}],
        "/v1/chat/completions": [{"type": "function", "function": {"name": "s_t"}}],
        "/v1/responses": [{"type": "function", "name": "exec"}, {"type": "web_search"},
                          {"type": "namespace", "name": "mcp__s", "tools": [{"type": "function", "name": "t"}]}],
        "/v1beta/models/m:generateContent": [{"functionDeclarations": [{"name": "a"}, {"name": "b"}]}],
    }  # fmt: skip
    names = []
    for path, tools in shapes.items():
        found = classify("POST", path, json.dumps({"model": "m", "tools": tools}).encode())
        assert found is not None
        names.append(tool_names(found))
    assert names == [("Read", "mcp__s__t", "web"), ("s_t",), ("exec", "web_search", "mcp__s__t"), ("a", "b")]


def test_ceiling_is_above_every_cost_of_that_request() -> None:
    # 3000 bytes: at most 1501 tokens at 6 dollars, and 1000 tokens of answer at 15
    assert PRICE.ceiling(3000, None) == (Decimal(6) * 1501 + Decimal(15) * 1000) / 1_000_000
    assert PRICE.ceiling(3000, 10) == (Decimal(6) * 1501 + Decimal(15) * 10) / 1_000_000
