"""The rooms of the house: imports run downwards only, and importing does nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pairtrial

SOURCE = Path(pairtrial.__file__).parent
FLOOR = {
    "cli": 7, "report": 6, "harness": 6, "runs": 5, "grading": 4, "prereg": 4, "tasks": 3, "providers": 3, "sandbox": 2,
    "core": 1, "stats": 1,
}  # fmt: skip
MAY_CALL_STATS = {"prereg", "report", "cli"}


def imports(path: Path) -> set[str]:
    """Subjects of our own that a module imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == "pairtrial":
                names = [f"pairtrial.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("pairtrial.") and name.split(".")[1] in FLOOR}
    return found


@pytest.mark.parametrize("subject", sorted(FLOOR))
def test_imports_run_downwards(subject: str) -> None:
    for path in (SOURCE / subject).rglob("*.py"):
        for other in imports(path) - {subject}:
            if other == "stats":
                assert subject in MAY_CALL_STATS, f"{path} imports stats"
            else:
                assert FLOOR[other] < FLOOR[subject], f"{path} imports {other}"


def test_stats_stands_alone() -> None:
    for path in (SOURCE / "stats").rglob("*.py"):
        assert imports(path) <= {"stats"}, path


def test_help_is_instant_and_loads_nothing_heavy() -> None:
    heavy = ["scipy", "numpy", "statsmodels", "docker", "mcp", "matplotlib", "httpx", "starlette", "pydantic", "git"]
    code = f"import sys, pairtrial.cli.main; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_modules_stay_small() -> None:
    long = {
        str(path.relative_to(SOURCE)): n
        for path in SOURCE.rglob("*.py")
        if (n := len(path.read_text().splitlines())) > 400
    }
    assert long == {}
