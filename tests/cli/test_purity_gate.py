"""The purity gate as `check` tells of it and `run` keeps it, and the table that `purity` prints."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from factories import make_lock, make_plan
from scripted import scripted

from pairtrial.cli.purity import counted, demand_purity, purity_note, purity_state, record_path
from pairtrial.cli.puritytable import purity_lines
from pairtrial.core.errors import PlanError
from pairtrial.harness.gateway import Family, Route
from pairtrial.harness.gateway.wire import classify
from pairtrial.harness.purity import ArmPurity, ProbeTax, PurityRecord, Shot
from pairtrial.prereg.lock import Lock

ROOT = Path(__file__).parents[2]
LOCK = make_lock(make_plan(gates={"purity": True}))


def record_for(lock: Lock, *problems: str) -> PurityRecord:
    return PurityRecord(
        schema_="pairtrial.purity.v1", plan_id=lock.plan_id, task="t1", replicates=2, aa_bytes=0, aa_places=(),
        masked=("dates",), problems=problems,
        arms=(
            ArmPurity(arm="control", request_bytes=1000, tools_bytes=500, tools=("a", "b"), tax_bytes=0),
            ArmPurity(arm="treat", request_bytes=1100, tools_bytes=600, tools=("a", "b", "s"), tax_bytes=100,
                      deferred=False, flags_bytes=40, declared=("second difference: arm treat also sets x=1 (why)",)),
        ),
        probes=(
            ProbeTax(options={"x": False}, server_tools=0, deferred=None, request_bytes=900, tools_bytes=0, tools=2, tax_bytes=0),
            ProbeTax(options={"x": False}, server_tools=30, deferred=True, request_bytes=907, tools_bytes=0, tools=2, tax_bytes=7),
        ),
    )  # fmt: skip


def write(plan: Path, record: PurityRecord) -> None:
    record_path(plan).write_text(record.model_dump_json(by_alias=True))


def test_the_gate_is_open_for_a_record_that_passed_for_this_lock_alone(tmp_path: Path) -> None:
    plan = tmp_path / "x.yaml"
    other = make_lock(make_plan(gates={"purity": True}, seed="other"))
    states = [purity_state(plan, LOCK)]
    for text in ("no json", "{}"):
        record_path(plan).write_text(text)
        states.append(purity_state(plan, LOCK))
    for record in (record_for(other), record_for(LOCK, "treat: system"), record_for(LOCK)):
        write(plan, record)
        states.append(purity_state(plan, LOCK))
    assert states == ["is missing", "cannot be read", "cannot be read", "is of another lock", "failed", None]
    demand_purity(plan, LOCK)
    with pytest.raises(PlanError, match="the purity record is of another lock"):
        demand_purity(plan, other)
    demand_purity(plan, make_lock())  # demands none


def test_check_tells_of_the_gate_in_each_state(tmp_path: Path) -> None:
    plan = tmp_path / "x.yaml"
    until = f"; run refuses until there is one: pairtrial purity {plan}"
    assert purity_note(plan, LOCK) == f"gates.purity: the purity record is missing{until}"
    write(plan, record_for(LOCK))
    assert purity_note(plan, LOCK) == "gates.purity: the purity record passed for the frozen plan"
    assert (
        purity_note(plan, None)
        == f"gates.purity: the purity record holds for one lock only, and the plan is not frozen{until}"
    )
    write(plan, record_for(LOCK, "treat: system"))
    assert purity_note(plan, LOCK) == f"gates.purity: the purity record failed{until}"


def test_check_notes_and_does_not_refuse(tmp_path: Path) -> None:
    for part in ("prereg/examples", "prereg/prices", "providers", "harness/prompts", "tasks/core"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("*.purity.json", "*.lock.json"))
    plan = "prereg/examples/claude-code-bm25.yaml"
    done = subprocess.run(
        [sys.executable, "-m", "pairtrial", "check", plan], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"note: gates.purity: the purity record is missing; run refuses until there is one: pairtrial purity {plan}" in (
        done.stdout.splitlines()
    )  # fmt: skip


def test_the_table_says_who_pays_what(tmp_path: Path) -> None:
    lines = purity_lines(record_for(LOCK))
    assert lines == [
        "first requests of t1, 2 probes an arm; masked: dates",
        "A/A difference: 0 bytes",
        "",
        "arm               tools  deferred  request B  schemas B  tax B",
        "control               2         –       1000        500     +0",
        "treat                 3        no       1100        600   +100",
        "servers of so many tools, options x=false",
        "  no server           2         –        900          0     +0",
        "  30-tool server      2       yes        907          0     +7",
        "",
        "second difference: arm treat also sets x=1 (why)",
        "  treat: +40 bytes of its tax come with the declared flags alone",
        "pure: the arms differ in their providers and declared flags alone",
    ]
    assert purity_lines(record_for(LOCK, "treat: system"))[-2:] == ["problem: treat: system", "not pure"]


def test_tokens_are_counted_against_the_control_of_the_same_options(tmp_path: Path) -> None:
    """The scripted model counts one token for four bytes."""

    def shot(length: int) -> Shot:
        body = {"model": "m", "messages": [], "system": "x" * length}
        request = classify("POST", "/v1/messages", json.dumps(body).encode())
        assert request is not None
        return Shot("probe", request, body)

    rows = [*record_for(LOCK).probes] * 2
    with scripted({"steps": []}, tmp_path) as model:
        route = Route(Family.ANTHROPIC, model.url, None)
        found = counted(tuple(rows), [shot(400), shot(480), shot(800), shot(840)], route)
    assert [row.tax_tokens for row in found] == [0, 20, 0, 10]
    unasked = counted(tuple(rows[:2]), [shot(4), shot(8)], Route(Family.OPENAI, "http://127.0.0.1:9", None))
    assert [(row.tokens, row.tax_tokens) for row in unasked] == [(None, None)] * 2  # nobody to ask: null, never 0
