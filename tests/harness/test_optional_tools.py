"""Tools that an agent adds by itself when a server has resources: allowed beside a server, an intruder without one."""

from __future__ import annotations

import json

import pytest
from factories import PLAN, make_plan
from rollout_cases import FakeAdapter

from pairtrial.harness.agents import Expected, load_adapter
from pairtrial.harness.events import ServerStatus, Startup
from pairtrial.harness.fitness import make_expected
from pairtrial.harness.gateway.wire import classify
from pairtrial.harness.startup import startup_problems
from pairtrial.harness.wiring import first_request_problems
from pairtrial.prereg.plan import AgentSpec
from pairtrial.providers import AgentConfig, Provider

CONFIG = {"schema": "pairtrial.provider.v1", "id": "p", "version": "1", "title": "A provider",
          "servers": {"s": {"command": "x", "tools": ["t"]}}}  # fmt: skip
PROVIDER = Provider(config=AgentConfig.model_validate(CONFIG, strict=False), folder="/nowhere", tree="0" * 64)


class Listing(FakeAdapter):
    """Lists resources of servers that have any; its tools are known by their names on the wire."""

    wire_tools = True

    def own_tools(self, agent: AgentSpec, *, servers: bool) -> tuple[str, ...]:
        return ("edit", "list_resources") if servers else ("edit",)


def expected(provider: Provider | None) -> Expected:
    plan = make_plan(agent={**PLAN["agent"], "version": "1", "model": "m"})
    return make_expected(plan, provider, Listing(""))


def problems(provider: Provider | None, *tools: str) -> list[str]:
    """By the startup event and by the first request together."""
    wanted = expected(provider)
    servers = tuple(ServerStatus(name=name, status="connected", tools=("t",)) for name in wanted.servers)
    startup = Startup(agent="fake", version="1", model="m", mcp_servers=servers, tools=tools)
    offered = [{"name": name} for name in (*tools, *(["t"] if provider else []))]
    request = classify("POST", "/v1/messages", json.dumps({"model": "m", "tools": offered, "messages": []}).encode())
    assert request is not None
    return [*startup_problems(startup, wanted), *first_request_problems(request, Listing(""), wanted, {})]


def test_beside_a_server_they_may_be_there_or_not() -> None:
    assert (expected(PROVIDER).tools, expected(PROVIDER).optional_tools) == (("edit",), ("list_resources",))
    assert problems(PROVIDER, "edit") == problems(PROVIDER, "edit", "list_resources") == []


def test_without_a_server_they_are_intruders() -> None:
    assert expected(None).optional_tools == ()
    assert problems(None, "edit") == []
    assert problems(None, "edit", "list_resources") == [
        "tools is ['edit', 'list_resources'], registered is ['edit']",
        "the model is offered list_resources, which the arm does not have",
    ]


def test_any_other_tool_is_an_intruder_and_none_may_be_missing() -> None:
    assert [line.split(",")[0] for line in problems(PROVIDER, "edit", "web")] == [
        "tools is ['edit'",
        "the model is offered web",
    ]
    assert problems(PROVIDER, "list_resources")[1] == "the model is not offered edit, which the agent should have"


@pytest.mark.parametrize(("adapter", "version"), [("claude-code", "2.1.332"), ("opencode", "1.18.33")])
def test_no_measured_tool_is_optional_in_a_control(adapter: str, version: str) -> None:
    options = {"tools": "full"} if adapter == "claude-code" else {}
    agent = {**PLAN["agent"], "adapter": adapter, "version": version, "options": options}
    plan = make_plan(agent=agent)
    control, treated = (make_expected(plan, provider, load_adapter(adapter)) for provider in (None, PROVIDER))
    assert control.tools == treated.tools
    assert (len(control.optional_tools), len(treated.optional_tools)) == (0, 3)
