"""Flags in which an arm differs: only declared ones, only allowed ones, and the same text wherever it is computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from factories import PLAN, make_lock, make_plan
from rollout_cases import HEAD, TASK, FakeAdapter, make_laboratory, write_provider

from pairtrial.core.status import Status
from pairtrial.harness.agents import Invocation, load_adapter
from pairtrial.harness.differences import flag_identities, flags_of, registered_flags
from pairtrial.harness.fitness import plan_problems
from pairtrial.prereg.plan import AgentSpec, Plan
from pairtrial.providers import Provider

REASON = "The agent reads context files under this option only."
CONTROL, TREAT, REPLICATE = PLAN["arms"]


def plan_of(options: dict[str, Any], adapter: str = "claude-code", base: dict[str, Any] | None = None) -> Plan:
    version, model = {"claude-code": ("2.1.332", "m"), "tinker": ("1.0.0", "tinker-1")}[adapter]
    agent = {**PLAN["agent"], "adapter": adapter, "version": version, "model": model, "options": base or {}}
    differences = {name: {"value": value, "reason": REASON} for name, value in options.items()}
    return make_plan(
        agent=agent,
        tasks={"pack": "pack", "ids": [TASK]},
        arms=[CONTROL, {**TREAT, "differences": differences}, REPLICATE],
    )


def notes(root: Path) -> Provider:
    return write_provider(root / "notes", {"context_files": {"CLAUDE.md": "notes.md"}}, {"notes.md": "A note.\n"})


def server(root: Path) -> Provider:
    servers = {"s": {"command": "true", "tools": ["t"]}}
    return write_provider(root / "server", {"servers": servers}, {"server.py": ""})


@pytest.mark.parametrize(
    ("options", "base", "context", "words"),
    [
        ({"tools": "full"}, {}, True, "differences.tools: claude-code lets only context_files differ between arms"),
        ({"bare": True}, {}, True, "differences.bare: claude-code lets only context_files differ between arms"),
        ({"target_context": "keep"}, {}, True, "differences.target_context: claude-code lets only context_files differ"),
        ({"context_files": False}, {}, True, "every arm has context_files=false already; remove it"),
        ({"context_files": True}, {"context_files": True}, True, "every arm has context_files=true already; remove it"),
        ({"context_files": "yes"}, {}, True, "agent.options.context_files: 'yes' is none of false, true"),
        ({"context_files": True}, {}, False, "the arm's provider has no context files, so nothing needs it; remove it"),
        ({"context_files": True}, {"target_context": "keep"}, True, "own context files would reach this arm alone"),
        ({}, {}, True, "must be true, or declare it in this arm's differences"),
    ],
)  # fmt: skip
def test_what_may_not_differ_is_refused_with_its_field_and_fix(
    tmp_path: Path, options: dict[str, Any], base: dict[str, Any], context: bool, words: str
) -> None:
    provider = notes(tmp_path) if context else server(tmp_path)
    path = tmp_path / "plan.yaml"
    found = plan_problems(plan_of(options, base=base), path, {"treat": provider}, load_adapter("claude-code"))
    assert any(problem.startswith(f"{path}: arm 'treat': ") and words in problem for problem in found), found


def test_an_agent_whose_manifest_lists_nothing_lets_nothing_differ(tmp_path: Path) -> None:
    plan = plan_of({"context_files": True}, "tinker")
    found = plan_problems(plan, tmp_path / "p.yaml", {"treat": notes(tmp_path)}, load_adapter("tinker"))
    assert "differences.context_files: tinker lets no option differ between arms" in found[0]


def test_the_declared_difference_that_an_arm_needs_is_accepted(tmp_path: Path) -> None:
    plan = plan_of({"context_files": True})
    found = plan_problems(plan, tmp_path / "p.yaml", {"treat": notes(tmp_path)}, load_adapter("claude-code"))
    assert found == [f"{tmp_path / 'p.yaml'}: budget.prices: an agent that asks a model needs a price table; name one"]


class Flagged(FakeAdapter):
    """Has one option that shows in every place where a flag can stand."""

    def invocation(self, agent: AgentSpec, prompt: str) -> Invocation:
        plain = super().invocation(agent, prompt)
        reads = agent.options.get("context_files") is True
        argv = (*plain.argv, "--sources", "project" if reads else "", *([] if reads else ["--no-notes"]))
        env = {**plain.env, **({} if reads else {"NO_NOTES": "1"})}
        return Invocation(argv, env, plain.stdin, {"settings": "reads" if reads else "blind"})


FLAGS = (
    "without argument --sources ''; without argument --no-notes; with argument --sources project; "
    "without variable NO_NOTES=1; without file settings=blind; with file settings=reads"
)


def test_flags_are_told_word_by_word_and_name_no_path(tmp_path: Path) -> None:
    plan = plan_of({"context_files": True})
    adapter = Flagged("")
    assert flags_of(adapter, plan, "treat") == FLAGS
    assert flags_of(adapter, plan, "control") == flags_of(adapter, plan, "aa") == ""
    assert flag_identities(adapter, plan) == {"arm.treat.flags": FLAGS}
    assert flag_identities(adapter, make_plan()) == {}


@pytest.mark.anyio
async def test_a_rollout_starts_with_the_registered_flags_or_not_at_all(tmp_path: Path) -> None:
    from dataclasses import replace

    plan = plan_of({"context_files": True})
    script = HEAD + "start(context_files=['CLAUDE.md'] if '--no-notes' not in sys.argv else []); fix(); done()"
    lab = make_laboratory(tmp_path, script, provider=notes(tmp_path), plan=plan)
    adapter = Flagged(script)
    lab = replace(lab, experiment=replace(lab.experiment, adapter=adapter))
    undeclared, _ = await lab.attempt("treat")
    assert undeclared.status is Status.INVALID_ENVIRONMENT
    assert undeclared.reason == f"arm 'treat' would start with other flags ({FLAGS}) than registered (none)"

    lab = replace(lab, experiment=replace(lab.experiment, lock=make_lock(plan, **{"arm.treat.flags": FLAGS})))
    treat, control, aa = [(await lab.attempt(arm))[0] for arm in ("treat", "control", "aa")]
    assert [r.status for r in (treat, control, aa)] == [Status.RESOLVED] * 3, treat.reason
    assert treat.observed["flags"] == FLAGS
    assert "flags" not in control.observed
    assert control.observed["invocation"] == aa.observed["invocation"] != treat.observed["invocation"]


def test_the_flags_of_claude_code_are_those_that_reading_context_files_takes(require: Any) -> None:
    from agent_cases import present

    require("agents", *present("claude-code", "2.1.332"))
    plan = plan_of({"context_files": True})
    assert registered_flags(load_adapter("claude-code"), make_lock(plan), "control") == {}
    assert flags_of(load_adapter("claude-code"), plan, "treat") == (
        "without argument --setting-sources ''; with argument --setting-sources project; "
        "without argument --disable-slash-commands; without variable CLAUDE_CODE_DISABLE_CLAUDE_MDS=1"
    )
