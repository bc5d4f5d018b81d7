"""Recorded streams of real agents: what each row of faults must end as."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pairtrial.core.status import Status, StopReason
from pairtrial.harness.agents.acp_stream import AcpSession
from pairtrial.harness.agents.base import Baseline, Expected
from pairtrial.harness.agents.claude_stream import ClaudeSession
from pairtrial.harness.agents.codex_stream import CodexSession
from pairtrial.harness.agents.gemini import GeminiSession
from pairtrial.harness.agents.mini_swe_agent import MiniSession
from pairtrial.harness.agents.opencode import OpenCodeSession
from pairtrial.harness.agents.session import Preflight, Session, read_object
from pairtrial.harness.events import Malformed
from pairtrial.harness.trial import Trial
from pairtrial.sandbox import ExecResult

STREAMS = Path(__file__).parents[2] / "harness" / "streams"
CLAUDE = Expected(
    agent="claude-code",
    version="2.1.332",
    model="claude-sonnet-4-5-20250929",
    tools=(),
    servers={"shelf": ("count", "lookup")},
    covers=frozenset({"servers"}),
)
ENDED = ExecResult(
    exit_code=0, signal=None, stdout=b"", stderr=b"", truncated=False, timed_out=False, limit=None, oom=False,
    duration_s=1.0,
)  # fmt: skip


def hear(session: Session, lines: list[bytes], expected: Expected, ended: ExecResult = ENDED) -> Trial:
    trial = Trial()
    session.open()
    for line in lines:
        trial.hear(line, session, expected)
    trial.ended = ended
    trial.enter(session.finish(ended), session, expected)
    return trial


def recorded(name: str) -> list[bytes]:
    return (STREAMS / f"{name}.jsonl").read_bytes().rstrip(b"\n").split(b"\n")


def prompted(expected: Expected) -> ClaudeSession:
    """A session that has asked its questions and sent its prompt."""
    session = ClaudeSession("prompt", expected, Baseline(tools=()))
    answer = {"subtype": "success", "request_id": "status-0", "response": {"mcpServers": []}}
    session.take(json.dumps({"type": "control_response", "response": answer}).encode())
    return session


def claude(name: str, exit_code: int | None = 0, *, signal: int | None = None, servers: bool = False) -> Trial:
    expected = CLAUDE if servers else replace(CLAUDE, servers={})
    version = "2.1.197" if "2.1.197" in name else "2.1.332"
    expected = replace(expected, version=version)
    session = prompted(expected)
    return hear(session, recorded(name), expected, replace(ENDED, exit_code=exit_code, signal=signal))


@pytest.mark.parametrize("name", ["claude-2.1.332-ok-mcp", "claude-2.1.197-ok-mcp"])
def test_claude_plain_run(name: str) -> None:
    trial = claude(name, servers=True)
    assert trial.stop_reason is StopReason.FINISHED
    assert trial.voids == ()
    assert trial.startup is not None
    assert [(s.name, s.status, s.tools) for s in trial.startup.mcp_servers] == [
        ("shelf", "connected", ("count", "lookup"))
    ]
    assert (trial.tool_calls, trial.context_tool_calls) == (4, 1)
    assert trial.malformed == 0


def test_claude_usage_is_the_results_and_no_sum_over_messages() -> None:
    trial = claude("claude-2.1.332-ok-mcp", servers=True)
    (usage,) = trial.usage
    assert (usage.input_tokens, usage.output_tokens, str(usage.cost_usd)) == (106041, 100, "0.319623")


@pytest.mark.parametrize(
    ("name", "exit_code", "stop", "void"),
    [
        ("claude-2.1.332-api-429-recovered", 0, StopReason.FINISHED, None),
        ("claude-2.1.332-api-529-exhausted", 1, StopReason.CRASHED, Status.SANDBOX_LOST),
        ("claude-2.1.332-api-404-model", 1, StopReason.CRASHED, Status.SANDBOX_LOST),
        ("claude-2.1.332-stream-cut-retried", 0, StopReason.FINISHED, None),
        ("claude-2.1.332-max-turns", 1, StopReason.TURN_LIMIT, None),
        ("claude-2.1.332-max-budget", 1, StopReason.SPEND_LIMIT, None),
        ("claude-2.1.332-max-tokens", 1, StopReason.CRASHED, None),
    ],
)
def test_claude_faults(name: str, exit_code: int, stop: StopReason, void: Status | None) -> None:
    trial = claude(name, exit_code)
    assert trial.stop_reason is stop
    assert [item.status for item in trial.voids] == ([] if void is None else [void])


def test_claude_ended_by_a_signal_has_crashed_and_its_work_is_graded() -> None:
    trial = claude("claude-2.1.332-sigterm", None, signal=15, servers=True)
    assert trial.result is None
    assert trial.stop_reason is StopReason.CRASHED
    assert trial.voids == ()


def test_a_good_word_does_not_outweigh_the_exit_code_or_a_signal() -> None:
    """C15: version 2.1.197 lets the model go on after SIGTERM and then says success."""
    assert claude("claude-2.1.332-ok-mcp", 1, servers=True).stop_reason is StopReason.CRASHED
    assert claude("claude-2.1.332-ok-mcp", None, signal=9, servers=True).stop_reason is StopReason.CRASHED


def test_a_process_that_lives_on_after_its_result_is_no_crash() -> None:
    trial = claude("claude-2.1.332-background-task-keeps-alive", None, signal=9, servers=True)
    assert trial.said_all
    trial.ended_by_us = True
    assert trial.stop_reason is StopReason.FINISHED


@pytest.mark.parametrize("name", ["claude-2.1.197-mcp-pending", "claude-2.1.332-mcp-pending"])
def test_claude_server_that_is_still_pending_is_named(name: str) -> None:
    """A5: the run looks normal and says success."""
    trial = claude(name, servers=True)
    assert trial.void is not None
    assert trial.void[0] is Status.INVALID_ENVIRONMENT
    assert "'shelf' is 'pending'" in trial.void[1]


def test_claude_server_that_crashed_is_named() -> None:
    trial = claude("claude-2.1.332-mcp-crash", servers=True)
    assert trial.void is not None
    assert "MCP server" in trial.void[1]


def test_claude_server_that_is_silently_absent_is_named() -> None:
    trial = claude("claude-2.1.332-ok-empty-mcp", servers=True)
    assert trial.void is not None
    assert "'shelf' is missing: the treatment was not delivered" in trial.void[1]


def test_claude_intruders_are_named() -> None:
    """A4: the operator's skills, hooks, agents, servers and memory."""
    trial = claude("claude-2.1.332-contaminated-default-flags")
    assert trial.void is not None
    assert trial.void[0] is Status.INVALID_ENVIRONMENT
    for word in ("intruder", "agents", "slash_commands"):
        assert word in trial.void[1]


