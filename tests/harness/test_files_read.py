"""Files read: by the agent's own stream, relative to the workspace, and unknown where the stream cannot tell."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rollout_cases import HEAD, FakeAdapter, Laboratory, make_laboratory

from pairtrial.core.status import Status
from pairtrial.harness.agents import Expected, load_adapter
from pairtrial.harness.agents.acp_stream import AcpSession
from pairtrial.harness.agents.base import Baseline
from pairtrial.harness.agents.claude_stream import ClaudeSession
from pairtrial.harness.agents.codex_stream import CodexSession
from pairtrial.harness.agents.gemini import GeminiSession
from pairtrial.harness.agents.opencode import OpenCodeSession
from pairtrial.harness.agents.reads import below, read_paths
from pairtrial.harness.agents.session import Session
from pairtrial.harness.trial import Trial

STREAMS = Path(__file__).parents[2] / "harness" / "streams"
EXPECTED = Expected(agent="a", version="1", model="m", tools=(), servers={"shelf": ("count", "lookup")})
BASE = Baseline(tools=())


def reads(session: Session, name: str) -> set[str] | None:
    trial = Trial()
    for line in (STREAMS / f"{name}.jsonl").read_bytes().rstrip(b"\n").split(b"\n"):
        value = json.loads(line)
        if "_notification" in value:  # as it went over the wire
            line = json.dumps({"method": value["_notification"], "params": {"update": value["update"]}}).encode()
        trial.hear(line, session, EXPECTED)
    return trial.reads


@pytest.mark.parametrize(
    ("session", "name"),
    [
        (ClaudeSession("", EXPECTED, BASE), "claude-2.1.332-ok-mcp"),
        (ClaudeSession("", EXPECTED, BASE), "claude-2.1.197-ok-mcp"),
        (GeminiSession(b"", EXPECTED), "gemini-0.61-ok-mcp"),
        (OpenCodeSession(b"", EXPECTED), "opencode-1.18.33-ok-mcp"),
        (AcpSession("", EXPECTED, "/workspace", {}), "acp-gemini-0.61"),
        (AcpSession("", EXPECTED, "/workspace", {}), "acp-opencode-1.18.33"),
        (AcpSession("", EXPECTED, "/workspace", {}), "acp-claude-agent-acp-0.49"),
        (AcpSession("", EXPECTED, "/workspace", {}), "acp-codex-acp-0.16"),
    ],
)
def test_recorded_streams_name_the_one_file_that_was_read(session: Session, name: str) -> None:
    """Each of these agents read calc.py, edited it and ran the tests."""
    assert reads(session, name) == {"/workspace/calc.py"}


def test_codex_reads_through_its_shell_and_cannot_tell() -> None:
    assert reads(CodexSession("", EXPECTED, "/workspace"), "codex-0.171-ok-mcp") is None


def test_manifests_say_who_tells() -> None:
    names = ("acp", "claude-code", "codex", "gemini", "generic", "opencode", "tinker")
    assert {name for name in names if load_adapter(name).manifest.tells_reads} == {
        "acp", "claude-code", "gemini", "opencode"
    }  # fmt: skip


def test_a_call_that_failed_or_went_to_a_server_read_nothing() -> None:
    readers = {"Read": ("file_path",)}
    assert read_paths(readers, None, "Read", {"file_path": "/w/a"}, "ok") == ("/w/a",)
    assert read_paths(readers, None, "Read", {"file_path": "/w/a"}, "error") == ()
    assert read_paths(readers, "shelf", "Read", {"file_path": "/w/a"}, "ok") == ()
    assert read_paths(readers, None, "Bash", {"command": "cat a"}, "ok") == ()
    assert read_paths(readers, None, "Read", {"file_path": 7}, "ok") == ()
    assert read_paths(readers, None, "Read", "a", "ok") == ()


def test_paths_are_relative_sorted_unique_and_inside(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    names = [
        "/w/b.py",
        "/w/a.py",
        "b.py",
        "/w/pkg",
        "/w/pkg/../c.py",
        "/w",
        "../x",
        "/etc/passwd",
        "/ws/d",
        "a\0",
        "a\\b",
    ]
    assert below("/w", names, tmp_path) == ("a.py", "b.py", "c.py")


class Telling(FakeAdapter):
    def __init__(self, script: str) -> None:
        super().__init__(script)
        self.manifest = self.manifest.model_copy(update={"tells_reads": True})


def laboratory(root: Path, calls: str, *, telling: bool) -> Laboratory:
    lab = make_laboratory(root, HEAD + f"start(); {calls}; fix(); done()")
    if telling:
        lab = replace(lab, experiment=replace(lab.experiment, adapter=Telling(lab.experiment.adapter.script)))  # type: ignore[attr-defined]
    return lab


CALL = "say(type='tool_call', id='1', server=None, name='open', status='ok', reads={reads})"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("calls", "telling", "expected"),
    [
        (CALL.format(reads="['tests/test_calc.py', os.getcwd() + '/calc.py', 'tests']"), False,
         ("calc.py", "tests/test_calc.py")),
        (CALL.format(reads="['/etc/passwd']"), False, ()),
        ("pass", False, None),
        ("pass", True, ()),
    ],
    ids=["told", "outside", "silent", "told-nothing"],
)  # fmt: skip
async def test_the_receipt_says_what_was_read(
    tmp_path: Path, calls: str, telling: bool, expected: tuple[str, ...] | None
) -> None:
    receipt, _ = await laboratory(tmp_path, calls, telling=telling).attempt()
    assert (receipt.status, receipt.files_read) == (Status.RESOLVED, expected)
    assert b'"files_read"' in receipt.to_bytes()


@pytest.mark.anyio
async def test_an_agent_that_never_started_read_nothing_that_is_known(tmp_path: Path) -> None:
    lab = make_laboratory(tmp_path, "raise SystemExit")
    lab = replace(lab, experiment=replace(lab.experiment, adapter=Telling("raise SystemExit")))
    receipt, _ = await lab.attempt()
    assert receipt.files_read is None


@pytest.mark.anyio
async def test_more_files_than_a_receipt_lists_are_cut_and_that_is_said(tmp_path: Path) -> None:
    calls = "[open(f'f{n:04}.txt', 'w').write('x') for n in range(1001)]"
    receipt, files = await laboratory(tmp_path, calls, telling=True).attempt()
    assert receipt.truncated
    assert receipt.files_modified is not None
    assert (len(receipt.files_modified), receipt.files_modified[0]) == (1000, "calc.py")
    assert b"f1000.txt" in files["work.patch"]


@pytest.mark.anyio
async def test_a_name_with_a_backslash_does_not_end_the_run(tmp_path: Path) -> None:
    receipt, _ = await laboratory(tmp_path, "open('a\\\\\\\\b.txt', 'w').write('x')", telling=True).attempt()
    assert receipt.files_modified is not None
    assert receipt.files_modified[0].startswith("a%5C")


@pytest.mark.anyio
async def test_the_sandbox_facts_are_in_the_receipt(tmp_path: Path) -> None:
    receipt, _ = await laboratory(tmp_path, "pass", telling=True).attempt()
    facts = receipt.sandbox.facts
    assert facts is not None
    assert (facts["sandbox"], facts["isolation"], facts["network"]) == ("local", "none", "open (not isolated)")
    assert str(tmp_path) not in json.dumps(facts)
