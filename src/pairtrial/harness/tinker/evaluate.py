"""Client of the fork server: asks how the prompt's example ends with one edit made."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pairtrial.harness.tinker.candidates import Candidate
from pairtrial.harness.tinker.sources import FunctionNode, SourceFile

if TYPE_CHECKING:
    from pairtrial.harness.tinker.splice import Place

FORK_SERVER = Path(__file__).with_name("fork_server.py")
WALL_S = 4.0
CPU_S = 2
MEMORY_BYTES = 1 << 30
_NEVER_PRELOADED = frozenset({"antigravity", "this", "idlelib", "turtle", "tkinter", "__main__"})


def child_environment() -> dict[str, str]:
    """Our own environment with what keeps runs equal and the tree free of bytecode."""
    return dict(os.environ) | {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}


def task_python() -> str:
    """The interpreter of the task's environment: the ``python`` on PATH."""
    return shutil.which("python") or shutil.which("python3") or sys.executable


def imported_modules(trees: Iterable[ast.Module]) -> list[str]:
    """Top-level absolute imports outside of functions, sorted; the fork server drops those of the workspace."""
    names: set[str] = set()
    stack: list[ast.AST] = list(trees)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
        elif not isinstance(node, FunctionNode | ast.Lambda):
            stack.extend(ast.iter_child_nodes(node))
    return sorted(name for name in names if name.split(".")[0] not in _NEVER_PRELOADED)


def place_of(candidate: Candidate, source: SourceFile) -> Place | None:
    """The function that has to be compiled anew, when the edit touches nothing but its body."""
    function = source.function_at(candidate.line)
    if function is None:
        return None
    body, end = source.start(function.node.body[0]), source.end(function.node)
    if not body <= candidate.start <= candidate.end <= end:
        return None  # in a decorator or a default value: that is code of the module
    start = source.line_starts[function.first_line - 1]
    if source.data[start:body].strip().startswith((b"def ", b"async ", b"@")):
        return {"names": function.name.split("."), "line": function.first_line, "start": start, "end": end}
    return None  # something else stands on its first line


class Evaluator:
    """A running fork server; a context manager that ends it."""

    def __init__(self, example: str, sources: Sequence[SourceFile]) -> None:
        self._sources = {source.path: source for source in sources}
        self._process = subprocess.Popen(
            [task_python(), str(FORK_SERVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child_environment(),
            start_new_session=True,
        )
        trees = [source.tree for source in sources]
        with suppress(SyntaxError, ValueError):  # the server will say that such an example fails
            trees.append(ast.parse(example))
        config = {
            "example": example,
            "preload": imported_modules(trees),
            "sources": [source.path for source in sources],
            "wall_s": WALL_S,
            "cpu_s": CPU_S,
            "memory_bytes": MEMORY_BYTES,
        }
        self.unedited: str = self._ask(config)
        """How the example ends on the tree as it is."""

    def outcome(self, candidate: Candidate) -> str:
        """``pass``, ``fail`` or ``killed``."""
        request = {
            "file": candidate.path,
            "start": candidate.start,
            "end": candidate.end,
            "new": candidate.new.decode(),
            "function": place_of(candidate, self._sources[candidate.path]),
        }
        return self._ask(request)

    def _ask(self, message: Mapping[str, object]) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(message).encode("ascii") + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            self.close()
            raise RuntimeError("the fork server ended; is there a working 'python' on PATH?")
        return str(json.loads(line)["outcome"])

    def close(self) -> None:
        """End the server and everything below it."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # what it did not read any more
                    pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