def test_claude_subscription_token_is_no_api_key() -> None:
    trial = claude("claude-2.1.332-rate-limit-event-oauth")
    assert trial.void is not None
    assert "api_key_source" in trial.void[1]


def line(**value: object) -> bytes:
    return json.dumps(value).encode()


def result(**changes: object) -> bytes:
    plain = {"type": "result", "subtype": "success", "is_error": False, "terminal_reason": "completed", "num_turns": 3}
    return line(**{**plain, "permission_denials": [], **changes})


def spoken(*more: bytes) -> Trial:
    init = next(item for item in recorded("claude-2.1.332-ok-empty-mcp") if b'"init"' in item)
    expected = replace(CLAUDE, servers={}, covers=frozenset())
    session = prompted(expected)
    return hear(session, [init, *more], expected)


def edited(name: str, message: Mapping[str, Any], end: Mapping[str, object]) -> Trial:
    """A recorded run whose synthetic message and result say something else."""
    expected = replace(CLAUDE, servers={}, covers=frozenset())
    lines = [json.loads(item) for item in recorded(name)]
    for value in lines:
        if value["type"] == "assistant" and value["message"]["model"] == "<synthetic>":
            for key in ("error", "api_error", "api_error_status", "api_error_type"):
                value.pop(key, None)
            inner = {**value["message"], **message.get("message", {})}
            value.update({**message, "message": inner})
        if value["type"] == "result":
            value.update(end)
    return hear(prompted(expected), [line(**value) for value in lines], expected, replace(ENDED, exit_code=1))


