"""The event parser against whatever an agent may print."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairtrial.core.status import StopReason
from pairtrial.harness.events import (
    MAX_LINE_BYTES,
    Event,
    EventReader,
    Fault,
    Malformed,
    Message,
    Other,
    Result,
    ServerStatus,
    Startup,
    ToolCall,
    Usage,
    encode,
    parse_line,
)

KNOWN = ("startup", "message", "tool_call", "usage", "result")
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def test_the_documented_startup() -> None:
    line = (
        b'{"type":"startup","agent":"tinker","version":"1.0.0","model":"tinker-1","mcp_servers":[{"name":"bm25",'
        b'"status":"connected","tools":["search"]}],"tools":["edit","run"],"skills":[],"context_files":[]}\n'
    )
    assert parse_line(line) == Startup(
        agent="tinker",
        version="1.0.0",
        model="tinker-1",
        mcp_servers=(ServerStatus(name="bm25", status="connected", tools=("search",)),),
        tools=("edit", "run"),
        skills=(),
        context_files=(),
    )


def test_what_a_startup_says_beyond_the_format_is_kept() -> None:
    event = parse_line(
        b'{"type":"startup","agent":"a","version":"1","model":"m","mcp_servers":[],"tools":[],"plugins":["spy"]}'
    )
    assert isinstance(event, Startup)
    assert event.undeclared == {"plugins": ["spy"]}


def test_what_is_missing_in_usage_is_none_and_not_0() -> None:
    event = parse_line(b'{"type":"usage","input_tokens":0,"cost_usd":"0.10"}')
    assert isinstance(event, Usage)
    assert event.input_tokens == 0
    assert event.output_tokens is None and event.steps is None and event.model is None
    assert event.cost_usd == Decimal("0.10")
    assert json.loads(encode(event)) == {"type": "usage", "input_tokens": 0, "cost_usd": "0.10"}


@pytest.mark.parametrize(
    "field",
    [
        '"cost_usd":0.1',
        '"cost_usd":"NaN"',
        '"cost_usd":"-1"',
        '"cost_usd":"Infinity"',
        '"cost_usd":"1,5"',
        '"steps":-1',
        '"steps":true',
        '"steps":1.0',
        '"steps":"1"',
        '"steps":9223372036854775808',
        '"model":7',
    ],
)
def test_a_figure_that_is_none_is_malformed(field: str) -> None:
    event = parse_line(f'{{"type":"usage",{field}}}'.encode())
    assert isinstance(event, Malformed)
    assert event.fault is Fault.INVALID
    assert field.split('"')[1] in event.detail


def test_a_tool_call_of_the_agents_own_has_no_server() -> None:
    event = parse_line(b'{"type":"tool_call","id":"1","server":null,"name":"edit","arguments":{"a":[1]},"status":"ok"}')
    assert event == ToolCall(id="1", server=None, name="edit", arguments={"a": [1]}, status="ok")
    assert isinstance(event, ToolCall) and event.result_bytes is None


@pytest.mark.parametrize("reason", ["finished", "gave_up", "turn_limit", "spend_limit", "crashed"])
def test_an_agent_names_its_stop_reason(reason: str) -> None:
    event = parse_line(f'{{"type":"result","stop_reason":"{reason}","is_error":false}}'.encode())
    assert isinstance(event, Result)
    assert event.stop_reason is StopReason(reason)


@pytest.mark.parametrize("reason", ["timeout", "not_started", "resolved", ""])
def test_an_agent_cannot_claim_what_the_harness_finds(reason: str) -> None:
    event = parse_line(f'{{"type":"result","stop_reason":"{reason}","is_error":false}}'.encode())
    assert isinstance(event, Malformed) and event.fault is Fault.INVALID


def test_an_unknown_type_is_kept_whole() -> None:
    event = parse_line(b'{"type":"thinking","depth":[1,{"a":null}]}')
    assert event == Other(type="thinking", data={"type": "thinking", "depth": [1, {"a": None}]})
    assert json.loads(encode(event)) == {"type": "thinking", "depth": [1, {"a": None}]}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"", Fault.NOT_JSON),
        (b"hello", Fault.NOT_JSON),
        (b'{"type":"message"', Fault.NOT_JSON),
        (b'{"type":"message","role":"a","text":"\x00"}', Fault.NOT_JSON),
        (b'{"type":"x","n":NaN}', Fault.NOT_JSON),
        (b'{"type":"x","n":-Infinity}', Fault.NOT_JSON),
        (b'{"type":"x","n":1e999}', Fault.NOT_JSON),
        (b'{"type":"x","n":' + b"9" * 5000 + b"}", Fault.NOT_JSON),
        (b'{"type":"x","n":' + b"[" * 100_000 + b"]" * 100_000 + b"}", Fault.NOT_JSON),
        (b'\xef\xbb\xbf{"type":"x"}', Fault.NOT_JSON),
        ('{"type":"x"}'.encode("utf-16"), Fault.NOT_UTF8),
        (b'{"type":"\xff"}', Fault.NOT_UTF8),
        (b'{"type":"\xed\xa0\x80"}', Fault.NOT_UTF8),
        (b'{"type":"message","role":"a","text":"\\ud800"}', Fault.SURROGATE),
        (b'{"type":"x","\\udfff":1}', Fault.SURROGATE),
        (b'{"type":"\\ud83d"}', Fault.SURROGATE),
        (b'{"type":"result","type":"startup"}', Fault.DUPLICATE_KEY),
        (b'{"type":"x","a":{"b":1,"b":2}}', Fault.DUPLICATE_KEY),
        (b"[]", Fault.NOT_OBJECT),
        (b'"startup"', Fault.NOT_OBJECT),
        (b"null", Fault.NOT_OBJECT),
        (b"{}", Fault.NO_TYPE),
        (b'{"type":1}', Fault.NO_TYPE),
        (b'{"type":null}', Fault.NO_TYPE),
        (b'{"type":"startup"}', Fault.INVALID),
        (b'{"type":"message","role":"a","text":["b"]}', Fault.INVALID),
        (b'{"type":"tool_call","id":"1","name":"n","status":"maybe"}', Fault.INVALID),
    ],
)
def test_a_line_that_is_no_event_says_why(line: bytes, fault: Fault) -> None:
    event = parse_line(line)
    assert isinstance(event, Malformed)
    assert event.fault is fault
    assert event.size == len(line)
    assert event.detail
    assert event.excerpt.isascii() and event.excerpt.isprintable()


def test_pairs_of_surrogates_and_line_separators_are_ordinary_text() -> None:
    assert parse_line(b'{"type":"message","role":"a","text":"\\ud83d\\ude00"}') == Message(role="a", text="\U0001f600")
    line = '{"type":"message","role":"a","text":"x\u2028y\u2029z\u0085"}\n'.encode()
    (event,) = EventReader().feed(line)
    assert event == Message(role="a", text="x\u2028y\u2029z\u0085")


def test_an_oversized_line_is_one_malformed_event_and_the_next_line_is_read() -> None:
    reader = EventReader(max_line_bytes=100)
    stream = b"x" * 1000 + b'\n{"type":"a"}\n'
    events: list[Event] = []
    for start in range(0, len(stream), 7):
        events.extend(reader.feed(stream[start : start + 7]))
    first, second = events
    assert isinstance(first, Malformed)
    assert (first.fault, first.size) == (Fault.OVERSIZED, 1000)
    assert second == Other(type="a", data={"type": "a"})


def test_a_line_at_the_limit_is_read_and_one_byte_more_is_not() -> None:
    filler = MAX_LINE_BYTES - len('{"type":"a","b":""}')
    line = b'{"type":"a","b":"' + b"x" * filler + b'"}'
    assert isinstance(parse_line(line), Other)
    longer = parse_line(line.replace(b'"b":"', b'"b":"x'))
    assert isinstance(longer, Malformed) and longer.fault is Fault.OVERSIZED


def test_a_last_line_without_a_break_is_read_when_whole_and_malformed_when_cut() -> None:
    reader = EventReader()
    assert list(reader.feed(b'\n\r\n  \n{"type":"a"}')) == []
    assert list(reader.close()) == [Other(type="a", data={"type": "a"})]
    assert list(reader.feed(b'{"type":"resu')) == []
    (cut,) = reader.close()
    assert isinstance(cut, Malformed) and cut.fault is Fault.NOT_JSON
    assert list(reader.close()) == []


@given(st.binary(max_size=400))
def test_no_bytes_raise(data: bytes) -> None:
    event = parse_line(data)
    encode(event).decode("utf-8")
    for read in EventReader(max_line_bytes=50).feed(data):
        encode(read)


@given(st.sampled_from((*KNOWN, "unknown")), st.dictionaries(st.text(max_size=8), JSON, max_size=4))
def test_no_object_raises(kind: str, rest: dict[str, Any]) -> None:
    value = {**rest, "type": kind}
    event = parse_line(json.dumps(value).encode())
    assert isinstance(event, Event)
    if kind == "unknown" and not isinstance(event, Malformed):
        assert event == Other(type=kind, data=value)


@given(
    st.fixed_dictionaries(
        {"type": st.just("usage")},
        optional={
            "model": st.none() | st.text(max_size=5),
            "steps": JSON,
            "input_tokens": JSON,
            "cost_usd": st.decimals(0, 10**6, places=6).map(str) | JSON,
        },
    )
)
def test_usage_takes_whole_numbers_or_nothing(value: dict[str, Any]) -> None:
    event = parse_line(json.dumps(value).encode())
    if isinstance(event, Usage):
        for name in ("steps", "input_tokens"):
            figure = getattr(event, name)
            assert figure == value.get(name)
            assert figure is None or (type(figure) is int and figure >= 0)
    else:
        assert isinstance(event, Malformed)


@given(st.lists(st.binary(max_size=30), max_size=6), st.integers(1, 9))
def test_where_a_stream_is_cut_into_chunks_does_not_matter(lines: list[bytes], size: int) -> None:
    stream = b"\n".join(lines)
    whole, pieces = EventReader(max_line_bytes=20), EventReader(max_line_bytes=20)
    expected = [*whole.feed(stream), *whole.close()]
    found: list[Event] = []
    for start in range(0, len(stream), size):
        found.extend(pieces.feed(stream[start : start + size]))
    assert [*found, *pieces.close()] == expected


@given(
    st.builds(Message, role=st.text(max_size=5), text=st.text(), model=st.text(max_size=5))
    | st.builds(
        ToolCall,
        id=st.text(max_size=3),
        server=st.none() | st.text(max_size=5),
        name=st.text(max_size=5),
        arguments=st.dictionaries(st.text(max_size=5), JSON, max_size=3),
        status=st.sampled_from(["ok", "error"]),
        result_bytes=st.none() | st.integers(0, 2**40),
    )
    | st.builds(Usage, model=st.text(max_size=5), steps=st.integers(0, 500), cost_usd=st.decimals(0, 9, places=4))
)
def test_an_event_survives_being_written_and_read(event: Event) -> None:
    line = encode(event)
    assert line.count(b"\n") == 1
    assert parse_line(line) == event
