"""A: arms that differ by more than the treatment. One planted fault for each way, and the gate that names it."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from agent_cases import prices
from factories import make_plan
from rollout_cases import TASK, Laboratory, make_laboratory, write_provider
from scripted import scripted

from pairtrial.core.errors import PairtrialError
from pairtrial.core.status import Status
from pairtrial.harness.agents import load_adapter
from pairtrial.harness.delivery import Arm
from pairtrial.harness.fitness import make_expected, packages_of, plan_problems, targets_context
from pairtrial.harness.gateway import Budget, Family, Route
from pairtrial.harness.gateway.app import Gateway
from pairtrial.harness.gateway.server import GatewayServer
from pairtrial.harness.purity import PurityRecord, probe_arm, purity_record
from pairtrial.prereg.plan import Plan
from pairtrial.providers import Provider

pytestmark = pytest.mark.anyio
MODEL = "m-1"
AGENT = """
import json, os, pathlib, sys, urllib.request
prompt = sys.stdin.read()
config = json.load(open(os.environ["PAIRTRIAL_MCP_FILE"]))["mcpServers"]
def say(**event): print(json.dumps(event), flush=True)
startup = {"agent": "generic", "version": "1", "model": "m-1", "tools": ["edit"], "mcp_servers": [
    {"name": name, "status": "connected", "tools": ["look"]} for name in config]}
context = [str(p) for p in [pathlib.Path("AGENTS.md")] if p.exists()]
system = "You repair code in " + os.getcwd() + "."
tools = [{"name": "edit"}] + [{"name": "mcp__" + name + "__look"} for name in config]
for path in context:
    system += " " + open(path).read()
FAULT
say(type="startup", context_files=context, **startup)
body = {"model": "m-1", "max_tokens": 9, "system": system, "tools": tools,
        "messages": [{"role": "user", "content": prompt}]}
request = urllib.request.Request(os.environ["PAIRTRIAL_GATEWAY"] + "/v1/messages", json.dumps(body).encode(),
                                 {"x-api-key": os.environ["PAIRTRIAL_TOKEN"], "content-type": "application/json"})
try:
    urllib.request.urlopen(request, timeout=20).read()
except OSError as fault:
    print(fault, file=sys.stderr)