def said(text: str, **inner: object) -> dict[str, object]:
    return {"content": [{"type": "text", "text": text}], **inner}


EXHAUSTED = "claude-2.1.332-api-529-exhausted"
LOST = ([Status.SANDBOX_LOST], StopReason.CRASHED)
GRADED: tuple[list[Status], StopReason] = ([], StopReason.CRASHED)


@pytest.mark.parametrize(
    ("message", "end"),
    [
        (  # 2.1.332
            {"error": "server_error", "api_error": "connection_failed", "message": said("Connection refused")},
            {"terminal_reason": "api_error", "api_error_status": None},
        ),
        (  # 2.1.197: its word for every end is "completed"
            {"error": "server_error", "message": said("API Error: Unable to connect to API (ConnectionRefused)")},
            {"terminal_reason": "completed", "api_error_status": None},
        ),
        (
            {"error": "unknown", "message": said("API Error: Unable to connect to API (ECONNRESET)")},
            {"terminal_reason": "completed", "api_error_status": None},
        ),
        (
            {"error": "authentication_failed", "message": said("Invalid API key")},
            {"terminal_reason": "completed", "api_error_status": None},
        ),
    ],
)
def test_claude_model_that_cannot_be_reached_is_infrastructure(
    message: dict[str, object], end: dict[str, object]
) -> None:
    trial = edited(EXHAUSTED, message, end)
    assert ([item.status for item in trial.voids], trial.stop_reason) == LOST
    assert trial.voids[0].reason.startswith("the provider failed: ")


@pytest.mark.parametrize(
    ("message", "end"),
    [
        (  # 2.1.332
            {"error": "invalid_request", "message": said("API Error: can't help with this.", stop_reason="refusal")},
            {"terminal_reason": "api_error", "api_error_status": None, "stop_reason": "refusal"},
        ),
        (  # 2.1.197
            {"error": "invalid_request", "message": said("API Error: is unable to respond", stop_reason="refusal")},
            {"terminal_reason": "completed", "api_error_status": None, "stop_reason": "refusal"},
        ),
        (  # the stop reason alone outweighs a name that would be the provider's
            {"error": "server_error", "message": said("API Error", stop_reason="refusal")},
            {"terminal_reason": "api_error", "api_error_status": None},
        ),
    ],
)
def test_claude_refusal_has_crashed_and_its_work_is_graded(message: dict[str, object], end: dict[str, object]) -> None:
    trial = edited(EXHAUSTED, message, end)
    assert ([item.status for item in trial.voids], trial.stop_reason) == GRADED


@pytest.mark.parametrize("error", ["something_new", "unknown", "max_output_tokens", "invalid_request"])
def test_claude_error_that_nobody_knows_is_the_agents_own(error: str) -> None:
    """An exclusion needs a reason that names the provider: else a model could choose which of its runs count."""
    end = {"terminal_reason": "api_error", "api_error_status": None}
    trial = edited(EXHAUSTED, {"error": error, "message": said("API Error: the answer was odd")}, end)
    assert ([item.status for item in trial.voids], trial.stop_reason) == GRADED


def test_claude_models_own_words_about_a_connection_exclude_nothing() -> None:
    """Only what the CLI wrote itself is read for such words."""
    inner = said("Unable to connect to API (ECONNREFUSED)", model="claude-sonnet-4-5-20250929")
    end = {"terminal_reason": "api_error", "api_error_status": None}
    trial = edited(EXHAUSTED, {"error": "something_new", "message": inner}, end)
    assert ([item.status for item in trial.voids], trial.stop_reason) == GRADED
    trial = edited(EXHAUSTED, {"error": "invalid_request", "message": said("connection refused by a.py")}, end)
    assert ([item.status for item in trial.voids], trial.stop_reason) == GRADED


@pytest.mark.parametrize(
    ("status", "lost"),
    [*[(code, True) for code in (401, 402, 403, 404, 408, 409, 429, 500, 502, 503, 529)],
     *[(code, False) for code in (400, 405, 413, 415, 422)]],
)  # fmt: skip
def test_claude_http_status_says_whose_fault_it_was(status: int, lost: bool) -> None:
    """A name that would be the provider's does not outweigh the status."""
    trial = edited(EXHAUSTED, {"error": "server_error"}, {"api_error_status": status})
    assert ([item.status for item in trial.voids], trial.stop_reason) == (LOST if lost else GRADED)


