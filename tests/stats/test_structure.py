"""The package stands alone, and its two lists of public names agree."""

from __future__ import annotations

import ast
from pathlib import Path

from pairtrial import stats

PACKAGE = Path(str(stats.__file__)).parent


def imported(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return names


def test_nothing_of_ours_is_imported() -> None:
    for path in PACKAGE.glob("*.py"):
        ours = {name for name in imported(ast.parse(path.read_text())) if name.startswith("pairtrial")}
        assert all(name == "pairtrial.stats" or name.startswith("pairtrial.stats.") for name in ours), path.name


def test_names_for_type_checkers_are_the_names_at_run_time() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    checked = {
        (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("pairtrial.stats.")
        for alias in node.names
    }
    assert checked == {(f"pairtrial.stats.{module}", name) for name, module in stats._MODULE_OF.items()}
    assert stats.__all__ == sorted(name for _, name in checked)


def test_every_public_name_has_a_docstring() -> None:
    for name in stats.__all__:
        assert (getattr(stats, name).__doc__ or "").strip(), name
