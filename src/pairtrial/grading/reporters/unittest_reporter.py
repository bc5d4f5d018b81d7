"""Runs unittest in this process and reports every outcome over a pipe.

Sent to the grading sandbox as text; standard library only. An id is ``path/to/test_file.py::Class::test_method``, with
the file of the module that holds the class, relative to the workspace.
"""

# What runs beside the code under test stays as plain as possible and starts early, hence no pathlib.
# ruff: noqa: PTH109, PTH118, N802

from __future__ import annotations

import inspect
import os
import random
import sys
import unittest
from collections.abc import Iterator, Sequence
from typing import Any

from pairtrial.grading.reporters.channel import (
    Channel,
    Fingerprint,
    changes_since,
    decoy_name,
    fingerprint,
    impossible,
    keep_signal,
    open_workspace,
    overrides,
)
from pairtrial.grading.reporters.written import Written


class Result(unittest.TestResult):
    """Says the outcome of a test when the test stops."""

    def __init__(self, names: Names, channel: Channel) -> None:
        super().__init__()
        self._names = names
        self._channel = channel
        self._outcome = ""
        self.bad = 0

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._outcome = ""

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self.bad += self._outcome in ("failed", "error")
        # No outcome at all: something ended the test without telling anybody.
        self._channel.say("r", self._names.of(test), self._outcome or "error")

    def addSuccess(self, test: unittest.TestCase) -> None:
        super().addSuccess(test)
        self._set("passed")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self._set("failed")

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        if isinstance(test, unittest.TestCase):
            self._set("error")
        else:  # setUpClass, setUpModule and their counterparts
            self._lost(test, "failed")

    def addSkip(self, test: Any, reason: str) -> None:
        super().addSkip(test, reason)
        if isinstance(test, unittest.TestCase):
            self._set("skipped")
        else:
            self._lost(test, "skipped")

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addExpectedFailure(test, err)
        self._set("xfailed")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        super().addUnexpectedSuccess(test)
        self._set("xpassed")

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._set("failed")

    def _set(self, outcome: str) -> None:
        worst = ("failed", "error", "xpassed", "xfailed", "skipped", "passed", "")
        self._outcome = min(self._outcome, outcome, key=worst.index)

    def _lost(self, holder: Any, state: str) -> None:
        self.bad += state == "failed"
        self._channel.say("collect", self._names.of_holder(str(holder.id())), state)


class Names:
    """From tests to ids."""

    def __init__(self, root: str) -> None:
        self._root = os.path.realpath(root)

    def file(self, module_name: str) -> str:
        module = sys.modules.get(module_name)
        place = getattr(module, "__file__", None)
        if place is None:
            return module_name.replace(".", "/") + ".py"
        return os.path.relpath(os.path.realpath(place), self._root)

    def of(self, test: unittest.TestCase) -> str:
        kind = type(test)
        method = getattr(test, "_testMethodName", "") or str(test.id())
        return "::".join((self.file(kind.__module__), *kind.__qualname__.split("."), method))

    def of_holder(self, text: str) -> str:
        """``setUpClass (tests.test_x.Case)`` and ``setUpModule (tests.test_x)``."""
        name = text.partition("(")[2].rstrip(")") or text
        if name in sys.modules:
            return self.file(name)
        module, _, case = name.rpartition(".")
        while module and module not in sys.modules:
            module, _, more = module.rpartition(".")
            case = f"{more}.{case}"
        return "::".join((self.file(module), *case.split(".")))


def flat(suite: Any) -> Iterator[unittest.TestCase]:
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flat(item)
        else:
            yield item


