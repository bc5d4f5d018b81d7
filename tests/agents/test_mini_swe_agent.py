"""mini-swe-agent: the real program through whole rollouts, its exit statuses, and what it is refused for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import pytest
from agent_cases import agent_laboratory, agent_plan, lines, present, shelf
from rollout_cases import write_provider

from pairtrial.core.status import Status, StopReason
from pairtrial.harness.agents import load_adapter
from pairtrial.harness.agents.base import Expected
from pairtrial.harness.agents.mini_driver import literal, settings
from pairtrial.harness.agents.mini_swe_agent import MiniSession
from pairtrial.harness.fitness import _provider_problems
from pairtrial.harness.trial import Trial
from pairtrial.providers import Provider
from pairtrial.sandbox import ExecResult

AGENT = ("mini-swe-agent", "2.4.6")
NOTES = 'The sum is a + b.\nNever write {{ braces }} or {% raw %}; keep "quotes" and back\\slashes, é and 😀.\n'
SUBMIT = {"do": "run", "command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}
FIX: list[dict[str, Any]] = [
    {"say": "I read first.", "do": "read", "file": "calc.py"},
    {"do": "edit", "file": "calc.py", "old": "a - b", "new": "a + b"},
    {"say": "Repaired.", **SUBMIT},
]
STREAM = Path(__file__).parents[2] / "harness" / "streams" / "mini-swe-agent-2.4.6-ok.jsonl"
EXPECTED = Expected(
    agent="mini-swe-agent",
    version="2.4.6",
    model="claude-sonnet-4-5-20250929",
    tools=("bash",),
    covers=frozenset(),
)
Require = Callable[..., None]


def notes(folder: Path, name: str = "AGENTS.md") -> Provider:
    """A treatment that is a context file."""
    return write_provider(folder / "notes", {"context_files": {name: "notes.md"}}, {"notes.md": NOTES})


def plan(**agent: Any) -> Any:
    """A plan in which the program is given context files."""
    return agent_plan(*AGENT, agent={"options": {"context_files": True}, **agent})


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["local", "bubblewrap"])
async def test_whole_rollout_with_and_without_the_context_file(tmp_path: Path, require: Require, kind: str) -> None:
    require("agents", *present(*AGENT))
    if kind != "local":
        require(kind)
    registered = agent_plan(*AGENT, agent={"options": {"context_files": True}}, sandbox={"kind": kind})
    with agent_laboratory(tmp_path, registered, {"steps": FIX}, notes(tmp_path)) as (lab, model):
        treated, files = await lab.attempt("treat")
        plain, _ = await lab.attempt("control")
    assert (treated.status, treated.stop_reason) == (Status.RESOLVED, StopReason.FINISHED), treated.reason
    assert (plain.status, plain.stop_reason) == (Status.RESOLVED, StopReason.FINISHED), plain.reason
    assert treated.files_modified == ("calc.py",)
    assert treated.startup is not None
    assert (treated.startup.agent, treated.startup.version, treated.startup.tools) == (*AGENT, ("bash",))
    assert treated.tool_calls == 3
    assert treated.wire is not None
    assert (treated.wire.main_requests, treated.wire.first_request_tools) == (3, ("bash",))
    assert treated.usage[0].output_tokens == 60
    assert treated.observed["invocation"] == plain.observed["invocation"]
    with_notes, without = (str(model.main[number]["body"]["system"]) for number in (0, 3))
    assert "The sum is a + b." in with_notes
    assert "{{ braces }} or {% raw %}" in with_notes
    assert "AGENTS.md" not in without
    assert [event["type"] for event in lines(files["raw.jsonl.zst"])] == ["start", *["message"] * 8, "end"]


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_turn_limit_is_kept_by_the_program(tmp_path: Path, require: Require) -> None:
    require("agents", *present(*AGENT))
    registered = plan(limits={"wall_s": 60, "turns": 2})
    with agent_laboratory(tmp_path, registered, {"steps": FIX}, notes(tmp_path)) as (lab, model):
        receipt, _ = await lab.attempt("control")
    assert (receipt.status, receipt.stop_reason) == (Status.RESOLVED, StopReason.TURN_LIMIT), receipt.reason
    assert len(model.main) == 2


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_model_that_the_provider_does_not_know_is_infrastructure(tmp_path: Path, require: Require) -> None:
    require("agents", *present(*AGENT))
    script = {"steps": FIX, "faults": {"*": {"status": 404, "message": "no such model"}}}
    with agent_laboratory(tmp_path, plan(), script, notes(tmp_path)) as (lab, _):
        receipt, _files = await lab.attempt("control")
    assert receipt.status is Status.SANDBOX_LOST, receipt.reason


def test_servers_are_refused_and_context_files_are_taken(tmp_path: Path) -> None:
    adapter, agent = load_adapter("mini-swe-agent"), plan().agent
    assert _provider_problems(agent, shelf(tmp_path), adapter) == [
        "mini-swe-agent cannot use MCP servers; give it context files only"
    ]
    assert _provider_problems(agent, notes(tmp_path), adapter) == []
    (problem,) = _provider_problems(agent, notes(tmp_path / "other", "CLAUDE.md"), adapter)
    assert "never reads CLAUDE.md; it reads AGENTS.md" in problem


def hear(session: MiniSession, spoken: list[bytes], exit_code: int = 0) -> Trial:
    """A trial from lines and an exit code."""
    trial = Trial()
    for line in spoken:
        trial.hear(line, session, EXPECTED)
    ended = ExecResult(exit_code, None, b"", b"", False, False, None, False, 1.0)
    trial.ended = ended
    trial.enter(session.finish(ended), session, EXPECTED)
    return trial


@pytest.mark.parametrize(
    ("status", "stop"),
    [
        ("Submitted", StopReason.FINISHED),
        ("LimitsExceeded", StopReason.TURN_LIMIT),
        ("TimeExceeded", StopReason.CRASHED),
        ("RepeatedFormatError", StopReason.CRASHED),
        ("ContextWindowExceededError", StopReason.CRASHED),
        ("", StopReason.CRASHED),
    ],
)
def test_exit_statuses(status: str, stop: StopReason) -> None:
    spoken = [{"type": "start", "version": "2.4.6"}, {"type": "end", "exit_status": status}]
    trial = hear(MiniSession(b"", EXPECTED), [json.dumps(line).encode() for line in spoken])
    assert (trial.problems, trial.stop_reason) == ((), stop)


def test_a_submission_does_not_outweigh_the_exit_code() -> None:
    spoken = [b'{"type": "start", "version": "2.4.6"}', b'{"type": "end", "exit_status": "Submitted"}']
    assert hear(MiniSession(b"", EXPECTED), spoken, 1).stop_reason is StopReason.CRASHED


def test_another_version_is_named() -> None:
    trial = hear(MiniSession(b"", EXPECTED), [b'{"type": "start", "version": "2.5.0"}'])
    assert trial.problems == ("version is '2.5.0', registered is '2.4.6'",)
    assert replace(EXPECTED, version="2.5.0") != EXPECTED


def test_recorded_run() -> None:
    trial = hear(MiniSession(b"", EXPECTED), STREAM.read_bytes().splitlines())
    assert trial.void is None
    assert (trial.stop_reason, trial.tool_calls, trial.messages) == (StopReason.FINISHED, 3, 3)
    assert [(usage.steps, usage.output_tokens) for usage in trial.usage] == [(3, 60)]


@pytest.mark.parametrize("text", [NOTES, "{% endraw %}", "\\", '"}} {{ 1 + 1', "line\r\nline", "\\n"])
def test_a_context_file_is_no_template(text: str) -> None:
    assert jinja2.Template(literal(text), keep_trailing_newline=True).render() == text


def test_only_named_files_enter_the_system_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text('{"agent": {"system_template": "S"}}')
    (tmp_path / "AGENTS.md").write_text("note")
    assert settings(tmp_path / "config.json", []) == {"agent": {"system_template": "S"}}
    expected = 'S\n\nInstructions of this repository (AGENTS.md):\n\n{{ "note" }}'
    assert settings(tmp_path / "config.json", ["AGENTS.md"]) == {"agent": {"system_template": expected}}