def test_claude_empty_account_is_infrastructure() -> None:
    trial = edited(EXHAUSTED, {"error": "billing_error", "message": said("Credit low")}, {"api_error_status": 400})
    assert ([item.status for item in trial.voids], trial.stop_reason) == LOST


def test_claude_error_that_was_overcome_does_not_decide_how_a_later_limit_ended() -> None:
    message = {"model": "<synthetic>", "content": [{"type": "text", "text": "API Error: Unable to connect to API"}]}
    good = {"model": "claude-sonnet-4-5-20250929", "content": [{"type": "text", "text": "hi"}]}
    last = result(is_error=True, terminal_reason="api_error", api_error_status=None)
    trial = spoken(
        line(type="assistant", message=message, error="server_error"), line(type="assistant", message=good), last
    )
    assert ([item.status for item in trial.voids], trial.stop_reason) == GRADED


@pytest.mark.parametrize("reason", ["completed", "aborted_tools"])
@pytest.mark.parametrize("is_error", [False, True])
def test_claude_that_was_interrupted_has_crashed_and_its_work_is_graded(reason: str, is_error: bool) -> None:
    """SIGINT: the exit code is 0."""
    trial = spoken(result(subtype="error_during_execution", is_error=is_error, terminal_reason=reason))
    assert (trial.voids, trial.stop_reason) == ((), StopReason.CRASHED)


def test_claude_that_was_interrupted_between_two_answers_has_crashed() -> None:
    """SIGINT while it waits for its model: exit code 0 and no result at all."""
    trial = spoken(line(type="user", message={"role": "user", "content": "[Request interrupted by user]"}))
    assert (trial.result, trial.voids, trial.stop_reason) == (None, (), StopReason.CRASHED)


def test_no_further_turn_after_an_interrupted_one() -> None:
    session = ClaudeSession("one", replace(CLAUDE, servers={}), Baseline(tools=()), turns=("two",))
    listed = {"subtype": "success", "request_id": "status-0", "response": {"mcpServers": []}}
    session.take(line(type="control_response", response=listed))
    reply = session.take(result(subtype="error_during_execution"))
    assert (reply.send, reply.done) == ((), True)


def counted(*models: str, served: tuple[str, ...] = ()) -> list[tuple[Status, str]]:
    """What a result that counts tokens of these models is void for."""
    init = next(item for item in recorded("claude-2.1.332-ok-empty-mcp") if b'"init"' in item)
    expected = replace(CLAUDE, servers={}, covers=frozenset(), served=served)
    usage = {model: {"inputTokens": 1, "outputTokens": 1, "costUSD": 0.1} for model in models}
    trial = hear(prompted(expected), [init, result(modelUsage=usage)], expected)
    return [(item.status, item.reason) for item in trial.voids]


def test_another_model_in_the_results_usage_is_void() -> None:
    """A15: a helper that answered in no message of the stream."""
    pinned = "claude-sonnet-4-5-20250929"
    assert counted(pinned, "<synthetic>") == []
    reason = f"asked for {pinned}, the result counts tokens of claude-haiku"
    assert counted(pinned, "claude-haiku") == [(Status.INVALID_ENVIRONMENT, reason)]
    assert counted(pinned, "claude-haiku", served=("claude-haiku",)) == []


def test_a_registered_further_name_of_the_model_may_answer() -> None:
    init = next(item for item in recorded("claude-2.1.332-ok-empty-mcp") if b'"init"' in item)
    expected = replace(CLAUDE, servers={}, covers=frozenset(), served=("claude-dated",))
    message = {"model": "claude-dated", "content": [{"type": "text", "text": "hi"}]}
    trial = hear(prompted(expected), [init, line(type="assistant", message=message), result()], expected)
    assert (trial.voids, trial.stop_reason) == ((), StopReason.FINISHED)