class Runner:
    """Given to ``unittest.main``: lays the canaries around the suite, runs it, says how it ended."""

    def __init__(self, names: Names, channel: Channel, settings: dict[str, Any]) -> None:
        self._names = names
        self._written = Written(settings["cwd"], settings["decoy_files"])
        self._channel = channel
        self._settings = settings
        self._start = self._fingerprint()

    @staticmethod
    def _fingerprint() -> Fingerprint:
        return fingerprint("unittest", "ast", "inspect", classes=(Channel, Result, Runner, Written))

    def run(self, test: unittest.TestSuite | unittest.TestCase, /) -> Result:
        suite = unittest.TestSuite([test])
        whole = unittest.TestSuite()
        first, last = self._canaries()
        self._report_failed_imports(suite)
        tests = list(flat(suite))
        strange = self._not_written(tests)
        kinds = {type(test) for test in tests}
        before = overrides(kinds, unittest.TestCase)
        whole.addTest(first)
        whole.addTest(suite)
        for decoy in self._decoys(suite):
            whole.addTest(decoy)
        whole.addTest(last)
        result = Result(self._names, self._channel)
        whole.run(result)
        changed = changes_since(self._start, self._fingerprint()) + (strange or self._not_written(tests))
        changed += [".".join(key) for key in sorted(overrides(kinds, unittest.TestCase) - before)]
        if changed:
            self._channel.say("patched", changed[:20])
        self._channel.say("end", 1 if result.bad else 0)
        return result

    def _not_written(self, tests: Sequence[unittest.TestCase]) -> list[str]:
        """Tests that are not the functions that their files define."""
        found = []
        for test in tests:
            kind, method = type(test), str(getattr(test, "_testMethodName", ""))
            file = os.path.join(self._settings["cwd"], self._names.file(kind.__module__))
            body = inspect.getattr_static(kind, method, None)
            if self._written.differs(file, f"{kind.__qualname__}.{method}", body):
                found.append(self._names.of(test))
        return found

    def _canaries(self) -> tuple[unittest.TestCase, unittest.TestCase]:
        path = os.path.join(self._settings["cwd"], self._settings["canary"]["file"])
        name = os.path.basename(path)[:-3]  # noqa: PTH119
        spec = __import__("importlib.util").util.spec_from_file_location(name, path)
        module = __import__("importlib.util").util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        case = getattr(module, self._settings["canary"]["case"])
        return case(self._settings["canary"]["pass"]), case(self._settings["canary"]["fail"])

    def _report_failed_imports(self, suite: unittest.TestSuite) -> None:
        for test in flat(suite):
            kind = type(test).__name__
            if kind in ("_FailedTest", "ModuleSkipped"):
                module = str(getattr(test, "_testMethodName", "")).replace(".", "/")
                state = "skipped" if kind == "ModuleSkipped" else "failed"
                for name in (f"{module}.py", module):
                    self._channel.say("collect", name, state)

    def _decoys(self, suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
        """A case that must fail in every module that holds a required test."""
        chance = random.Random(self._settings["seed"])  # noqa: S311 - the seed is secret and fresh
        modules: dict[str, list[str]] = {}
        for test in flat(suite):
            if self._names.of(test).partition("::")[0] in self._settings["decoy_files"]:
                modules.setdefault(type(test).__module__, []).append(str(getattr(test, "_testMethodName", "")))
        for module, names in modules.items():
            name = decoy_name(names, chance)
            scope: dict[str, Any] = {}
            exec(f"def {name}(self):\n    {impossible(chance)}\n", scope)  # noqa: S102 - our own text
            title = "".join(part.title() for part in name.split("_"))
            case = type(title, (unittest.TestCase,), {name: scope[name], "__module__": module})
            decoy = case(name)
            self._channel.say("decoy", self._names.of(decoy))
            yield decoy


def main(config: dict[str, Any], descriptor: int) -> int:
    """Open the workspace, run."""
    os.set_inheritable(descriptor, False)
    __import__("unittest.main")
    keep_signal(sys.modules["unittest.case"])
    config["cwd"] = os.getcwd()
    channel = Channel(descriptor, bytes.fromhex(config.pop("key")))
    runner = Runner(Names(config["cwd"]), channel, config)
    open_workspace(config)
    arguments: Sequence[str] = ["python -m unittest", *config["args"]]
    sys.argv = list(arguments)
    channel.say("hello", "unittest", sys.version.split()[0])
    program = unittest.main(module=None, argv=list(arguments), testRunner=runner, exit=False)
    return 1 if getattr(program.result, "bad", 0) else 0
