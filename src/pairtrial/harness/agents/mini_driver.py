"""Runs mini-swe-agent inside the sandbox and tells its trajectory line by line.

This file is copied into the agent's home. It starts the program's own command line (``mini``) with the settings that
stand beside it, and prints what is new in the trajectory file, which the program writes after each step: a run that is
killed has told all but its last step.

The program reads no context files by itself. With ``--context NAME`` the file of that name in the workspace, where there
is one, becomes part of the system prompt by the program's own setting ``agent.system_template``.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

WATCH_S = 0.2


def literal(text: str) -> str:
    """Jinja that prints a text as it is, whatever stands in it."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "\\r").replace("\n", "\\n")
    return '{{ "' + quoted + '" }}'


def settings(path: Path, names: list[str]) -> dict[str, Any]:
    """The settings as delivered, with context files of the workspace in the system prompt."""
    table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for name in names:
        if Path(name).is_file():
            text = Path(name).read_text(encoding="utf-8", errors="replace")
            heading = f"\n\nInstructions of this repository ({name}):\n\n"
            table["agent"]["system_template"] += heading + literal(text)
    return table


def news(path: Path, told: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Messages after the first ``told``, and the trajectory's ``info``; nothing while it is being written."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return [], {}
    return value["messages"][told:], value["info"]


def tell(kind: str, **value: Any) -> None:
    """One line."""
    sys.stdout.write(json.dumps({"type": kind, **value}) + "\n")
    sys.stdout.flush()


def tell_message(message: dict[str, Any]) -> None:
    """A message without the answer's raw form, of which model and usage are kept."""
    extra = message.get("extra") or {}
    answer = extra.get("response")
    answer = answer if isinstance(answer, dict) else {}
    plain = {key: message.get(key) for key in ("role", "content", "tool_calls", "tool_call_id") if message.get(key)}
    tell("message", message=plain, model=answer.get("model"), usage=answer.get("usage"))


def run_cli(folder: str, arguments: list[str]) -> None:
    """The program itself, in a process of its own."""
    sys.path.insert(0, folder)
    sys.argv = ["mini", *arguments]
    importlib.import_module("minisweagent.run.mini").app()


def main(folder: str, config: str, names: list[str]) -> int:
    """Start it, tell what it does, and give its exit code."""
    own = Path(config).parent
    trajectory, merged = own / "run.traj.json", own / "merged.yaml"
    # JSON is YAML; the program insists on the ending of the name
    merged.write_text(json.dumps(settings(Path(config), names)), encoding="utf-8")
    found = importlib.metadata.distributions(name="mini-swe-agent", path=[folder])
    tell("start", version=next(iter(found)).version)
    prompt = sys.stdin.buffer.read().decode()
    words = ["-c", "mini.yaml", "-c", str(merged), "--agent-class", "default", "--task", prompt]
    argv = [sys.executable, "-I", "-B", __file__, "--cli", folder, *words, "--output", str(trajectory)]
    told = 0
    info: dict[str, Any] = {}
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=sys.stderr) as process:
        over = False
        while not over:
            over = process.poll() is not None
            fresh, seen = news(trajectory, told)
            info = seen or info
            for message in fresh:
                tell_message(message)
            told += len(fresh)
            time.sleep(0 if over else WATCH_S)
    tell("end", exit_status=info.get("exit_status"), model_stats=info.get("model_stats"))
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUTF8", "1")
    if sys.argv[1] == "--cli":
        run_cli(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