def test_claude_without_its_mcp_file_says_nothing_and_is_void() -> None:
    """Exit code 1, nothing on standard output."""
    stderr = b"Error: Invalid MCP configuration:\nMCP config file not found: mcp.json\n"
    trial = hear(prompted(CLAUDE), [], CLAUDE, replace(ENDED, exit_code=1, stderr=stderr))
    reason = "the agent never said that it started (exit 1): MCP config file not found: mcp.json"
    assert (trial.void, trial.stop_reason) == ((Status.INVALID_ENVIRONMENT, reason), StopReason.NOT_STARTED)


def test_denied_tool_under_success_is_void() -> None:
    """Bug report 60."""
    trial = spoken(result(permission_denials=[{"tool_name": "Bash", "tool_use_id": "t"}]))
    assert [(item.status, item.reason) for item in trial.voids] == [
        (Status.INVALID_ENVIRONMENT, "the agent was denied Bash")
    ]


def test_zero_turns_under_success_is_void() -> None:
    assert [item.status for item in spoken(result(num_turns=0)).voids] == [Status.INVALID_ENVIRONMENT]


def test_another_model_in_a_message_is_void() -> None:
    """A15."""
    message = {"model": "claude-cheap", "content": [{"type": "text", "text": "hi"}]}
    trial = spoken(line(type="assistant", message=message), result())
    assert "claude-cheap answered" in trial.voids[0].reason


def test_salvaged_stream_is_no_clean_finish() -> None:
    """A cut stream whose tool call was whole: the run goes on, and the only trace is an error on one message."""
    message = {"model": "claude-sonnet-4-5-20250929", "content": [{"type": "text", "text": "hi"}]}
    trial = spoken(line(type="assistant", message=message, error="connection_failed"), result())
    assert trial.stop_reason is StopReason.CRASHED


def test_hook_is_an_intruder() -> None:
    trial = spoken(line(type="system", subtype="hook_started", hook_name="PreToolUse"), result())
    assert "hook 'PreToolUse' ran" in trial.voids[0].reason


def test_claude_asks_before_it_prompts() -> None:
    session = ClaudeSession("the prompt", CLAUDE, Baseline(tools=()))
    assert b"initialize" in session.open().send[0]
    answer = {"subtype": "success", "request_id": "initialize", "response": {}}
    assert b"mcp_status" in session.take(line(type="control_response", response=answer)).send[0]
    pending = {"mcpServers": [{"name": "shelf", "status": "pending"}]}
    answer = {"subtype": "success", "request_id": "status-0", "response": pending}
    reply = session.take(line(type="control_response", response=answer))
    assert (b"mcp_status" in reply.send[0], reply.events) == (True, ())
    failed = {"mcpServers": [{"name": "shelf", "status": "failed"}]}
    answer = {"subtype": "success", "request_id": "status-1", "response": failed}
    trial = Trial()
    reply = trial.hear(line(type="control_response", response=answer), session, CLAUDE)
    assert isinstance(reply.events[0], Preflight)
    assert trial.problems == ("MCP server 'shelf' is 'failed', not connected",)
    assert b"the prompt" in reply.send[0]  # it stands ready, and a trial with problems never sends it


def test_further_turns_follow_in_their_order() -> None:
    """A10."""
    session = ClaudeSession("one", replace(CLAUDE, servers={}), Baseline(tools=()), turns=("two", "three"))
    listed = {"subtype": "success", "request_id": "status-0", "response": {"mcpServers": []}}
    sent = [session.take(line(type="control_response", response=listed)).send[0]]
    sent += [session.take(result()).send[0] for _ in range(2)]
    assert [json.loads(item)["message"]["content"] for item in sent] == ["one", "two", "three"]
    assert session.take(result()).done


def test_no_further_turn_after_a_failed_one() -> None:
    session = ClaudeSession("one", replace(CLAUDE, servers={}), Baseline(tools=()), turns=("two",))
    listed = {"subtype": "success", "request_id": "status-0", "response": {"mcpServers": []}}
    session.take(line(type="control_response", response=listed))
    reply = session.take(result(is_error=True, terminal_reason="api_error", api_error_status=529))
    assert (reply.send, reply.done) == ((), True)


