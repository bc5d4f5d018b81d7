"""Runs pytest in this process and reports every outcome over a pipe.

Sent to the grading sandbox as text and executed by ``python -P -c``; standard library and pytest only. pytest and this
reporter are imported from the environment before a single file of the workspace can be, so nothing there can take
their place.
"""

# What runs beside the code under test stays as plain as possible and starts early, hence no pathlib.
# ruff: noqa: PTH109, PTH118, PTH119, PTH120

from __future__ import annotations

import inspect
import os
import random
import sys
import unittest
from collections.abc import Callable, Generator
from itertools import pairwise
from types import FunctionType, ModuleType
from typing import Any

from pairtrial.grading.reporters.channel import (
    WATCHED,
    Channel,
    OwnCopies,
    changes_since,
    decoy_name,
    fingerprint,
    identity,
    impossible,
    is_what_it_says,
    keep_signal,
    open_workspace,
    overrides,
    strangers,
)
from pairtrial.grading.reporters.written import Written

RULES = (
    "pytest_runtest_protocol",
    "pytest_runtest_makereport",
    "pytest_runtest_logreport",
    "pytest_runtest_call",
    "pytest_runtest_setup",
    "pytest_pyfunc_call",
    "pytest_collection_modifyitems",
)


class Reporter:
    """The plugin."""

    def __init__(self, pytest: Any, channel: Channel, config: dict[str, Any], written: Written) -> None:
        self._pytest = pytest
        self._channel = channel
        self._written = written
        self._settings = config
        self._root = os.path.realpath(config["cwd"])
        self._prefix = ""
        self._index: dict[Any, int] = {}
        self._phases: dict[str, str] = {}
        self._setups = 0
        self._sub_failed = False
        self._called = False
        self._packages = frozenset(WATCHED)
        self._cases: set[type] = set()
        self._overrides: set[tuple[str, str]] = set()
        self._decoys: set[Any] = set()
        self._start: dict[tuple[str, str], tuple[int, int]] = {}
        self._plugins: set[int] = set()
        self._hooks: dict[int, tuple[int, int]] = {}
        self._bodies: dict[Any, tuple[tuple[int, int], tuple[int, int]]] = {}
        self._config: Any = None

    # ---- ids -------------------------------------------------------------------------------------------------------
    def _identity(self, nodeid: str) -> str:
        """The id with its file relative to the workspace, whatever pytest took for its root."""
        return self._prefix + nodeid

    # ---- before the first file of the workspace --------------------------------------------------------------------
    def pytest_load_initial_conftests(self) -> None:
        """pytest has set itself up (its legacy plugin replaces a method) and no conftest has been imported yet."""
        # Everything of the environment that is loaded by now belongs to the runner: pytest's plugins and what they need.
        loaded = {
            name.partition(".")[0]
            for name, module in list(sys.modules.items())
            if f"{os.sep}site-packages{os.sep}" in str(getattr(module, "__file__", None))
        }
        self._packages |= loaded - set(self._settings["own"])
        self._start = self._fingerprint()

    # ---- collection ------------------------------------------------------------------------------------------------
    def pytest_configure(self, config: Any) -> None:
        self._config = config
        prefix = os.path.relpath(os.path.realpath(config.rootpath), self._root)
        self._prefix = "" if prefix == "." else prefix + "/"

    def pytest_collection(self, session: Any) -> None:
        self._plugins = {id(plugin) for plugin in session.config.pluginmanager.get_plugins()}
        self._hooks = {id(impl): identity(impl.function) for impl in self._implementations()}

    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome != "passed":
            self._channel.say("collect", self._identity(report.nodeid), report.outcome)

    def pytest_collection_modifyitems(self, items: list[Any]) -> Generator[None, Any, Any]:
        result = yield
        kinds = {getattr(getattr(item, "parent", None), "obj", None) for item in items}
        self._cases = {kind for kind in kinds if isinstance(kind, type) and issubclass(kind, unittest.TestCase)}
        self._overrides = overrides(self._cases, unittest.TestCase)
        self._plant(items)
        names = [self._identity(item.nodeid) for item in items]
        for start in range(0, len(names), 1000):
            self._channel.say("ids", names[start : start + 1000])
        self._index = {item: number for number, item in enumerate(items)}
        self._bodies = {item: (identity(self._body(item)), identity(vars(item).get("_obj"))) for item in items}
        # After their identities were noted: whatever is exchanged from here on differs from those.
        strange = [
            self._identity(item.nodeid) for item in items if item not in self._decoys and self._is_not_written(item)
        ]
        if strange:
            self._channel.say("patched", strange[:20])
        self._channel.say("decoys", [self._index[item] for item in items if item in self._decoys])
        return result

    def _plant(self, items: list[Any]) -> None:
        """Put the canaries at the ends and a decoy that must fail into files with required tests."""
        chance = random.Random(self._settings["seed"])  # noqa: S311 - the seed is secret and fresh
        canary = self._settings["canary"]
        first = [item for item in items if self._identity(item.nodeid) == canary["pass"]]
        last = [item for item in items if self._identity(item.nodeid) == canary["fail"]]
        middle = [item for item in items if item not in first and item not in last]
        modules: dict[str, tuple[Any, list[str]]] = {}
        for item in middle:
            module = item.getparent(self._pytest.Module)
            file = self._identity(item.nodeid).partition("::")[0]
            if isinstance(item, self._pytest.Function) and module is not None and file in self._settings["decoy_files"]:
                modules.setdefault(file, (module, []))[1].append(item.name.partition("[")[0])
        for module, names in modules.values():
            decoy = self._decoy(module, names, chance)
            middle.insert(chance.choice(self._gaps(middle, module)), decoy)
            self._decoys.add(decoy)
        items[:] = first + middle + last

    def _gaps(self, items: list[Any], module: Any) -> list[int]:
        """Places in or beside a module where no shared fixture of a class or parametrization is torn apart."""
        own = [number for number, item in enumerate(items) if item.getparent(self._pytest.Module) is module]
        inner = [
            number
            for before, number in pairwise(own)
            if items[before].parent is not items[number].parent
            or (items[number].parent is module and not hasattr(items[number], "callspec"))
        ]
        return [own[0], *inner, own[-1] + 1]

    def _decoy(self, module: Any, names: list[str], chance: random.Random) -> Any:
        """A test that looks like its neighbours and cannot pass."""
        name = decoy_name(names, chance)
        scope: dict[str, Any] = {"__name__": module.obj.__name__}
        exec(compile(f"def {name}():\n    {impossible(chance)}\n", str(module.path), "exec"), scope)  # noqa: S102 - our own text
        return self._pytest.Function.from_parent(module, name=name, callobj=scope[name])

    # ---- outcomes --------------------------------------------------------------------------------------------------
    def pytest_runtest_protocol(self, item: Any) -> Generator[None, Any, Any]:
        self._phases = {"setup": "-", "call": "-", "teardown": "-"}
        self._setups = 0
        self._sub_failed = self._called = False
        exchanged = self._is_exchanged(item)
        result = yield
        code = "".join(self._phases.values()) + ("r" if self._setups > 1 else "")
        if exchanged or self._is_exchanged(item):
            self._channel.say("patched", [self._identity(item.nodeid)])
        if item in self._decoys:
            self._check()
        self._channel.say("t", self._index.get(item, -1), code)
        return result

    def pytest_pyfunc_call(self, pyfuncitem: Any) -> Generator[None, Any, Any]:
        """The last moment before the test's own first line."""
        self._called = True
        if self._is_exchanged(pyfuncitem):
            self._channel.say("patched", [self._identity(pyfuncitem.nodeid)])
        return (yield)

    def pytest_runtest_makereport(self, item: Any, call: Any) -> Generator[None, Any, Any]:
        report = yield
        when = report.when
        expected = hasattr(report, "wasxfail")
        letter = {"passed": "X" if expected else "p", "skipped": "x" if expected else "s"}.get(report.outcome, "f")
        if letter == "p" and call.excinfo is not None:
            letter = "c"
        if when == "setup":
            self._setups += 1
        plain = isinstance(item, self._pytest.Function) and type(item).__module__ != "_pytest.unittest"
        if when == "call" and letter == "p" and plain and not self._called:
            self._channel.say("patched", [self._identity(item.nodeid)])
        if when == "call":
            # Subtests report through the same hook before their test does; the last word is the test's own.
            if letter == "p" and self._sub_failed:
                letter = "f"
            self._sub_failed = self._sub_failed or letter == "f"
        self._phases[when] = letter
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        if type(report).__name__ == "SubtestReport" or hasattr(report, "context"):
            return
        seen = self._phases.get(report.when, "-")
        if (report.outcome == "passed") != (seen in "pXc") and not (seen == "f" and report.outcome == "passed"):
            self._phases[report.when] = "c"

    # ---- the end ---------------------------------------------------------------------------------------------------
    def _fingerprint(self) -> dict[tuple[str, str], tuple[int, int]]:
        return fingerprint(*self._packages, classes=(Channel, Reporter, Written))

    def _implementations(self) -> list[Any]:
        hook = self._config.pluginmanager.hook
        return [impl for rule in RULES for impl in getattr(hook, rule).get_hookimpls()]

    def _check(self) -> None:
        """Report functions of the runner that were replaced, and plugins that came in by the back door."""
        changed = changes_since(self._start, self._fingerprint()) + strangers(self._packages, self._root)
        changed += [".".join(key) for key in sorted(overrides(self._cases, unittest.TestCase) - self._overrides)]
        for plugin in self._config.pluginmanager.get_plugins():
            hooks = any(hasattr(plugin, rule) for rule in RULES)
            if hooks and id(plugin) not in self._plugins and not self._is_conftest(plugin):
                changed.append(f"plugin {type(plugin).__name__}")
        for impl in self._implementations():
            known = self._hooks.get(id(impl))
            if known != identity(impl.function) and (known is not None or not self._is_conftest(impl.plugin)):
                changed.append(f"hook {getattr(impl.function, '__name__', '?')}")
        if changed:
            self._channel.say("patched", changed[:20])

    @staticmethod
    def _body(item: Any) -> Any:
        """The test function as its module or class holds it; no instance is made for that."""
        holder = getattr(item.parent, "obj", None)
        return inspect.getattr_static(holder, getattr(item, "originalname", None) or "", None)

    def _is_not_written(self, item: Any) -> bool:
        """True when what was collected is not the function that the file defines."""
        module = item.getparent(self._pytest.Module)
        if module is None or getattr(module, "path", None) is None:
            return False
        classes = [node.name for node in item.listchain() if isinstance(node, self._pytest.Class)]
        name = ".".join([*classes, getattr(item, "originalname", None) or item.name])
        return self._written.differs(str(module.path), name, self._body(item))

    def _is_exchanged(self, item: Any) -> bool:
        """True when what ran is not what was collected (plugins of the environment may wrap it)."""
        known = self._bodies.get(item)
        if known is None or "runtest" in vars(item) or identity(self._body(item)) != known[0]:
            return True
        inner = getattr(vars(item).get("_obj"), "__func__", vars(item).get("_obj"))
        if not isinstance(inner, FunctionType) or identity(inner) in known:
            return False
        foreign = not inner.__code__.co_filename.startswith((sys.prefix, sys.base_prefix))
        return foreign or not is_what_it_says(inner.__code__)

    def _is_conftest(self, plugin: Any) -> bool:
        """True for a module made from a ``conftest.py`` of the workspace; the grader has put back all of them."""
        if not isinstance(plugin, ModuleType):
            return False
        file = os.path.realpath(str(plugin.__file__))
        return os.path.basename(file) == "conftest.py" and file.startswith(self._root + os.sep)

    def pytest_sessionfinish(self, session: Any, exitstatus: Any) -> Generator[None, Any, Any]:
        result = yield
        self._check()
        self._channel.say("end", int(session.exitstatus), int(session.testscollected), int(session.testsfailed))
        return result


