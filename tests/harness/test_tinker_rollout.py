"""tinker as a program: prompt in, events out, one edit in the tree."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pairtrial.harness.events import Malformed, Other, parse_line

Run = Callable[..., Any]
Read = Callable[[Path], dict[str, bytes]]
NAMES = "The code is broken.\n\n```python\nfrom pack import slug\n\nassert slug('one two', limit=7) == 'one-two'\n```\n"
SLEEPER = "import time\n\nwhile True:\n    time.sleep(1)\n"


def changed(before: dict[str, bytes], after: dict[str, bytes]) -> dict[str, tuple[bytes, bytes]]:
    assert before.keys() == after.keys()
    return {path: (before[path], after[path]) for path in before if before[path] != after[path]}


def test_one_broken_token_is_repaired_without_a_server(tinker: Run, workspace: Path, tree: Read) -> None:
    before = tree(workspace)
    ran = tinker(steps=400)
    assert ran.code == 0, ran.stderr
    assert ran.events[0] == {
        "type": "startup",
        "agent": "tinker",
        "version": "1.0.0",
        "model": "tinker-1",
        "mcp_servers": [],
        "tools": ["edit", "run"],
        "skills": [],
        "context_files": [],
    }
    assert ran.of("result")[0]["stop_reason"] == "finished"
    # `<` to `<=` is one of the repairs; `limit + 1` is another that no visible test tells from it.
    (path, (old, new)), *others = changed(before, tree(workspace)).items()
    assert path == "pack/slugs.py" and not others
    different = [pair for pair in zip(old.splitlines(), new.splitlines(), strict=True) if pair[0] != pair[1]]
    assert len(different) == 1
    done = subprocess.run(
        [sys.executable, "-c", "from pack import slug; print(slug('one two', 7), slug('one two', 6))"],
        cwd=workspace,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["one-two", "one"]


def test_a_server_is_asked_and_its_answer_shortens_the_search(
    tinker: Run, bm25_server: Callable[[], dict[str, Any]], workspace: Path, tree: Read
) -> None:
    before = tree(workspace)
    servers = bm25_server()
    alone = [tinker(seed=seed, steps=0).of("usage") for seed in (1,)]
    assert alone[0][0]["steps"] == 0
    ran = tinker(servers)
    assert ran.code == 0, ran.stderr
    assert ran.events[0]["mcp_servers"] == [{"name": "bm25", "status": "connected", "tools": ["search"]}]
    search = ran.of("tool_call")[0]
    assert (search["server"], search["name"], search["status"]) == ("bm25", "search", "ok")
    assert search["arguments"]["k"] == 10
    assert search["arguments"]["query"].startswith("A slug that is exactly as long as the limit")
    assert "assert slug(" in search["arguments"]["query"]
    assert "pytest" not in search["arguments"]["query"]
    assert search["result_bytes"] > 0
    assert [call["name"] for call in ran.of("tool_call")[-2:]] == ["edit", "run"]
    assert all(call["server"] is None for call in ran.of("tool_call")[1:])
    assert ran.of("result")[0]["stop_reason"] == "finished"
    assert set(changed(before, tree(workspace))) == {"pack/slugs.py"}


def test_every_line_is_an_event_of_the_documented_stream(
    tinker: Run, bm25_server: Callable[[], dict[str, Any]]
) -> None:
    ran = tinker(bm25_server())
    events = [parse_line(line) for line in ran.stdout.splitlines()]
    assert not [event for event in events if isinstance(event, Malformed | Other)]
    assert [event.type for event in events if not isinstance(event, Malformed)] == [
        *("startup", "tool_call", "message", "tool_call", "tool_call", "usage", "result")
    ]


def test_same_seed_same_bytes_and_same_tree(
    tinker: Run, bm25_server: Callable[[], dict[str, Any]], workspace: Path, tree: Read
) -> None:
    servers = bm25_server()
    before = tree(workspace)
    first, first_tree = tinker(servers, seed=7), tree(workspace)
    for path, data in before.items():
        (workspace / path).write_bytes(data)
    second, second_tree = tinker(servers, seed=7), tree(workspace)
    assert first.stdout == second.stdout
    assert first_tree == second_tree != before
    assert str(workspace).encode() not in first.stdout


def test_a_server_that_exits_at_once_is_reported_as_failed_and_the_agent_goes_on(tinker: Run, tmp_path: Path) -> None:
    program = tmp_path / "broken.py"
    program.write_text("raise SystemExit(3)\n")
    ran = tinker({"broken": {"command": sys.executable, "args": [str(program)], "env": {}}}, steps=3)
    assert ran.code == 0
    assert ran.events[0]["mcp_servers"] == [{"name": "broken", "status": "failed", "tools": []}]
    assert ran.of("usage")[0]["steps"] == 3


def test_a_server_whose_program_does_not_exist_is_reported_as_failed(
    tinker: Run, bm25_server: Callable[[], dict[str, Any]]
) -> None:
    ran = tinker({"absent": {"command": "no-such-program-anywhere"}, **bm25_server()}, steps=1)
    assert ran.code == 0
    assert [(server["name"], server["status"]) for server in ran.events[0]["mcp_servers"]] == [
        ("absent", "failed"),
        ("bm25", "connected"),
    ]


def test_a_server_that_dies_at_the_call_gives_an_error_and_no_answer(tinker: Run, tmp_path: Path) -> None:
    program = tmp_path / "dies.py"
    program.write_text(
        "import os\n"
        "from mcp.server.mcpserver import MCPServer\n"
        "server = MCPServer('dies')\n"
        "@server.tool()\n"
        "def search(query: str) -> str:\n"
        "    os._exit(1)\n"
        "server.run()\n"
    )
    ran = tinker({"dies": {"command": sys.executable, "args": [str(program)]}}, steps=1)
    assert ran.code == 0, ran.stderr
    assert ran.events[0]["mcp_servers"][0]["status"] == "connected"
    call = ran.of("tool_call")[0]
    assert (call["server"], call["status"], call["result_bytes"]) == ("dies", "error", 0)


def test_without_a_server_the_sdk_is_not_imported(
    tinker_command: Callable[..., list[str]], workspace: Path, task_environment: dict[str, str]
) -> None:
    argv = tinker_command(steps=1)
    argv.insert(1, "-Ximporttime")
    ran = subprocess.run(argv, cwd=workspace, env=task_environment, input=NAMES.encode(), capture_output=True)
    imported = {
        line.rsplit(b"|", 1)[-1].strip() for line in ran.stderr.splitlines() if line.startswith(b"import time:")
    }
    assert b"pairtrial.harness.tinker.loop" in imported
    assert not imported & {b"mcp", b"mcp_types", b"anyio", b"pydantic"}


def test_the_steps_are_the_budget(tinker: Run, workspace: Path, tree: Read) -> None:
    before = tree(workspace)
    ran = tinker(steps=2)
    assert ran.of("usage") == [{"type": "usage", "model": "tinker-1", "steps": 2}]
    assert ran.of("result")[0]["stop_reason"] == "turn_limit"
    assert tree(workspace) == before


def test_an_example_that_passes_already_is_left_alone(tinker: Run, workspace: Path, tree: Read) -> None:
    before = tree(workspace)
    ran = tinker(prompt="Nothing is wrong.\n\n```python\nimport pack\n```\n")
    assert ran.of("result")[0] == {
        "type": "result",
        "stop_reason": "gave_up",
        "is_error": False,
        "text": "the example passes as it is",
    }
    assert tree(workspace) == before


def test_a_prompt_without_an_example_gives_up(tinker: Run) -> None:
    ran = tinker(prompt="Please make it better.")
    assert ran.code == 0
    assert ran.of("result")[0]["stop_reason"] == "gave_up"
    assert ran.of("usage")[0]["steps"] == 0


def test_edits_that_break_the_visible_tests_are_not_kept_and_five_runs_are_the_limit(
    tinker: Run, workspace: Path, tree: Read
) -> None:
    (workspace / "tests" / "test_never.py").write_text("def test_never():\n    assert False\n")
    before = tree(workspace)
    # Anything that makes the sum positive passes the example: many edits do.
    loose = (
        "Slugs are too short.\n\n```python\nfrom pack import slug\n\nassert slug('one two', limit=7) != 'one'\n```\n\n"
        "```sh\npython -m pytest -p no:cacheprovider tests\n```\n"
    )
    ran = tinker(prompt=loose, steps=400)
    runs = [call for call in ran.of("tool_call") if call["name"] == "run"]
    assert len(runs) == 5
    assert {call["status"] for call in runs} == {"error"}
    assert ran.of("result")[0]["stop_reason"] == "gave_up"
    assert tree(workspace) == before


def test_what_a_test_run_leaves_behind_is_removed(tinker: Run, workspace: Path, tree: Read) -> None:
    (workspace / "tests" / "test_litter.py").write_text(
        "from pathlib import Path\n\n\ndef test_litter():\n    Path('litter/deep').mkdir(parents=True)\n"
        "    Path('litter/deep/file').write_text('x')\n"
    )
    before = tree(workspace)
    ran = tinker(steps=400)
    assert ran.of("result")[0]["stop_reason"] == "finished"
    assert tree(workspace).keys() == before.keys()
    assert not (workspace / "litter").exists()


def test_the_workspace_cannot_shadow_a_module_of_the_agent_or_of_the_server(
    tinker: Run, bm25_server: Callable[[], dict[str, Any]], workspace: Path
) -> None:
    for name in ("anyio", "pydantic", "click", "mcp", "pairtrial", "json"):
        (workspace / f"{name}.py").write_text("raise RuntimeError('shadowed')\n")
    (workspace / "json.py").unlink()  # the standard library itself is the task's to break
    (workspace / "pairtrial.py").unlink()  # runpy looks for the program before it has any say in the path
    ran = tinker(bm25_server(), steps=1)
    assert ran.events[0]["mcp_servers"][0]["status"] == "connected", ran.stderr


def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    tinker_command: Callable[..., list[str]], tmp_path: Path, workspace: Path, task_environment: dict[str, str]
) -> None:
    argv = tinker_command()
    for broken, said in {
        "{": "mcp.json",
        "[]": "'mcpServers' must be an object",
        '{"mcpServers": {"x": {}}}': "mcpServers.x.command must be a string",
        '{"mcpServers": {"x": {"command": "c", "args": "c"}}}': "mcpServers.x.args must be a list of strings",
        '{"mcpServers": {"x": {"command": "c", "env": {"A": 1}}}}': "mcpServers.x.env must map names to strings",
    }.items():
        (tmp_path / "mcp.json").write_text(broken)
        ran = subprocess.run(argv, cwd=workspace, env=task_environment, input=b"", capture_output=True, text=False)
        assert ran.returncode == 2
        assert said.encode() in ran.stderr
        assert b"Traceback" not in ran.stderr
        assert ran.stdout == b""


def _alive(marker: str) -> list[int]:
    """Processes whose environment holds the marker."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if marker.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_on_sigterm_it_ends_at_once_with_its_children_and_puts_the_tree_back(
    tinker_command: Callable[..., list[str]],
    workspace: Path,
    task_environment: dict[str, str],
    tree: Read,
    tmp_path: Path,
) -> None:
    if not Path("/proc/self/environ").exists():
        return  # without /proc nothing can be listed
    (workspace / "tests" / "test_slow.py").write_text(
        f"import time\nfrom pathlib import Path\n\n\ndef test_slow():\n"
        f"    Path({str(tmp_path / 'reached')!r}).touch()\n    time.sleep(60)\n"
    )
    before = tree(workspace)
    marker = f"TINKER_TEST={tmp_path.name}-{os.getpid()}"
    environment = task_environment | dict([marker.split("=", 1)])
    prompt = tmp_path / "prompt.md"
    prompt.write_text(NAMES + "\n```sh\npython -m pytest -p no:cacheprovider tests/test_slow.py\n```\n")
    with prompt.open("rb") as stdin:
        process = subprocess.Popen(
            tinker_command(steps=400), cwd=workspace, env=environment, stdin=stdin, stdout=subprocess.DEVNULL
        )
    deadline = time.monotonic() + 60
    while not (tmp_path / "reached").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert tree(workspace) != before  # the candidate is in the tree while its tests run
    asked = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 128 + signal.SIGTERM
    assert time.monotonic() - asked < 2
    assert tree(workspace) == before
    time.sleep(0.2)
    assert _alive(marker) == []


def test_on_sigterm_a_hanging_server_ends_too(
    tinker_command: Callable[..., list[str]], workspace: Path, task_environment: dict[str, str], tmp_path: Path
) -> None:
    if not Path("/proc/self/environ").exists():
        return
    program = tmp_path / "hangs.py"
    program.write_text(f"from pathlib import Path\nPath({str(tmp_path / 'up')!r}).touch()\n{SLEEPER}")
    marker = f"TINKER_TEST={tmp_path.name}-{os.getpid()}"
    server = {"command": sys.executable, "args": [str(program)], "env": dict([marker.split("=", 1)])}
    process = subprocess.Popen(
        tinker_command({"hangs": server}),
        cwd=workspace,
        env=task_environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "up").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert _alive(marker) != []
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=2) == 128 + signal.SIGTERM
    time.sleep(0.2)
    assert _alive(marker) == []