def test_gemini_run() -> None:
    expected = replace(CLAUDE, agent="gemini", version="0.61.0", model="gemini-2.5-pro", covers=frozenset())
    trial = hear(GeminiSession(b"", expected), recorded("gemini-0.61-ok-mcp"), expected)
    assert (trial.stop_reason, trial.tool_calls, trial.context_tool_calls) == (StopReason.FINISHED, 4, 1)
    assert trial.problems == ()
    assert [usage.input_tokens for usage in trial.usage] == [63309]


def test_gemini_call_of_a_strange_server_is_contamination() -> None:
    expected = replace(CLAUDE, agent="gemini", version="0.61.0", model="gemini-2.5-pro", servers={}, covers=frozenset())
    trial = hear(GeminiSession(b"", expected), recorded("gemini-0.61-ok-mcp"), expected)
    assert trial.void == (Status.CONTAMINATED, "called shelf, which the arm has not")


def test_opencode_run() -> None:
    expected = replace(CLAUDE, agent="opencode", version="1.18.33", model="m", covers=frozenset())
    status = line(type="mcp_status", version="1.18.33", mcp={"shelf": {"status": "connected"}})
    whole = [status, *recorded("opencode-1.18.33-ok-mcp")]
    trial = hear(OpenCodeSession(b"", expected), whole, expected)
    assert (trial.stop_reason, trial.tool_calls, trial.context_tool_calls) == (StopReason.FINISHED, 4, 1)
    assert [usage.input_tokens for usage in trial.usage] == [8188 + 8288 + 8350 + 8427 + 8515]
    killed = hear(OpenCodeSession(b"", expected), whole[:-1], expected, replace(ENDED, exit_code=1))
    assert killed.stop_reason is StopReason.CRASHED


@pytest.mark.parametrize(
    ("mcp", "problem"),
    [
        ({}, "MCP server 'shelf' is missing: the treatment was not delivered"),
        ({"shelf": {"status": "failed", "error": "boom"}}, "MCP server 'shelf' is 'failed', not connected (boom)"),
        ({"shelf": {"status": "connected"}, "x": {"status": "connected"}}, "MCP server 'x' is an intruder"),
        ({"shelf": {"status": "connected"}}, None),
    ],
)
def test_opencode_is_asked_before_it_is_prompted(mcp: dict[str, object], problem: str | None) -> None:
    expected = replace(CLAUDE, agent="opencode", version="1.18.33", model="m", covers=frozenset())
    session = OpenCodeSession(b"the prompt", expected)
    assert session.open().send == ()
    trial = Trial()
    reply = trial.hear(line(type="mcp_status", version="1.18.33", mcp=mcp), session, expected)
    assert (reply.send, reply.close) == ((b"the prompt",), True)  # a trial with problems never sends it
    assert trial.problems == (() if problem is None else (problem,))


def test_opencode_of_another_version_is_named() -> None:
    expected = replace(CLAUDE, agent="opencode", version="1.18.33", model="m", servers={}, covers=frozenset())
    trial = hear(OpenCodeSession(b"", expected), [line(type="mcp_status", version="1.19.0", mcp={})], expected)
    assert trial.problems == ("version is '1.19.0', registered is '1.18.33'",)


def test_codex_failed_turn() -> None:
    expected = replace(CLAUDE, agent="codex", version="0.171.0", model="m", servers={}, covers=frozenset({"servers"}))
    session = CodexSession("prompt", expected, "/workspace")
    lines = [
        line(id=1, result={"userAgent": "x"}),
        line(id=2, result={"model": "m", "thread": {"id": "t", "cliVersion": "0.171.0"}}),
        line(id=3, result={"data": []}),
        line(id=4, result={"turn": {}}),
        line(method="error", params={"error": {"message": "high demand"}, "willRetry": True}),
        line(method="turn/completed", params={"turn": {"status": "failed", "error": {"message": "high demand"}}}),
    ]
    trial = hear(session, lines, expected)
    assert trial.problems == ()
    assert (trial.stop_reason, trial.result and trial.result.text) == (StopReason.CRASHED, "high demand")