def main(config: dict[str, Any], descriptor: int) -> int:
    """Import the runner, open the workspace, run."""
    os.set_inheritable(descriptor, False)
    workspace = os.getcwd()
    folders = list(config["pythonpath"])
    finder = OwnCopies(config["own"], folders)
    sys.meta_path.insert(0, finder)
    import pytest

    for name in ("subtests", "unittest", "doctest", "python", "runner", "skipping"):
        __import__(f"_pytest.{name}")
    __import__("unittest.case")

    keep_signal(sys.modules["unittest.case"])
    sys.meta_path.remove(finder)
    config["cwd"] = workspace
    channel = Channel(descriptor, bytes.fromhex(config.pop("key")))
    written = Written(workspace, config["decoy_files"])
    written.serve(sys.modules["_pytest.assertion.rewrite"])
    reporter = Reporter(pytest, channel, config, written)
    wrap: Callable[..., Any] = pytest.hookimpl(wrapper=True, tryfirst=True)
    for name in (
        "pytest_collection_modifyitems",
        "pytest_runtest_protocol",
        "pytest_runtest_makereport",
        "pytest_sessionfinish",
    ):
        wrap(getattr(Reporter, name))
    pytest.hookimpl(wrapper=True, trylast=True)(Reporter.pytest_pyfunc_call)
    pytest.hookimpl(tryfirst=True)(Reporter.pytest_collection)
    pytest.hookimpl(trylast=True)(Reporter.pytest_runtest_logreport)
    open_workspace(config)
    sys.argv = [os.path.join(os.path.dirname(pytest.__file__), "__main__.py"), *config["args"]]
    channel.say("hello", pytest.__version__, sys.version.split()[0])
    return int(pytest.main(list(config["args"]), plugins=[reporter]))
