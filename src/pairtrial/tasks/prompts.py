"""The example in a prompt: what an author promises that an agent can see for itself."""

from __future__ import annotations

import ast
import re

from pairtrial.core.errors import TaskError
from pairtrial.tasks.defects import parse_quietly
from pairtrial.tasks.pack import Task

_BLOCK = re.compile(r"^```python[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


def example(task: Task) -> str:
    """The prompt's Python block, which runs by itself and ends with an assertion; else `TaskError`."""
    where = task.folder / task.document.prompt
    blocks = _BLOCK.findall(task.prompt)
    if len(blocks) != 1:
        raise TaskError(
            f"{where}: {len(blocks)} fenced python blocks",
            hint="show one failing example in exactly one block that starts with ```python",
            slug="no-example",
        )
    (code,) = blocks
    tree = parse_quietly(code)
    if tree is None:
        raise TaskError(f"{where}: the example is not valid Python", slug="no-example")
    if not tree.body or not isinstance(tree.body[-1], ast.Assert):
        raise TaskError(
            f"{where}: the example does not end with an assertion",
            hint="say what should hold: assert f(x) == y",
            slug="no-example",
        )
    return str(code)
