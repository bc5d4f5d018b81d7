"""Whole rollouts: what every kind of agent and provider ends as, in real processes and with real grading."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from factories import make_plan
from rollout_cases import HEAD, REPAIR, SERVER, Laboratory, make_laboratory, write_provider

from pairtrial.core.status import Status, StopReason
from pairtrial.prereg.plan import Plan

pytestmark = pytest.mark.anyio


def short_plan(wall_s: float) -> Plan:
    agent = {"adapter": "fake", "version": "1", "model": "m", "limits": {"wall_s": wall_s, "turns": 5}}
    return make_plan(tasks={"pack": "pack", "ids": ["calc-add"]}, agent=agent)


def alone(lab: Laboratory) -> bool:
    """Whether nothing is left in the scratch folder."""
    return [path.name for path in lab.experiment.scratch.iterdir() if not path.name.startswith(".")] == []


@pytest.mark.parametrize("arm", ["control", "treat", "aa"])
async def test_a_repair_is_resolved_in_every_arm(tmp_path: Path, arm: str) -> None:
    lab = make_laboratory(tmp_path, REPAIR)
    receipt, files = await lab.attempt(arm)
    assert (receipt.status, receipt.reason) == (Status.RESOLVED, receipt.reason)
    assert receipt.stop_reason is StopReason.FINISHED
    assert receipt.grade is not None
    assert (receipt.grade.fail_to_pass, receipt.grade.pass_to_pass) == (1, 2)
    assert receipt.files_modified == ("calc.py",)
    assert receipt.usage[0].steps == 3
    assert receipt.usage[0].input_tokens is None
    assert b"+    return a + b" in files["work.patch"]
    assert alone(lab)


async def test_only_the_content_of_the_mcp_file_differs_between_arms(tmp_path: Path) -> None:
    lab = make_laboratory(tmp_path, HEAD + "start(); done()")
    seen = {arm: (await lab.attempt(arm))[0].observed for arm in ("control", "treat", "aa")}
    assert seen["control"] == seen["aa"]
    different = {key for key in seen["treat"] if seen["treat"][key] != seen["control"].get(key)}
    assert different == {"mcp-file", "provider"}


async def test_command_line_environment_and_input_are_byte_equal(tmp_path: Path) -> None:
    """The agent itself prints all that it can see; between arms only the registered seed and the random folder differ."""
    script = HEAD + (
        "import hashlib\n"
        "hide = lambda t: t.replace(os.getcwd(), 'W').replace(os.environ['HOME'], 'H').replace(os.environ['TMPDIR'], 'T')\n"
        "argv = [hide(a) for a in sys.argv[:2]]; env = {k: hide(v) for k, v in sorted(os.environ.items())}\n"
        "start(); say(type='message', role='assistant', text=json.dumps([argv, env, sys.stdin.read()])); done()"
    )
    lab = make_laboratory(tmp_path, script)
    texts = {}
    for arm in ("control", "treat", "aa"):
        _, files = await lab.attempt(arm)
        lines = zstandard.ZstdDecompressor().decompress(files["events.jsonl.zst"], max_output_size=1 << 20).splitlines()
        texts[arm] = json.loads(lines[1])["text"]
    assert texts["control"] == texts["treat"] == texts["aa"]
    argv, env, stdin = json.loads(texts["control"])
    assert argv[1] == "H/mcp.json"
    assert "Adding is wrong." in stdin
    assert env["AGENT_MODEL"] == "tinker-1"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("model='other'", "model is 'other', registered is 'm'"),
        ("version='2'", "version is '2', registered is '1'"),
        ("agent='else'", "agent is 'else'"),
        ("tools=['edit', 'web']", "tools is ['edit', 'web']"),
        ("skills=['pdf']", "skill 'pdf' is an intruder"),
        ("context_files=['CLAUDE.md']", "context files is ['CLAUDE.md']"),
        ("plugins=['x']", "'plugins' is reported at start-up"),
        ("mcp_servers=[{'name': 'mine', 'status': 'connected', 'tools': ['t']}]", "MCP server 'mine' is an intruder"),
    ],
)
async def test_a_start_that_is_not_the_arms_is_an_invalid_environment(tmp_path: Path, change: str, words: str) -> None:
    lab = make_laboratory(tmp_path, HEAD + f"start({change}); fix(); import time; time.sleep(30)")
    receipt, files = await lab.attempt("control")
    assert receipt.status is Status.INVALID_ENVIRONMENT
    assert words in (receipt.reason or "")
    assert receipt.startup is not None
    assert receipt.startup.problems
    assert receipt.grade is None
    assert "work.patch" not in files
    assert (receipt.times.agent_s or 99) < 10  # stopped at once, not at the limit


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        ("[]", "MCP server 'looker' is missing: the treatment was not delivered"),
        ("[{'name': 'looker', 'status': 'failed', 'tools': []}]", "'looker' is 'failed', not connected"),
        ("[{'name': 'looker', 'status': 'pending'}]", "'looker' is 'pending', not connected"),
        ("[{'name': 'looker', 'status': 'connected', 'tools': []}]", "tools of 'looker' is []"),
        ("[{'name': 'looker', 'status': 'connected', 'tools': ['look', 'edit']}]", "tools of 'looker' is"),
        ("[{'name': 'looker', 'status': 'connected', 'tools': ['look']}] * 2", "listed twice"),
    ],
)
async def test_a_treatment_that_was_not_delivered_is_never_a_zero(tmp_path: Path, servers: str, words: str) -> None:
    lab = make_laboratory(tmp_path, HEAD + f"start(mcp_servers={servers}); done()")
    receipt, _ = await lab.attempt("treat")
    assert receipt.status is Status.INVALID_ENVIRONMENT
    assert words in (receipt.reason or "")


@pytest.mark.parametrize(
    ("script", "stop", "status"),
    [
        ("start(); done('gave_up')", StopReason.GAVE_UP, Status.UNRESOLVED),
        ("start(); fix(); done('turn_limit')", StopReason.TURN_LIMIT, Status.RESOLVED),
        ("start(); fix(); sys.exit(3)", StopReason.CRASHED, Status.RESOLVED),
        ("start(); fix(); done(); sys.exit(1)", StopReason.CRASHED, Status.RESOLVED),
        ("start(); fix(); done(error=True)", StopReason.CRASHED, Status.RESOLVED),
        ("start(); fix(); os.kill(os.getpid(), 9)", StopReason.CRASHED, Status.RESOLVED),
        ('start(); fix(); print(\'{"type": "result", "stop_reason": "hooray"}\')', StopReason.CRASHED, Status.RESOLVED),
    ],
)
async def test_the_work_is_graded_whatever_stopped_the_agent(
    tmp_path: Path, script: str, stop: StopReason, status: Status
) -> None:
    receipt, _ = await make_laboratory(tmp_path, HEAD + script).attempt()
    assert (receipt.stop_reason, receipt.status) == (stop, status)


async def test_a_timeout_keeps_the_work_and_names_its_limit(tmp_path: Path) -> None:
    script = HEAD + "start(); fix(); import time; time.sleep(60)"
    receipt, _ = await make_laboratory(tmp_path, script, plan=short_plan(1.5)).attempt()
    assert (receipt.stop_reason, receipt.status, receipt.limit) == (StopReason.TIMEOUT, Status.RESOLVED, "wall")
    assert 1.4 < (receipt.times.agent_s or 0) < 10


@pytest.mark.parametrize(
    ("limits", "code", "limit"),
    [
        ({"disk_mb": 20}, "open('big', 'wb').write(bytes(40 << 20))", "disk"),
        ({"pids": 40}, "[subprocess.Popen(['sleep', '30']) for _ in range(100)]", "pids"),
    ],
)
async def test_a_registered_limit_is_in_force_and_named(
    tmp_path: Path, require: Callable[..., None], limits: dict[str, int], code: str, limit: str
) -> None:
    require("bubblewrap")
    sandbox = {"kind": "bubblewrap", **limits}
    plan = make_plan(tasks={"pack": "pack", "ids": ["calc-add"]}, sandbox=sandbox)
    lab = make_laboratory(tmp_path, HEAD + f"import subprocess; start(); fix(); {code}; done()", plan=plan)
    receipt, _ = await lab.attempt()
    assert (receipt.status, receipt.limit, receipt.stop_reason) == (Status.RESOLVED, limit, StopReason.CRASHED)


@pytest.mark.parametrize("script", ["", "print('not an event')", "import sys; sys.exit(127)", HEAD + "done()"])
async def test_an_agent_that_never_says_it_started_is_an_invalid_environment(tmp_path: Path, script: str) -> None:
    receipt, _ = await make_laboratory(tmp_path, script).attempt()
    assert receipt.status is Status.INVALID_ENVIRONMENT
    assert "never said that it started" in (receipt.reason or "")
    assert receipt.stop_reason is StopReason.NOT_STARTED


async def test_a_call_to_a_server_that_the_arm_has_not_contaminates(tmp_path: Path) -> None:
    call = "say(type='tool_call', id='1', server='looker', name='look', status='ok'); "
    lab = make_laboratory(tmp_path, HEAD + "start(); " + call + "fix(); done()")
    control, _ = await lab.attempt("control")
    assert (control.status, control.context_tool_calls) == (Status.CONTAMINATED, 1)
    treat, _ = await lab.attempt("treat")
    assert (treat.status, treat.context_tool_calls, treat.tool_calls) == (Status.RESOLVED, 1, 1)


async def test_a_process_left_behind_cannot_write_into_the_graded_work(tmp_path: Path) -> None:
    late = (
        "import subprocess; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(2); "
        'open("calc.py", "w").write("raise SystemExit")\'], start_new_session=True); '
    )
    lab = make_laboratory(tmp_path, HEAD + "start(); fix(); " + late + "done()")
    receipt, _ = await lab.attempt()
    assert receipt.status is Status.RESOLVED
    assert alone(lab)


INDEX = {**SERVER, "index": {"command": ["${PYTHON}", "${PROVIDER}/index.py"], "timeout_s": 2, "max_bytes": 1000}}


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        ("import sys; sys.exit('no index today')", Status.SETUP_FAILURE, "exit 1: no index today"),
        ("import time; time.sleep(30)", Status.SETUP_FAILURE, "stopped after 2 s"),
        (
            "import os; open(os.environ['HOME'] + '/context-state/i', 'w').write('x' * 2000)",
            Status.SETUP_FAILURE,
            "2000 bytes",
        ),
        ("open('calc.py', 'a').write('# hint')", Status.CONTAMINATED, "changed what it did not declare: calc.py"),
        ("open('HINTS.md', 'w').write('look at add')", Status.CONTAMINATED, "HINTS.md"),
        ("import os; os.remove('tests/test_calc.py')", Status.CONTAMINATED, "tests/test_calc.py"),
        ("pass", Status.RESOLVED, ""),
    ],
)
async def test_what_an_index_step_may_do(tmp_path: Path, code: str, status: Status, words: str) -> None:
    provider = write_provider(tmp_path / "looker", INDEX, {"server.py": "", "index.py": code})
    receipt, _ = await make_laboratory(tmp_path, REPAIR, provider=provider).attempt("treat")
    assert receipt.status is status
    assert words in (receipt.reason or "")


CONTEXT = {"context_files": {"NOTES.md": "notes.md", "docs/deep/MORE.md": "notes.md"}}


async def test_context_files_are_delivered_and_are_no_work_of_the_agent(tmp_path: Path) -> None:
    provider = write_provider(tmp_path / "notes", CONTEXT, {"notes.md": "add is in calc"})
    reading = "start(context_files=['NOTES.md', 'docs/deep/MORE.md']); assert 'calc' in open('NOTES.md').read(); fix(); done()"
    receipt, files = await make_laboratory(tmp_path, HEAD + reading, provider=provider).attempt("treat")
    assert receipt.status is Status.RESOLVED
    assert receipt.files_modified == ("calc.py",)
    assert b"NOTES" not in files["work.patch"]


async def test_a_context_file_that_the_agent_changed_is_its_work(tmp_path: Path) -> None:
    provider = write_provider(tmp_path / "notes", CONTEXT, {"notes.md": "add is in calc"})
    editing = "start(context_files=['NOTES.md', 'docs/deep/MORE.md']); open('NOTES.md', 'a').write('!'); fix(); done()"
    receipt, _ = await make_laboratory(tmp_path, HEAD + editing, provider=provider).attempt("treat")
    assert receipt.files_modified == ("NOTES.md", "calc.py")


async def test_a_context_file_never_replaces_a_file_of_the_task(tmp_path: Path) -> None:
    provider = write_provider(
        tmp_path / "notes", {"context_files": {"calc.py": "fix.py"}}, {"fix.py": "def add(): ..."}
    )
    receipt, _ = await make_laboratory(tmp_path, REPAIR, provider=provider).attempt("treat")
    assert receipt.status is Status.CONTAMINATED
    assert "calc.py stands in the task's own tree already" in (receipt.reason or "")


async def test_nothing_of_this_machine_reaches_a_record(tmp_path: Path) -> None:
    script = HEAD + (
        "start(); say(type='message', role='assistant', text=os.getcwd() + os.environ['PATH']); "
        "print(os.getcwd(), file=sys.stderr); fix(); done()"
    )
    lab = make_laboratory(tmp_path, script)
    receipt, files = await lab.attempt()
    unpack = zstandard.ZstdDecompressor().decompress
    data = [receipt.to_bytes(), files["stderr.txt"], files["work.patch"]]
    data += [unpack(files[name], max_output_size=1 << 24) for name in ("events.jsonl.zst", "report.zst")]
    for item in data:
        assert str(tmp_path).encode() not in item
        assert str(Path.home()).encode() + b"/" not in item
    assert receipt.redactions > 0
