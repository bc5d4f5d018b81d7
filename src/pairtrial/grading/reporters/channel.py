"""What every Python reporter shares: the report pipe, the watch over the runner, tests that cannot pass.

Sent to the grading sandbox as text, like the reporters; standard library only. Each line of the report carries a keyed
tag whose key is thrown away after use: a line that others write does not fit, and what was said cannot be taken back.
"""

from __future__ import annotations

import builtins
import contextlib
import hmac
import importlib.abc
import importlib.machinery
import json
import os
import random
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

WATCHED = ("_pytest", "pluggy", "pytest", "unittest", "ast", "inspect", "doctest")
"""Packages whose functions must at the end be those of the start."""
SEAT = """\
import os, sys
try:
    out = os.readlink("/proc/self/fd/1")
except OSError:
    out = "-"
os.environ[sys.argv[1]] = "%d %s" % (os.getpid(), out)
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Becomes the test binary, which finds in a variable who it was when it was started and where it printed to. No single
quotes: ``go test -exec`` takes them for its own."""
Fingerprint = dict[tuple[str, str], tuple[int, int]]


class Channel:
    """The report pipe. Keeps its own references: code under test may replace ``os.write`` or ``json.dumps``."""

    __slots__ = ("_descriptor", "_digest", "_dumps", "_getpid", "_key", "_pid", "_write")

    def __init__(self, descriptor: int, key: bytes) -> None:
        self._descriptor = descriptor
        self._key = key
        self._write = os.write
        self._dumps = json.JSONEncoder(separators=(",", ":")).encode
        self._digest = hmac.digest
        self._getpid = os.getpid
        self._pid = os.getpid()

    def say(self, *record: Any) -> None:
        if self._getpid() != self._pid:  # a fork of the code under test that forgot to end
            return
        payload = self._dumps(record).encode()
        tag = self._digest(self._key, payload, "sha256")[:16].hex().encode()
        self._key = self._digest(self._key, b"next", "sha256")
        view = memoryview(payload + b"\t" + tag + b"\n")
        while view:
            view = view[self._write(self._descriptor, view) :]


def identity(value: Any) -> tuple[int, int]:
    """Identity of a function, and of its code (which can be exchanged while the function stays)."""
    inner = getattr(value, "__func__", value)
    return id(inner), id(getattr(inner, "__code__", None))


def fingerprint(*packages: str, classes: Sequence[type] = ()) -> Fingerprint:
    """Identity of every function of some packages and classes, and of what Python itself provides."""
    found = {("builtins", name): (id(value), 0) for name, value in list(vars(builtins).items()) if callable(value)}
    for kind in classes:
        for name, value in list(vars(kind).items()):
            if (inner := _function(value)) is not None:
                found[kind.__name__, name] = identity(inner)
    found.update((key, identity(inner)) for key, inner in functions(packages))
    return found


def functions(packages: Collection[str]) -> Iterator[tuple[tuple[str, str], FunctionType]]:
    """Every function that the loaded modules of some packages hold, by module and name."""
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] not in packages or not isinstance(module, ModuleType):
            continue
        for name, value in list(vars(module).items()):
            inside = isinstance(value, type) and value.__module__ == module_name
            rows = (
                [(f"{name}.{inner}", held) for inner, held in list(vars(value).items())] if inside else [(name, value)]
            )
            for where, held in rows:
                if (inner_function := _function(held)) is not None:
                    yield (module_name, where), inner_function


def _function(value: Any) -> FunctionType | None:
    inner = getattr(value, "__func__", value)
    if isinstance(inner, property):
        inner = inner.fget
    return inner if isinstance(inner, FunctionType) else None


def strangers(packages: Collection[str], root: str) -> list[str]:
    """Functions of the workspace that stand in a package, also in a part of it that was loaded late."""
    place = root + os.sep
    return sorted(".".join(key) for key, inner in functions(packages) if inner.__code__.co_filename.startswith(place))


