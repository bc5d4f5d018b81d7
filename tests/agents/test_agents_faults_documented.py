"""Every test that docs/agents-faults.md names exists, and every row names one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from pairtrial.core.status import Status, StopReason

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "agents-faults.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith(("| what goes wrong", "| ---"))
]


def functions_below(folder: Path) -> set[str]:
    """Names of the test functions below a folder."""
    names: set[str] = set()
    for path in folder.rglob("test_*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names |= {
            node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        }
    return names


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"`(test_\w+)`", TEXT)
    assert len(named) > 50
    assert sorted(set(named) - functions_below(ROOT / "tests")) == []


def test_every_row_has_a_test_and_words_for_its_status() -> None:
    words = {*Status, *StopReason, "no gate, no run", "no reason", "not touched", "counted", "verify"}
    for cells in ROWS:
        assert len(cells) == 4, cells
        assert re.fullmatch(r"`test_\w+`(, `test_\w+`)*", cells[3]), cells
        assert any(word in cells[2] for word in ("graded", *words)), cells


def test_the_page_is_linked() -> None:
    assert "(agents-faults.md)" in (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
