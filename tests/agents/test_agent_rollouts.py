"""Whole rollouts of real agents against a scripted model: MCP tool called, file edited, graded resolved."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard
from agent_cases import FIX, agent_laboratory, agent_plan, lines, present, shelf
from engine_fixtures import IMAGE
from rollout_cases import PROMPT, write_provider

from pairtrial.core.status import Status, StopReason
from pairtrial.harness.agents.base import NEXT_TURN, Invocation
from pairtrial.harness.agents.claude_code import ClaudeCodeAdapter
from pairtrial.prereg.plan import AgentSpec

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(240)]
AGENTS = [
    ("claude-code", "2.1.332"),
    ("claude-code", "2.1.197"),
    ("codex", "0.171.0"),
    ("opencode", "1.18.33"),
    ("gemini", "0.61.0"),
    ("acp", "gemini-0.61.0"),
]
Require = Callable[..., None]
CLAUDE = AGENTS[0]


@pytest.mark.parametrize(("adapter", "version"), AGENTS)
async def test_real_agent_resolves_with_and_without_the_server(
    tmp_path: Path, require: Require, adapter: str, version: str
) -> None:
    require("agents", *present(adapter, version))
    with agent_laboratory(tmp_path, agent_plan(adapter, version), {"steps": FIX}) as (lab, model):
        treated, files = await lab.attempt("treat")
        plain, _ = await lab.attempt("control")
    assert (treated.status, treated.stop_reason) == (Status.RESOLVED, StopReason.FINISHED), treated.reason
    assert (plain.status, plain.stop_reason) == (Status.RESOLVED, StopReason.FINISHED), plain.reason
    assert (treated.context_tool_calls, plain.context_tool_calls) == (1, 0)
    assert treated.files_modified == ("calc.py",)
    assert treated.startup is not None
    assert (treated.startup.agent, treated.startup.version) == (adapter, version)
    assert [(server.name, server.tools) for server in treated.startup.servers] == [("shelf", ("lookup",))]
    assert treated.wire is not None
    assert (treated.wire.main_requests, treated.wire.refused, treated.wire.errors) == (4, 0, 0)
    assert treated.usage[0].steps == 4
    assert treated.usage[0].output_tokens == 80
    assert treated.observed["invocation"] == plain.observed["invocation"]
    assert treated.observed["rendered-mcp-file"] != plain.observed["rendered-mcp-file"]
    assert [event for event in lines(files["events.jsonl.zst"]) if event.get("server") == "shelf"]
    assert files["raw.jsonl.zst"]
    assert len(lines(files["wire.jsonl.zst"])) == len(model.requests) - 3


@pytest.mark.parametrize("kind", ["bubblewrap", "docker"])
async def test_claude_in_a_sandbox_without_network(
    tmp_path: Path, require: Require, kind: str, request: pytest.FixtureRequest
) -> None:
    require("agents", *present(*CLAUDE))
    require(kind)
    image = {}
    if kind == "docker":
        request.getfixturevalue("docker_engine")
        image = {"image": IMAGE}
    plan = agent_plan(*CLAUDE, sandbox={"kind": kind, **image})
    with agent_laboratory(tmp_path, plan, {"steps": FIX}) as (lab, model):
        receipt, _ = await lab.attempt("treat")
    assert (receipt.status, receipt.stop_reason) == (Status.RESOLVED, StopReason.FINISHED), receipt.reason
    assert receipt.context_tool_calls == 1
    assert receipt.sandbox.paths == "fixed"
    assert "/workspace" in str(model.main[0]["body"])


@pytest.mark.parametrize(
    ("fault", "status", "stop"),
    [
        ({"2": {"status": 529}}, Status.RESOLVED, StopReason.FINISHED),
        ({"2": {"cut": 3}}, Status.RESOLVED, StopReason.FINISHED),
        ({"*": {"status": 400, "message": "prompt is too long"}}, Status.UNRESOLVED, StopReason.CRASHED),
        ({"3": {"model": "claude-cheap"}}, Status.INVALID_ENVIRONMENT, StopReason.CRASHED),
    ],
)
async def test_faults_of_the_provider_under_claude(
    tmp_path: Path, require: Require, fault: dict[str, Any], status: Status, stop: StopReason
) -> None:
    require("agents", *present(*CLAUDE))
    with agent_laboratory(tmp_path, agent_plan(*CLAUDE), {"steps": FIX, "faults": fault}) as (lab, _):
        receipt, _files = await lab.attempt("control")
    assert (receipt.status, receipt.stop_reason) == (status, stop), receipt.reason


async def test_answers_that_are_cut_at_their_length_crash_the_agent_and_are_graded(
    tmp_path: Path, require: Require
) -> None:
    require("agents", *present(*CLAUDE))
    script = {"steps": [{"say": "partial"}], "faults": {"*": {"stop": "max_tokens"}}}
    with agent_laboratory(tmp_path, agent_plan(*CLAUDE), script) as (lab, _):
        receipt, _files = await lab.attempt("control")
    assert (receipt.status, receipt.stop_reason) == (Status.UNRESOLVED, StopReason.CRASHED), receipt.reason


@pytest.mark.parametrize(("adapter", "version"), [("claude-code", "2.1.332"), ("codex", "0.171.0")])
async def test_a_provider_that_fails_always_is_infrastructure(
    tmp_path: Path, require: Require, adapter: str, version: str
) -> None:
    require("agents", *present(adapter, version))
    script = {"steps": FIX, "faults": {"*": {"status": 529}}}
    with agent_laboratory(tmp_path, agent_plan(adapter, version), script) as (lab, _):
        receipt, _files = await lab.attempt("control")
    assert receipt.status is Status.SANDBOX_LOST, receipt.reason
    assert "529" in (receipt.reason or "") or "provider" in (receipt.reason or "")
    assert receipt.usage[0].cost_usd == "0.000000"


@pytest.mark.parametrize(("adapter", "version"), AGENTS[:4])
async def test_server_that_crashes_spends_no_token(
    tmp_path: Path, require: Require, adapter: str, version: str
) -> None:
    """A5 and A16: not a control either."""
    require("agents", *present(adapter, version))
    provider = shelf(tmp_path, "crash")
    with agent_laboratory(tmp_path, agent_plan(adapter, version), {"steps": FIX}, provider) as (lab, model):
        receipt, _ = await lab.attempt("treat")
    assert receipt.status is Status.INVALID_ENVIRONMENT
    assert "shelf" in (receipt.reason or "")
    assert receipt.grade is None
    assert model.main == []


@pytest.mark.parametrize(("adapter", "version"), AGENTS[:4])
async def test_server_that_is_slow_is_waited_for(tmp_path: Path, require: Require, adapter: str, version: str) -> None:
    """A5: four seconds are no reason to start without the treatment."""
    require("agents", *present(adapter, version))
    provider = shelf(tmp_path, "slow", "4")
    with agent_laboratory(tmp_path, agent_plan(adapter, version), {"steps": FIX}, provider) as (lab, _):
        receipt, _files = await lab.attempt("treat")
    assert (receipt.status, receipt.stop_reason) == (Status.RESOLVED, StopReason.FINISHED), receipt.reason
    assert receipt.startup is not None
    assert [(server.name, server.status) for server in receipt.startup.servers] == [("shelf", "connected")]
    assert receipt.context_tool_calls == 1


@pytest.mark.parametrize(("adapter", "version"), AGENTS[:2])
async def test_server_whose_command_does_not_exist_is_named(
    tmp_path: Path, require: Require, adapter: str, version: str
) -> None:
    require("agents", *present(adapter, version))
    server = {"command": "no-such-command-of-a-server", "args": [], "tools": ["lookup"]}
    provider = write_provider(tmp_path / "shelf", {"servers": {"shelf": server}})
    with agent_laboratory(tmp_path, agent_plan(adapter, version), {"steps": FIX}, provider) as (lab, model):
        receipt, _ = await lab.attempt("treat")
    assert (receipt.status, receipt.grade) == (Status.INVALID_ENVIRONMENT, None)
    assert receipt.reason == "MCP server 'shelf' is 'failed', not connected"
    assert model.main == []


class Elsewhere(ClaudeCodeAdapter):
    """Names an MCP file that nobody wrote."""

    def invocation(self, agent: AgentSpec, prompt: str) -> Invocation:
        plain = super().invocation(agent, prompt)
        return replace(plain, argv=tuple(item.replace("${MCP_FILE}", "${HOME}/none.json") for item in plain.argv))


class Unreadable(ClaudeCodeAdapter):
    """Writes an MCP file that is no JSON."""

    def render_mcp(self, agent: AgentSpec, servers: Mapping[str, Mapping[str, Any]]) -> bytes:
        return b'{"mcpServers": '


@pytest.mark.parametrize("version", ["2.1.332", "2.1.197"])
@pytest.mark.parametrize("adapter", [Elsewhere, Unreadable])
async def test_claude_with_a_missing_or_unreadable_mcp_file_is_void(
    tmp_path: Path, require: Require, adapter: type[ClaudeCodeAdapter], version: str
) -> None:
    require("agents", *present("claude-code", version))
    with agent_laboratory(tmp_path, agent_plan("claude-code", version), {"steps": FIX}) as (lab, model):
        lab = replace(lab, experiment=replace(lab.experiment, adapter=adapter()))
        receipt, _ = await lab.attempt("treat")
    assert (receipt.status, receipt.grade) == (Status.INVALID_ENVIRONMENT, None)
    assert (receipt.reason or "").startswith("the agent never said that it started (exit 1): ")
    assert "MCP" in (receipt.reason or "")
    assert model.main == []


@pytest.mark.parametrize("version", ["2.1.332", "2.1.197"])
async def test_refusal_of_the_model_under_claude_is_graded(tmp_path: Path, require: Require, version: str) -> None:
    require("agents", *present("claude-code", version))
    script = {"steps": [{"say": "No."}], "faults": {"*": {"stop": "refusal"}}}
    with agent_laboratory(tmp_path, agent_plan("claude-code", version), script) as (lab, _):
        receipt, _files = await lab.attempt("control")
    assert (receipt.status, receipt.stop_reason) == (Status.UNRESOLVED, StopReason.CRASHED), receipt.reason


@pytest.mark.parametrize("version", ["2.1.332", "2.1.197"])
async def test_claude_that_interrupts_itself_has_crashed_and_its_work_is_graded(
    tmp_path: Path, require: Require, version: str
) -> None:
    """SIGINT, after the repair: exit code 0 is no clean end."""
    require("agents", *present("claude-code", version))
    interrupt = {"do": "run", "command": "kill -INT $PPID; sleep 1.5; true"}
    with agent_laboratory(
        tmp_path, agent_plan("claude-code", version), {"steps": [FIX[0], FIX[2], interrupt, FIX[3]]}
    ) as (
        lab,
        _,
    ):
        receipt, _files = await lab.attempt("control")
    assert (receipt.status, receipt.stop_reason) == (Status.RESOLVED, StopReason.CRASHED), receipt.reason


async def test_claude_whose_model_is_down_is_infrastructure(tmp_path: Path, require: Require) -> None:
    """Nothing listens where the gateway forwards to."""
    require("agents", *present(*CLAUDE))
    with agent_laboratory(tmp_path, agent_plan(*CLAUDE), {"steps": FIX}) as (lab, _):
        assert lab.experiment.route is not None
        nowhere = replace(lab.experiment.route, endpoint="http://127.0.0.1:9")
        lab = replace(lab, experiment=replace(lab.experiment, route=nowhere))
        receipt, _files = await lab.attempt("control")
    assert (receipt.status, receipt.grade) == (Status.SANDBOX_LOST, None)
    assert (receipt.reason or "").startswith("the provider failed: ")


async def test_opencode_says_why_a_server_failed_and_no_request_is_made(tmp_path: Path, require: Require) -> None:
    """`GET /mcp` names the reason; the prompt was never sent, so neither was a request for a title."""
    require("agents", *present("opencode", "1.18.33"))
    provider = shelf(tmp_path, "crash")
    with agent_laboratory(tmp_path, agent_plan("opencode", "1.18.33"), {"steps": FIX}, provider) as (lab, model):
        receipt, _ = await lab.attempt("treat")
    assert receipt.status is Status.INVALID_ENVIRONMENT
    assert "MCP server 'shelf' is 'failed', not connected (MCP error -32000" in (receipt.reason or "")
    assert model.requests == []


async def test_opencode_in_a_sandbox_without_network(tmp_path: Path, require: Require) -> None:
    require("agents", *present("opencode", "1.18.33"))
    require("bubblewrap")
    plan = agent_plan("opencode", "1.18.33", sandbox={"kind": "bubblewrap"})
    with agent_laboratory(tmp_path, plan, {"steps": FIX}) as (lab, _):
        receipt, _files = await lab.attempt("treat")
    assert (receipt.status, receipt.stop_reason) == (Status.RESOLVED, StopReason.FINISHED), receipt.reason
    assert receipt.startup is not None
    assert [(server.name, server.status) for server in receipt.startup.servers] == [("shelf", "connected")]


@pytest.mark.parametrize(("adapter", "version"), [CLAUDE, ("codex", "0.171.0")])
async def test_server_with_other_tools_than_registered_is_named(
    tmp_path: Path, require: Require, adapter: str, version: str
) -> None:
    require("agents", *present(adapter, version))
    provider = shelf(tmp_path, "many", "3", tools=2)
    with agent_laboratory(tmp_path, agent_plan(adapter, version), {"steps": FIX}, provider) as (lab, model):
        receipt, _ = await lab.attempt("treat")
    assert receipt.status is Status.INVALID_ENVIRONMENT
    assert "lookup_2" in (receipt.reason or "")
    assert model.main == []


async def test_spend_cap_stops_before_the_request_leaves_and_the_work_is_graded(
    tmp_path: Path, require: Require
) -> None:
    """C12: what was left at a spend limit is graded."""
    require("agents", *present(*CLAUDE))
    # the ceiling of one request is about 0.55 dollars (32,000 tokens of answer); each costs 0.02
    budget = {"ceiling_usd": 10, "per_rollout_usd": 0.59, "prices": "prices.yaml"}
    with agent_laboratory(tmp_path, agent_plan(*CLAUDE, budget=budget), {"steps": [*FIX[2:3], *FIX[2:3], *FIX]}) as (
        lab,
        model,
    ):
        receipt, _ = await lab.attempt("control")
    assert receipt.stop_reason is StopReason.SPEND_LIMIT
    assert receipt.status.is_graded
    assert receipt.wire is not None
    assert receipt.wire.capped
    assert 0 < len(model.main) < 5


async def test_turn_limit_is_a_stop_reason(tmp_path: Path, require: Require) -> None:
    require("agents", *present(*CLAUDE))
    plan = agent_plan(*CLAUDE, agent={"limits": {"wall_s": 60, "turns": 2}})
    with agent_laboratory(tmp_path, plan, {"steps": FIX}) as (lab, _):
        receipt, _files = await lab.attempt("control")
    assert receipt.stop_reason is StopReason.TURN_LIMIT
    assert receipt.status is Status.RESOLVED  # the edit was its second step


async def test_turn_limit_of_an_agent_that_has_none_is_kept_by_the_gateway(tmp_path: Path, require: Require) -> None:
    require("agents", *present("codex", "0.171.0"))
    plan = agent_plan("codex", "0.171.0", agent={"limits": {"wall_s": 60, "turns": 2}})
    with agent_laboratory(tmp_path, plan, {"steps": FIX}) as (lab, model):
        receipt, _files = await lab.attempt("control")
    assert receipt.stop_reason is StopReason.TURN_LIMIT
    assert receipt.status.is_graded
    assert len(model.main) == 2


async def test_time_limit_is_a_stop_reason(tmp_path: Path, require: Require) -> None:
    require("agents", *present(*CLAUDE))
    plan = agent_plan(*CLAUDE, agent={"limits": {"wall_s": 6, "turns": 5}})
    with agent_laboratory(tmp_path, plan, {"steps": FIX, "faults": {"*": {"sleep": 20}}}) as (lab, _):
        receipt, _files = await lab.attempt("control")
    assert (receipt.status, receipt.stop_reason) == (Status.UNRESOLVED, StopReason.TIMEOUT)
    assert receipt.limit == "wall"


async def test_background_task_does_not_hold_the_rollout(tmp_path: Path, require: Require) -> None:
    require("agents", *present(*CLAUDE))
    background = {"call": "Bash", "arguments": {"command": "sleep 304", "run_in_background": True}}
    steps = [FIX[0], FIX[2], background, FIX[3]]
    with agent_laboratory(tmp_path, agent_plan(*CLAUDE), {"steps": steps}) as (lab, _):
        receipt, _files = await lab.attempt("control")
    assert (receipt.status, receipt.stop_reason) == (Status.RESOLVED, StopReason.FINISHED), receipt.reason
    assert (receipt.times.agent_s or 99) < 30


async def test_dead_gateway_is_a_lost_sandbox(tmp_path: Path, require: Require) -> None:
    require("agents", *present(*CLAUDE))
    import anyio

    with agent_laboratory(tmp_path, agent_plan(*CLAUDE), {"steps": FIX, "faults": {"2": {"sleep": 8}}}) as (lab, model):

        async def kill() -> None:
            while len(model.main) < 2:
                await anyio.sleep(0.05)
            assert lab.experiment.gateway is not None
            await anyio.to_thread.run_sync(lab.experiment.gateway.stop)

        async with anyio.create_task_group() as group:
            group.start_soon(kill)
            receipt, _files = await lab.attempt("control")
    assert receipt.status is Status.SANDBOX_LOST
    assert receipt.grade is None


async def test_token_and_key_are_in_no_file_of_the_receipt(tmp_path: Path, require: Require) -> None:
    """F1 and bug report 70: an agent that prints its environment."""
    require("agents", *present(*CLAUDE))
    steps = [{"do": "run", "command": "env; env | base64 -w0"}, FIX[3]]
    with agent_laboratory(tmp_path, agent_plan(*CLAUDE), {"steps": steps}) as (lab, model):
        receipt, files = await lab.attempt("control")
    found = re.search(r"ANTHROPIC_API_KEY=([0-9a-f]{48})", json.dumps(model.main[1]["body"]))
    assert found is not None  # the agent did print it, and the model saw it
    token = found[1].encode()
    inner = base64.b64encode(token)[4:60]
    kept = [zstandard.ZstdDecompressor().decompressobj().decompress(data) if name.endswith(".zst") else data
            for name, data in files.items()]  # fmt: skip
    for data in (*kept, receipt.to_bytes()):
        assert token not in data
        assert inner not in data
    assert receipt.redactions > 0


@pytest.mark.parametrize(("adapter", "version"), [("claude-code", "2.1.332"), ("codex", "0.171.0"), AGENTS[5]])
async def test_turns_come_in_their_registered_order(
    tmp_path: Path, require: Require, adapter: str, version: str
) -> None:
    """A10: the second turn is sent when the first has ended well, in the same session."""
    require("agents", *present(adapter, version))
    script = {
        "cases": [{"when": "Now repair it.", "steps": [{"say": "It is add."}, FIX[0], FIX[2], FIX[3]]}],
        "steps": [{"say": "It is add."}],
    }
    with agent_laboratory(tmp_path, agent_plan(adapter, version), script) as (lab, model):
        lab = replace(lab, experiment=replace(lab.experiment, prompt=PROMPT + NEXT_TURN + "\nNow repair it.\n"))
        receipt, _files = await lab.attempt("control")
    assert (receipt.status, receipt.stop_reason) == (Status.RESOLVED, StopReason.FINISHED), receipt.reason
    assert receipt.observed["turns"] == "2 of 2"
    asked = ["Now repair it." in json.dumps(request["body"]) for request in model.main]
    assert asked == [False, True, True, True]