def is_what_it_says(code: CodeType) -> bool:
    """True when the module of the file that ``code`` names really holds it; a file's name is easily written."""
    pending = [
        inner.__code__
        for name, module in list(sys.modules.items())
        if getattr(module, "__file__", None) == code.co_filename
        for (where, _), inner in functions({name.partition(".")[0]})
        if where == name
    ]
    while pending:
        known = pending.pop()
        if known is code:
            return True
        pending += [inner for inner in known.co_consts if isinstance(inner, CodeType)]
    return False


def keep_signal(case: Any) -> None:
    """unittest ends a test without a word at its own ``_ShouldStop``, whoever raises it: only unittest may."""
    original, own = case._Outcome.testPartExecutor, case.TestCase.subTest.__wrapped__.__code__

    @contextlib.contextmanager
    def part(self: Any, *args: Any, **named: Any) -> Iterator[None]:
        with original(self, *args, **named):
            try:
                yield
            except case._ShouldStop as signal:
                last: Any = signal.__traceback__
                while last.tb_next is not None:
                    last = last.tb_next
                if last.tb_frame.f_code is own:
                    raise
                raise AssertionError("a test was ended by a signal of unittest that unittest did not give") from None

    case._Outcome.testPartExecutor = part


def overrides(kinds: Collection[type], case: type) -> set[tuple[str, str]]:
    """What test classes put in the place of unittest's own methods."""
    own = {name for name, value in vars(case).items() if isinstance(value, FunctionType)} | {"failureException"}
    return {
        (kind.__qualname__, name)
        for test in kinds
        for kind in test.__mro__
        if kind.__module__.partition(".")[0] != "unittest"
        for name in own & vars(kind).keys()
    }


def seated(variable: str) -> list[str]:
    """What to put before the command of a test binary."""
    return ["python", "-I", "-S", "-c", SEAT, variable]


def hide() -> None:
    """Make this process unreadable to the tests that it starts; as root with every capability they can all the same."""
    with contextlib.suppress(Exception):
        __import__("ctypes").CDLL(None).prctl(4, 0, 0, 0, 0)


def changes_since(start: Fingerprint, now: Fingerprint) -> list[str]:
    """Names of functions that were replaced or taken away."""
    changed = sorted(".".join(key) for key, value in start.items() if now.get(key, value) != value)
    return changed + sorted(".".join(key) for key in start.keys() - now.keys() if key[0] in sys.modules)


def impossible(chance: random.Random) -> str:
    """The body of a test that cannot pass, in one of the ways in which real tests fail."""
    left, right = chance.sample(range(2, 10_000), 2)
    return chance.choice(
        (
            f"assert {left} == {right}",
            f"value = [{left}]\n    assert value == [{right}]",
            f"assert str({left}).endswith('{right}x')",
            f"raise ValueError({left})",
            f"assert {{'key': {left}}} == {{'key': {right}}}, 'differs'",
        )
    )


def decoy_name(names: Sequence[str], chance: random.Random) -> str:
    """A name for a test that looks like its neighbours and is none of them."""
    words = sorted({word for name in names for word in name.split("_") if word.isidentifier() and word != "test"}) or [
        "more"
    ]
    name = "_".join(["test", *chance.choices(words, k=chance.randint(2, 4))])
    while name in names:
        name += "_" + chance.choice(words)
    return name


class OwnCopies(importlib.abc.MetaPathFinder):
    """While the runner is imported: names that the target itself provides come from the workspace, nothing else does."""

    def __init__(self, names: Sequence[str], folders: Sequence[str]) -> None:
        self._names = frozenset(names)
        self._folders = list(folders)

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if path is None and fullname in self._names:
            return importlib.machinery.PathFinder.find_spec(fullname, self._folders, target)
        return None


def open_workspace(settings: Mapping[str, Any]) -> None:
    """From here on imports see what ``python -m runner`` with PYTHONPATH would: current folder, PYTHONPATH, the rest."""
    sys.path[:0] = [settings["cwd"], *settings["pythonpath"]]
    os.environ.update(settings["environ"])