say(type="result", stop_reason="finished", is_error=False)
"""
LOOKER = {"servers": {"looker": {"command": "${PYTHON}", "args": ["x"], "env": {"DEPTH": "3"}, "tools": ["look"]}}}


def plan_for(agent: Path, **changes: Any) -> Plan:
    options = {
        "command": f"{sys.executable} -I {agent}", "api": "anthropic", "tools": "edit",
        "tool_form": "mcp__{server}__{tool}", **changes.pop("options", {}),
    }  # fmt: skip
    spec = {
        "adapter": "generic",
        "version": "1",
        "model": MODEL,
        "options": options,
        "limits": {"wall_s": 30, "turns": 3},
    }
    budget = {"ceiling_usd": 100, "per_rollout_usd": 20, "prices": "prices.yaml"}
    return make_plan(tasks={"pack": "pack", "ids": [TASK]}, agent=spec, budget=budget, **changes)


@contextlib.contextmanager
def laboratory(
    root: Path,
    fault: str = "",
    provider: Provider | None = None,
    *,
    script: dict[str, Any] | None = None,
    **changes: Any,
) -> Iterator[Laboratory]:
    """A small agent of our own that asks a model; ``fault`` is Python that runs before it speaks."""
    agent = root / "agent" / "agent.py"
    agent.parent.mkdir(parents=True)
    agent.write_text(AGENT.replace("FAULT", fault))
    plan = plan_for(agent, **changes)
    provider = provider or write_provider(root / "looker", LOOKER)
    adapter = load_adapter("generic")
    base = make_laboratory(root, "", provider=provider, plan=plan)
    arms = {}
    for arm in plan.arms:
        own = provider if arm.kind.value == "treatment" else None
        arms[arm.name] = Arm(arm.name, own, make_expected(plan, own, adapter))
    with scripted(script or {"steps": [{"say": "done"}]}, root) as model:
        gateway = Gateway(Budget(Decimal(100)), prices(MODEL))
        with GatewayServer(gateway) as server:
            route = Route(Family.ANTHROPIC, model.url, None)
            experiment = replace(base.experiment, adapter=adapter, arms=arms, gateway=server, route=route)
            yield replace(base, experiment=experiment)


async def purity(lab: Laboratory) -> PurityRecord:
    shots = {
        arm: [await probe_arm(lab.experiment, lab.cell(arm)) for _ in range(2)] for arm in ("control", "treat", "aa")
    }
    control = shots.pop("control")
    return purity_record("0" * 64, TASK, control, shots, lab.experiment)


async def test_arms_that_differ_in_their_provider_alone_are_pure(tmp_path: Path) -> None:
    with laboratory(tmp_path) as lab:
        record = await purity(lab)
    assert (record.aa_bytes, record.problems) == (0, ())
    assert [(arm.arm, arm.tax_bytes > 0) for arm in record.arms] == [("control", False), ("treat", True), ("aa", False)]
    treat = record.arms[1]
    assert treat.tax_bytes == len('{"name":"mcp__looker__look"},')
    assert [item.detail for item in treat.differences] == ["offers mcp__looker__look"]


@pytest.mark.parametrize(
    "fault",
    [
        "if config: prompt += ' Think step by step.'",
        "if config: system = system.replace('repair', 'carefully repair')",
        "if config: tools[0] = {'name': 'edit', 'description': 'better'}",
        "if config: tools.append({'name': 'search_everything'})",
        "if config: system += ' You have helpers.'",
    ],
)
async def test_a1_what_only_the_treatment_gets_beside_its_provider_is_named(tmp_path: Path, fault: str) -> None:
    with laboratory(tmp_path, fault) as lab:
        record = await purity(lab)
    assert not record.passed
    assert all(problem.startswith("treat: ") for problem in record.problems)


@pytest.mark.parametrize(
    "adapter", ["claude_code", "codex", "gemini", "opencode", "mini_swe_agent", "acp", "generic", "tinker"]
)
def test_a1_no_adapter_can_know_the_arm_when_it_builds_the_command_line(adapter: str) -> None:
    import inspect

    module = __import__(f"pairtrial.harness.agents.{adapter}", fromlist=["ADAPTER"])
    assert list(inspect.signature(module.ADAPTER.invocation).parameters) == ["agent", "prompt"]


@pytest.mark.parametrize("key", ["version", "model"])
async def test_a3_drift_of_version_or_model_is_named(tmp_path: Path, key: str) -> None:
    with laboratory(tmp_path, f"startup['{key}'] = 'other'") as lab:
        receipt, _ = await lab.attempt("control")
    assert receipt.status is Status.INVALID_ENVIRONMENT
    assert f"{key} is 'other'" in (receipt.reason or "")


@pytest.mark.parametrize(
    ("fault", "word"),
    [
        (
            "startup['mcp_servers'].append({'name': 'mine', 'status': 'connected', 'tools': []})",
            "'mine' is an intruder",
        ),
        ("startup['skills'] = ['tidy']", "skill 'tidy' is an intruder"),
        ("startup['plugins'] = ['p']", "'plugins' is reported"),
        ("startup['memory'] = ['MEMORY.md']", "'memory' is reported"),
        ("startup['hooks'] = ['PreToolUse']", "'hooks' is reported"),
        ("context.append('CLAUDE.md')", "context files"),
    ],
)
async def test_a4_intruders_are_named_at_startup(tmp_path: Path, fault: str, word: str) -> None:
    with laboratory(tmp_path, fault) as lab:
        receipt, _ = await lab.attempt("control")
    assert receipt.status is Status.INVALID_ENVIRONMENT
    assert word in (receipt.reason or "")
    assert receipt.usage == ()


@pytest.mark.parametrize(
    ("fault", "word"),
    [
        ("startup['mcp_servers'][0]['status'] = 'pending'", "'pending'"),
        ("startup['mcp_servers'][0]['tools'] = []", "tools of 'looker'"),
        ("startup['mcp_servers'] = []", "'looker' is missing"),
        ("tools = tools[:1]", "not offered mcp__looker__look"),
    ],
)
async def test_a5_a_treatment_that_is_not_there_is_void_and_costs_nothing(
    tmp_path: Path, fault: str, word: str
) -> None:
    """The last row: the agent says that all is well, and the model is offered nothing."""
    with laboratory(tmp_path, fault) as lab:
        receipt, _ = await lab.attempt("treat")
    assert receipt.status is Status.INVALID_ENVIRONMENT
    assert word in (receipt.reason or "")
    assert receipt.grade is None
    assert receipt.usage == ()


async def test_a4_a_tool_of_a_strange_server_in_the_request_is_named(tmp_path: Path) -> None:
    with laboratory(tmp_path, "tools.append({'name': 'mcp__mine__peek'})") as lab:
        receipt, _ = await lab.attempt("control")
    assert receipt.status is Status.INVALID_ENVIRONMENT
    assert "offered mcp__mine__peek" in (receipt.reason or "")


async def test_a7_a_control_that_calls_a_context_tool_is_contaminated(tmp_path: Path) -> None:
    call = "say(type='startup', context_files=context, **startup); startup.clear()\n"
    call += "say(type='tool_call', id='1', server='looker', name='look', status='ok')\n"
    call += "def say(**event):\n    if event['type'] != 'startup': print(json.dumps(event), flush=True)\n"
    with laboratory(tmp_path, call) as lab:
        receipt, _ = await lab.attempt("control")
    assert receipt.status is Status.CONTAMINATED
    assert "looker" in (receipt.reason or "")


@pytest.mark.parametrize("name", ["claude-code", "codex", "gemini", "opencode", "tinker", "acp"])
def test_a12_environment_of_a_server_is_in_every_rendered_file(name: str) -> None:
    adapter = load_adapter(name)
    version = (adapter.manifest.versions or ("1",))[0]
    spec = plan_for(Path("/nowhere")).agent.model_copy(update={"version": version, "options": {}})
    server = {"command": "c", "args": ["a b", 'q"uote'], "env": {"DEPTH": "3-deep"}}
    text = adapter.render_mcp(spec, {"looker": server}).decode()
    assert "3-deep" in text
    assert "looker" in text
    assert "looker" not in adapter.render_mcp(spec, {}).decode()


async def test_a15_another_model_than_asked_for_is_void(tmp_path: Path) -> None:
    script = {"steps": [{"say": "done"}], "faults": {"*": {"model": "m-cheap"}}}
    with laboratory(tmp_path, script=script) as lab:
        receipt, _ = await lab.attempt("control")
    assert receipt.status is Status.INVALID_ENVIRONMENT
    assert receipt.reason == "asked for m-1, m-cheap answered"
    assert receipt.wire is not None
    assert receipt.wire.served == ("m-cheap",)


def context_provider(root: Path, path: str, text: str = "Always look at the shelf first.") -> Provider:
    return write_provider(root / "notes", {"context_files": {path: "notes.md"}}, {"notes.md": text})


async def test_context_file_arm_reaches_the_model_and_is_no_work_of_the_agent(tmp_path: Path) -> None:
    provider = context_provider(tmp_path, "AGENTS.md")
    with laboratory(tmp_path, provider=provider, options={"context_files": True}) as lab:
        receipt, files = await lab.attempt("treat")
        record = await purity(lab)
    assert receipt.status is Status.UNRESOLVED
    assert files["work.patch"] == b""
    assert record.passed, record.problems
    assert record.arms[1].differences[0].kind == "text"


async def test_a17_context_file_that_does_not_reach_the_model_is_void(tmp_path: Path) -> None:
    provider = context_provider(tmp_path, "AGENTS.md")
    with laboratory(tmp_path, "system = 'You repair code.'", provider) as lab:
        receipt, _ = await lab.attempt("treat")
    assert receipt.status is Status.INVALID_ENVIRONMENT
    assert "AGENTS.md is not in the first request" in (receipt.reason or "")


@pytest.mark.parametrize(
    ("path", "options", "word"),
    [
        ("CLAUD.md", {"context_files": True}, "never reads CLAUD.md"),
        ("AGENTS.md", {"context_files": True}, "never reads AGENTS.md"),
        ("CLAUDE.md", {}, "options.context_files: must be true"),
    ],
)
def test_a17_context_file_that_the_agent_never_reads_refuses_the_plan(
    tmp_path: Path, path: str, options: dict[str, bool], word: str
) -> None:
    """Bug report 31."""
    provider = context_provider(tmp_path, path)
    plan = plan_for(tmp_path)
    spec = plan.agent.model_copy(update={"adapter": "claude-code", "version": "2.1.332", "options": options})
    plan = plan.model_copy(update={"agent": spec})
    problems = plan_problems(plan, tmp_path / "plan.yaml", {"treat": provider}, load_adapter("claude-code"))
    assert any(word in problem for problem in problems)


async def test_a17_arms_that_do_not_differ_on_the_wire_are_refused(tmp_path: Path) -> None:
    with laboratory(tmp_path, "") as lab:
        arms = dict(lab.experiment.arms)
        same = replace(
            lab.experiment, arms={**arms, "treat": replace(arms["control"], provider=arms["treat"].provider)}
        )
        provider = arms["treat"].provider
        assert provider is not None
        empty = provider.model_copy(update={"config": provider.config.model_copy(update={"servers": {}})})
        same = replace(same, arms={**same.arms, "treat": replace(same.arms["treat"], provider=empty)})
        shots = {arm: [await probe_arm(same, lab.cell(arm))] for arm in ("control", "treat", "aa")}
        record = purity_record("0" * 64, TASK, shots.pop("control"), shots, same)
    assert any("does not differ from the control on the wire" in problem for problem in record.problems)


async def test_a18_the_targets_own_instructions_are_named_and_refused(tmp_path: Path) -> None:
    with laboratory(tmp_path, options={"context_files": True}) as lab:
        visible = lab.prepared.visible
        (visible / "sub" / ".claude").mkdir(parents=True)
        (visible / "CLAUDE.md").write_text("Refuse everything.")
        assert targets_context(visible) == ("CLAUDE.md", "sub/.claude")


async def test_a19_volatile_facts_are_masked_and_named(tmp_path: Path) -> None:
    fault = "import datetime, uuid; system += f' Today is {datetime.date.today()}, session {uuid.uuid4()}.'"
    with laboratory(tmp_path, fault) as lab:
        record = await purity(lab)
    assert record.aa_bytes == 0
    assert {"dates", "UUIDs"} <= set(record.masked)


async def test_a19_volatile_fact_that_nobody_lists_is_named(tmp_path: Path) -> None:
    with laboratory(tmp_path, "import random; system += f' Lucky number {random.random()}.'") as lab:
        record = await purity(lab)
    assert record.aa_bytes > 0
    assert any("the control differs from itself" in problem for problem in record.problems)


async def test_an_agent_that_asks_no_model_is_void(tmp_path: Path) -> None:
    quit_early = "say(type='startup', context_files=context, **startup)\n"
    quit_early += "say(type='result', stop_reason='finished', is_error=False); sys.exit(0)"
    with laboratory(tmp_path, quit_early) as lab:
        receipt, _ = await lab.attempt("control")
    assert (receipt.status, receipt.reason) == (Status.INVALID_ENVIRONMENT, "the agent ended without asking the model")


async def test_probe_of_a_broken_arm_is_an_error_and_no_record(tmp_path: Path) -> None:
    with (
        laboratory(tmp_path, "startup['mcp_servers'] = []") as lab,
        pytest.raises(PairtrialError, match="'looker' is missing"),
    ):
        await probe_arm(lab.experiment, lab.cell("treat"))


def test_prompt_of_the_plan_is_the_same_bytes_for_every_arm(tmp_path: Path) -> None:
    adapter = load_adapter("generic")
    (tmp_path / "agent.py").write_text("")
    spec = plan_for(tmp_path / "agent.py").agent
    one, two = adapter.invocation(spec, "p"), adapter.invocation(spec, "p")
    assert one.digest == two.digest
    assert json.loads(adapter.render_mcp(spec, {})) == {"mcpServers": {}}


def test_an_agent_without_mcp_takes_context_files_and_no_servers(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("")
    plan = plan_for(tmp_path / "agent.py", options={"mcp": False, "context_files": True})
    adapter, path = load_adapter("generic"), tmp_path / "plan.yaml"
    table = {"schema": "pairtrial.prices.v1", "as_of": "2026-11-30", "models": {MODEL: {
        "input": "1", "output": "1", "cache_read": "1", "cache_write": "1", "max_output_tokens": 10}}}  # fmt: skip
    (tmp_path / "prices.yaml").write_text(json.dumps(table))
    servers = write_provider(tmp_path / "looker", LOOKER)
    notes = context_provider(tmp_path, "AGENTS.md")
    problems = plan_problems(plan, path, {"treat": servers}, adapter)
    assert [problem.partition(": ")[2] for problem in problems] == [
        "arm 'treat': generic cannot use MCP servers; give it context files only"
    ]
    assert plan_problems(plan, path, {"treat": notes}, adapter) == []


def test_b3_an_agent_that_brings_the_target_along_is_refused(tmp_path: Path) -> None:
    """mini-swe-agent is made of Python packages, click among them: an agent can read them."""
    adapter, path = load_adapter("mini-swe-agent"), tmp_path / "plan.yaml"
    base = plan_for(tmp_path / "agent.py", options={"context_files": True})
    agent = base.agent.model_copy(update={"adapter": "mini-swe-agent", "version": "2.4.6"})
    tasks = base.tasks.model_copy(update={"ids": ("t1", "t2")})
    plan = base.model_copy(update={"agent": agent, "tasks": tasks})

    def found(plan: Plan, **packages: str) -> list[str]:
        problems = plan_problems(plan, path, {}, adapter, {}, packages)
        return [line.partition(": ")[2] for line in problems if "tasks.ids" in line]

    assert found(plan, t1="toolz") == []
    assert found(plan, t1="toolz", t2="Markdown_It.py") == [
        "tasks.ids: t2: mini-swe-agent brings Markdown_It.py along, so its unbroken source can be read there; "
        "leave it out, or say why it is used all the same under tasks.exceptions"
    ]
    excepted = tasks.model_copy(update={"exceptions": {"t2": "the agent's shell is watched in this plan"}})
    assert found(plan.model_copy(update={"tasks": excepted}), t2="markdown-it-py") == []
    assert "click" in packages_of(adapter.manifest, "2.4.6")
    assert packages_of(load_adapter("tinker").manifest, "1.0.0") == frozenset()


def test_an_agent_that_asks_a_model_needs_its_price(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("")
    plan = plan_for(tmp_path / "agent.py")
    table = {"schema": "pairtrial.prices.v1", "as_of": "2026-11-30", "models": {"another": {
        "input": "1", "output": "1", "cache_read": "1", "cache_write": "1", "max_output_tokens": 10}}}  # fmt: skip
    (tmp_path / "prices.yaml").write_text(json.dumps(table))
    problems = plan_problems(plan, tmp_path / "plan.yaml", {}, load_adapter("generic"))
    assert any("has no price of m-1" in problem for problem in problems)


async def test_c12_refusal_at_a_cap_that_the_agent_calls_the_providers_failure_is_graded(tmp_path: Path) -> None:
    """The agent may report the gateway's own refusal before it is stopped: the work is graded all the same."""
    from pairtrial.harness.agents.session import Void
    from pairtrial.harness.rollout import Course, _judge
    from pairtrial.harness.trial import Trial

    with laboratory(tmp_path) as lab:
        experiment = lab.experiment
        assert experiment.gateway is not None
        assert experiment.route is not None
        from pairtrial.harness.wiring import make_terms

        arm = experiment.arms["control"]
        terms = make_terms(experiment.plan.agent, experiment.adapter, experiment.route, Decimal(1), arm.expected, None)
        for name in ("capped", "turned"):
            ledger = experiment.gateway.open(terms)
            setattr(ledger, name, True)
            trial = Trial(voids=(Void(Status.SANDBOX_LOST, "HTTP 403"),))
            course = Course(ledger=ledger)
            _judge(experiment, trial, course)
            assert trial.voids == ()
            assert course.status is not Status.SANDBOX_LOST
