"""The example in a prompt: what an author promises that an agent can see for itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pairtrial.core.errors import TaskError
from pairtrial.tasks.defects import parse_quietly
from pairtrial.tasks.model import Framework
from pairtrial.tasks.pack import Task

FENCES: Mapping[Framework, tuple[str, ...]] = {
    Framework.PYTEST: ("python",),
    Framework.UNITTEST: ("python",),
    Framework.NODE_TEST: ("js", "javascript", "mjs", "cjs"),
    Framework.MOCHA: ("js", "javascript", "mjs", "cjs"),
    Framework.JEST: ("js", "javascript", "ts", "typescript"),
    Framework.VITEST: ("ts", "typescript", "js", "javascript"),
    Framework.GO_TEST: ("go",),
    Framework.CARGO_TEST: ("rust",),
}
"""Language of the example, as its fence names it."""


@dataclass(frozen=True, slots=True)
class Command:
    """How an example is run in a tree of the target."""

    file: str | None
    """Where the code is written to, relative to the tree; None when it goes into the command."""
    text: str
    argv: tuple[str, ...]


def example(task: Task) -> str:
    """The prompt's one block of code, which runs by itself and ends with an assertion; else `TaskError`."""
    where = task.folder / task.document.prompt
    fences = FENCES[task.target.tests.framework]
    pattern = rf"^```(?:{'|'.join(fences)})[ \t]*\n(.*?)^```[ \t]*$"
    blocks = re.findall(pattern, task.prompt, re.MULTILINE | re.DOTALL)
    if len(blocks) != 1:
        raise TaskError(
            f"{where}: {len(blocks)} fenced {fences[0]} blocks",
            hint=f"show one failing example in exactly one block that starts with ```{fences[0]}",
            slug="no-example",
        )
    code = str(blocks[0])
    if fences == ("python",):
        _check_python(code, str(where))
    elif "assert" not in code and fences != ("go",):
        raise TaskError(f"{where}: the example asserts nothing", hint="say what should hold", slug="no-example")
    return code


def _check_python(code: str, where: str) -> None:
    tree = parse_quietly(code)
    if tree is None:
        raise TaskError(f"{where}: the example is not valid Python", slug="no-example")
    if not tree.body or not isinstance(tree.body[-1], ast.Assert):
        raise TaskError(
            f"{where}: the example does not end with an assertion",
            hint="say what should hold: assert f(x) == y",
            slug="no-example",
        )


def command_for(task: Task, code: str) -> Command:
    """How to run the example; it must end with an exit code other than 0 where its assertion fails."""
    match task.target.tests.framework:
        case Framework.PYTEST | Framework.UNITTEST:
            return Command(None, "", ("python", "-c", code))
        case Framework.GO_TEST:
            return Command("zz_example/main.go", code, ("go", "run", "./zz_example"))
        case Framework.CARGO_TEST:
            return Command(
                "examples/zz_example.rs", code, ("cargo", "run", "-q", "--offline", "--example", "zz_example")
            )
        case Framework.VITEST:
            # Only the runner can load TypeScript: the example's assertions run while its file is loaded.
            text = f"{code}\nimport {{ test as zzRan }} from 'vitest';\nzzRan('example', () => {{}});\n"
            argv = ("node", "node_modules/vitest/vitest.mjs", "run", "zz-example.spec.ts")
            return Command("zz-example.spec.ts", text, argv)
        case _:
            modern = re.search(r"^\s*import\s", code, re.MULTILINE) is not None
            name = "zz-example.mjs" if modern else "zz-example.cjs"
            return Command(name, code, ("node", name))