def test_codex_server_that_failed_is_named_before_the_prompt() -> None:
    expected = replace(CLAUDE, agent="codex", version="0.171.0", model="m")
    session = CodexSession("prompt", expected, "/workspace")
    lines = [
        line(id=2, result={"model": "m", "thread": {"id": "t", "cliVersion": "0.171.0"}}),
        line(method="mcpServer/startupStatus/updated", params={"name": "shelf", "status": "failed", "error": "boom"}),
        line(id=3, result={"data": [{"name": "shelf", "tools": {}}]}),
    ]
    trial = hear(session, lines, expected)
    assert "MCP server 'shelf' is 'failed', not connected" in trial.problems


@pytest.mark.parametrize(
    ("name", "calls", "tokens"),
    [("acp-gemini-0.61", 4, 64441), ("acp-opencode-1.18.33", 4, None), ("acp-claude-agent-acp-0.49", 4, 152865),
     ("acp-codex-acp-0.16", 3, None)],
)  # fmt: skip
def test_acp_agents(name: str, calls: int, tokens: int | None) -> None:
    """Four agents behind one protocol, each naming its MCP calls in a way of its own."""
    expected = replace(CLAUDE, agent="acp", covers=frozenset())
    session = AcpSession("prompt", expected, "/workspace", {})
    ids = {"init": 1, "new": 3, "prompt": 5}
    lines = []
    for raw in recorded(name):
        value = json.loads(raw)
        if "_call" in value:
            lines.append(line(jsonrpc="2.0", id=ids[value["_call"]], result=value["result"]))
        else:
            lines.append(line(jsonrpc="2.0", method=value["_notification"], params={"update": value["update"]}))
    trial = hear(session, lines, expected)
    assert (trial.stop_reason, trial.tool_calls, trial.context_tool_calls) == (StopReason.FINISHED, calls, 1)
    assert trial.foreign_servers == set()
    if tokens is not None:
        assert [usage.input_tokens for usage in trial.usage] == [tokens]


def test_acp_permission_is_granted_and_recorded() -> None:
    session = AcpSession("prompt", CLAUDE, "/workspace", {})
    options = [{"optionId": "no", "kind": "reject_once"}, {"optionId": "yes", "kind": "allow_once", "name": "Allow"}]
    asked = line(jsonrpc="2.0", id=9, method="session/request_permission", params={"options": options})
    reply = session.take(asked)
    assert json.loads(reply.send[0])["result"] == {"outcome": {"outcome": "selected", "optionId": "yes"}}
    assert len(reply.events) == 1


@given(st.binary(max_size=300))
def test_no_line_of_any_stream_raises(data: bytes) -> None:
    sessions: list[Session] = [
        ClaudeSession("", CLAUDE, Baseline(tools=())),
        CodexSession("", CLAUDE, "/w"),
        GeminiSession(b"", CLAUDE),
        OpenCodeSession(b"", CLAUDE),
        MiniSession(b"", CLAUDE),
        AcpSession("", CLAUDE, "/w", {}),
    ]
    for session in sessions:
        session.take(data)
        session.take(b'{"type": ' + data + b"}")


KEYS = st.sampled_from(
    ["type", "message", "content", "result", "params", "item", "part", "response", "id", "method", "mcp"]
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8),
              st.sampled_from(["system", "assistant", "user", "result", "control_response", "tool_use",
                               "step_finish", "mcp_status", "end"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.too_slow])  # on a busy machine the first value may take a second
@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_no_shape_of_any_event_raises(value: dict[str, object]) -> None:
    data = json.dumps(value).encode()
    sessions: list[Session] = [
        ClaudeSession("", CLAUDE, Baseline(tools=()), turns=("x",) * 9),
        CodexSession("", CLAUDE, "/w", turns=("x",) * 9),
        GeminiSession(b"", CLAUDE),
        OpenCodeSession(b"", CLAUDE),
        MiniSession(b"", CLAUDE),
        AcpSession("", CLAUDE, "/w", {}, turns=("x",) * 9),
    ]
    for session in sessions:
        session.take(data)


def test_odd_characters_are_read_back() -> None:
    found = read_object(b'{"a": "x\\u2028y\\u0000z \\ud800 \xff"}')
    assert found == {"a": "x\u2028y\x00z \ufffd \ufffd"} or found == {"a": "x\u2028y\x00z ? \ufffd"}
    assert isinstance(read_object(b"x" * (16 << 20)), Malformed)
