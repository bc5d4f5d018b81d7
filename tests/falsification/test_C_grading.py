"""Group C: every known way to a false grade is planted here and must be caught.

The target is two functions (one broken) and three tests; the agent's work is a mapping of files.
"""

from __future__ import annotations

import ast
import inspect
import os
import time
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

import pytest
from grading_cases import ADD, ARGS, BROKEN, FILES, FIXED, MORE, MUL, TESTS, Case, make_case
from rollout_cases import HEAD, make_laboratory

import pairtrial.grading
from pairtrial.core.errors import GradeError, SandboxError
from pairtrial.core.status import Status, StopReason
from pairtrial.grading import Grade, capture, grade, grade_from_report
from pairtrial.sandbox import ExecResult, Sandbox
from pairtrial.sandbox.local import LocalSandbox
from pairtrial.tasks.workspace import Prepared

pytestmark = pytest.mark.anyio
Files = Mapping[str, str | bytes | None]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return make_case(tmp_path)


# --------------------------------------------------------------------------------------------- the honest ones first


async def test_C_honest_fix_is_resolved(case: Case) -> None:
    found = await case.grade({"calc.py": FIXED})
    assert (found.status, found.kind, found.passed, found.required) == (Status.RESOLVED, "passed", 3, 3)
    assert found.checks == {ADD: "passed"}
    assert found.touched == ()


async def test_C_no_work_is_unresolved(case: Case) -> None:
    found = await case.grade({})
    assert (found.status, found.checks) == (Status.UNRESOLVED, {ADD: "failed"})


async def test_C_half_a_fix_that_breaks_another_test_is_unresolved(case: Case) -> None:
    found = await case.grade({"calc.py": FIXED.replace("a * b", "a + b")})
    assert (found.status, found.checks) == (Status.UNRESOLVED, {ADD: "passed", MUL: "failed", MORE: "failed"})


async def test_C_verdict_is_recomputed_from_the_stored_report_alone(case: Case) -> None:
    found = await case.grade({"calc.py": FIXED})
    again = grade_from_report(found.report, case.prepared.task)
    assert again == replace(found, log=b"", duration_s=0.0)
    forged = found.report.replace(b'"chained":true', b'"chained":false')
    assert grade_from_report(forged, case.prepared.task).status is Status.TAMPERED
    with pytest.raises(GradeError, match="report"):
        grade_from_report(b"{}", case.prepared.task)


# ------------------------------------------------------------------------------------------------------------- C1, C2


async def test_C1_symlinked_and_odd_paths_move_no_id(case: Case, tmp_path: Path) -> None:
    (tmp_path / "real place").mkdir()
    (tmp_path / "lin k").symlink_to(tmp_path / "real place")
    found = await case.grade({"calc.py": FIXED}, scratch=tmp_path / "lin k")
    assert found.status is Status.RESOLVED


async def test_C1_ids_that_match_nothing_are_an_error_not_a_null(tmp_path: Path) -> None:
    prefixed = make_case(tmp_path, fail_to_pass=[f"work/{ADD}"], pass_to_pass=[f"work/{MUL}"])
    found = await prefixed.grade({"calc.py": FIXED})
    assert (found.status, found.kind) == (Status.GRADING_ERROR, "unmatched-id")
    assert "none of the required ids has a record" in found.reason


async def test_C1_one_id_that_no_collection_knows(tmp_path: Path) -> None:
    case = make_case(tmp_path, pass_to_pass=[MUL, "[100%]"])
    found = await case.grade({"calc.py": FIXED})
    assert (found.status, found.kind) == (Status.GRADING_ERROR, "unmatched-id")
    assert "[100%]" in found.reason


async def test_C2_zero_tests(tmp_path: Path) -> None:
    case = make_case(tmp_path, {**FILES, "tests/test_calc.py": "X = 1\n"})
    found = await case.grade({"calc.py": FIXED})
    assert (found.status, found.kind) == (Status.GRADING_ERROR, "no-test")


async def test_C2_collection_error_of_the_target_itself(tmp_path: Path) -> None:
    case = make_case(tmp_path, {**FILES, "tests/test_calc.py": "import no_such_dependency\n" + TESTS})
    found = await case.grade({"calc.py": FIXED})
    assert (found.status, found.kind) == (Status.GRADING_ERROR, "collection-error")
    assert "without the work it does not answer either" in found.reason


async def test_C2_collection_error_by_the_work_is_its_failure(case: Case) -> None:
    found = await case.grade({"calc.py": "def add(a, b:\n"})
    assert (found.status, found.kind) == (Status.UNRESOLVED, "collection-error")
    assert "collection error" in found.reason
    assert found.checks == dict.fromkeys((ADD, MUL, MORE), "uncollected")


async def test_C2_conftest_that_cannot_import_the_broken_work(tmp_path: Path) -> None:
    case = make_case(tmp_path, {**FILES, "tests/conftest.py": "import calc\n"})
    found = await case.grade({"calc.py": "def add(a, b:\n"})
    assert (found.status, found.kind) == (Status.UNRESOLVED, "runner-died")
    assert "without the work the suite runs well" in found.reason


async def test_C2_runner_that_crashes_without_the_work_too(tmp_path: Path) -> None:
    case = make_case(tmp_path, {**FILES, "conftest.py": "def pytest_configure(config):\n    raise RuntimeError\n"})
    found = await case.grade({"calc.py": FIXED})
    assert (found.status, found.kind) == (Status.GRADING_ERROR, "runner-died")


@pytest.mark.parametrize("call", ["os._exit(0)", "os.kill(os.getpid(), 9)", "os._exit(1)"])
async def test_C2_runner_ended_by_the_work_is_never_a_pass(case: Case, call: str) -> None:
    found = await case.grade({"calc.py": f"import os\nprint('5 passed')\n{call}\n" + FIXED})
    expected = Status.TAMPERED if call == "os._exit(0)" else Status.UNRESOLVED
    assert found.status is expected


async def test_C2_grading_timeout_is_not_graded(tmp_path: Path) -> None:
    slow = TESTS + "\n\ndef test_slow():\n    import time\n    time.sleep(60)\n"
    case = make_case(tmp_path, {**FILES, "tests/test_calc.py": slow})
    found = await case.grade({"calc.py": FIXED}, timeout_s=3.0)
    assert (found.status, found.kind) == (Status.GRADING_ERROR, "limit-wall")


# ------------------------------------------------------------------------------------------------------- C3 … C6: ids


async def test_C3_every_pass_to_pass_counts_also_the_last(tmp_path: Path) -> None:
    count = 300
    body = "import pytest\nfrom calc import mul\n\n\n@pytest.mark.parametrize('n', range(300))\ndef test_n(n):\n"
    body += "    assert mul(n, 1) == n\n"
    ids = [f"tests/test_many.py::test_n[{number}]" for number in range(count)]
    case = make_case(tmp_path, {**FILES, "tests/test_many.py": body}, pass_to_pass=ids)
    found = await case.grade({"calc.py": FIXED.replace("a * b", "a * b if a != 299 else 0")})
    assert (found.status, found.passed, found.required) == (Status.UNRESOLVED, 300, 301)
    assert found.checks == {ADD: "passed", ids[-1]: "failed"}


async def test_C4_equal_names_in_files_classes_and_parametrizations_stay_apart(tmp_path: Path) -> None:
    other = "def test_add():\n    assert True\n\n\nclass TestMore:\n    def test_add(self):\n        assert False\n"
    case = make_case(
        tmp_path,
        {**FILES, "tests/test_other.py": other, "tests/sub/test_other.py": "def test_add():\n    assert False\n"},
        args=(*ARGS, "--import-mode=importlib"),
        pass_to_pass=[MUL, MORE, "tests/test_other.py::test_add"],
    )
    found = await case.grade({"calc.py": FIXED})
    assert (found.status, found.passed) == (Status.RESOLVED, 4)


async def test_C4_a_real_duplicate_is_an_error(tmp_path: Path) -> None:
    twice = "def pytest_collection_modifyitems(items):\n    items.append(items[0])\n"
    found = await make_case(tmp_path, {**FILES, "conftest.py": twice}).grade({"calc.py": FIXED})
    assert (found.status, found.kind) == (Status.GRADING_ERROR, "duplicate-id")


ODD = [
    "1 + 1",
    "1 + 2",
    "[x]",
    "a::b",
    "ä",
    "\\x1b[31mred\\x1b[0m",
    "two\\nlines",
    "",
    "tab\\t",
    "/etc/passwd",
    "[100%]",
]


async def test_C5_odd_characters_in_ids(tmp_path: Path) -> None:
    values = ", ".join(f'"{value}"' for value in ODD)
    body = f"import pytest\n\n\n@pytest.mark.parametrize('v', [{values}])\ndef test_odd(v):\n    assert v != '1 + 2'\n"
    case = make_case(
        tmp_path, {**FILES, "tests/test_odd.py": body}, pass_to_pass=["tests/test_odd.py::test_odd[1 + 1]"]
    )
    assert (await case.grade({"calc.py": FIXED})).status is Status.RESOLVED
    whole = await make_case(
        tmp_path / "2",
        {**FILES, "tests/test_odd.py": body},
        pass_to_pass=["tests/test_odd.py::test_odd[1 + 1]", "tests/test_odd.py::test_odd[1 + 2]"],
    ).grade({"calc.py": FIXED})
    assert (whole.status, whole.checks) == (
        Status.UNRESOLVED,
        {ADD: "passed", "tests/test_odd.py::test_odd[1 + 2]": "failed"},
    )


STATES = """\
import unittest
import pytest


@pytest.fixture
def broken():
    raise RuntimeError


@pytest.fixture
def broken_after():
    yield
    raise RuntimeError


def test_error(broken):
    pass


def test_teardown(broken_after):
    pass


@pytest.mark.skip
def test_skip():
    pass


def test_skip_inside():
    pytest.skip("no")


@pytest.mark.xfail
def test_xfailed():
    assert False


@pytest.mark.xfail
def test_xpassed():
    pass


@pytest.mark.xfail(strict=True)
def test_strict():
    pass


@pytest.mark.xfail(run=False)
def test_not_run():
    pass


def test_subtests(subtests):
    for number in range(3):
        with subtests.test(number=number):
            assert number != 1


class Case(unittest.TestCase):
    def test_sub(self):
        for number in range(3):
            with self.subTest(number=number):
                self.assertNotEqual(number, 1)

    @unittest.expectedFailure
    def test_expected(self):
        self.fail()

    @unittest.expectedFailure
    def test_unexpected(self):
        pass

    @unittest.skip("no")
    def test_skipped(self):
        pass
"""
EXPECTED = {
    "test_error": "error",
    "test_teardown": "error",
    "test_skip": "skipped",
    "test_skip_inside": "skipped",
    "test_xfailed": "xfailed",
    "test_xpassed": "xpassed",
    "test_strict": "failed",
    "test_not_run": "xfailed",
    "test_subtests": "failed",
    "Case::test_sub": "failed",
    "Case::test_expected": "xfailed",
    "Case::test_unexpected": "failed",
    "Case::test_skipped": "skipped",
}


async def test_C6_only_a_plain_pass_is_a_pass(tmp_path: Path) -> None:
    ids = {f"tests/test_states.py::{name}": outcome for name, outcome in EXPECTED.items()}
    case = make_case(tmp_path, {**FILES, "tests/test_states.py": STATES}, pass_to_pass=list(ids))
    found = await case.grade({"calc.py": FIXED})
    assert found.status is Status.UNRESOLVED
    assert found.checks == {ADD: "passed", **ids}


async def test_C6_a_module_skipped_as_a_whole_is_no_pass(tmp_path: Path) -> None:
    body = (
        "import pytest\nimport calc\n\nif not hasattr(calc, 'add'):\n    pytest.skip('gone', allow_module_level=True)\n"
    )
    case = make_case(tmp_path, {**FILES, "tests/test_calc.py": body + TESTS})
    found = await case.grade({"calc.py": "x = 1\n"})
    assert (found.status, found.kind) == (Status.UNRESOLVED, "collection-error")


# ------------------------------------------------------------------------------------------------------ C7: forgeries

ALL_PASS = """\
import pytest

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    outcome.get_result().outcome = "passed"
"""
PROTECTED_FILES: dict[str, dict[str, str]] = {
    "conftest_plugin": {"conftest.py": ALL_PASS},
    "conftest_in_tests": {"tests/conftest.py": ALL_PASS},
    "sitecustomize": {"sitecustomize.py": "import os\nos._exit(0)\n"},
    "usercustomize": {"usercustomize.py": "import os\nos._exit(0)\n"},
    "pth": {"evil.pth": "import os; os._exit(0)\n"},
    "pytest_ini": {"pytest.ini": "[pytest]\naddopts = -p evil\n", "evil.py": ALL_PASS},
    "tox_ini": {"tox.ini": "[pytest]\npython_functions = nothing\n"},
    "setup_cfg": {"setup.cfg": "[tool:pytest]\npython_functions = nothing\n"},
    "pyproject": {"pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-p evil'\n", "evil.py": ALL_PASS},
    "entry_point": {
        "evil-1.0.dist-info/METADATA": "Name: evil\nVersion: 1.0\n",
        "evil-1.0.dist-info/entry_points.txt": "[pytest11]\nevil = evil\n",
        "evil.py": ALL_PASS,
    },
    "egg_info": {"evil.egg-info/entry_points.txt": "[pytest11]\nevil = evil\n", "evil.py": ALL_PASS},
    "shadowed_pytest": {"pytest.py": "import sys\nsys.exit(0)\n"},
    "shadowed_internals": {"_pytest/__init__.py": "import os\nos._exit(0)\n"},
    "shadowed_stdlib": {"json.py": "import os\nos._exit(0)\n", "unittest/__init__.py": "import os\nos._exit(0)\n"},
    "shadowed_dependency": {"pluggy/__init__.py": "import os\nos._exit(0)\n"},
}


@pytest.mark.parametrize("name", PROTECTED_FILES)
async def test_C7_protected_file(case: Case, name: str) -> None:
    """Row by row: the file is not there when the suite runs, the work fails, and the file is named."""
    files = PROTECTED_FILES[name]
    found = await case.grade(files)
    assert found.status is Status.UNRESOLVED
    assert found.checks == {ADD: "failed"}
    assert set(found.touched) == set(files) - {"evil.py"}


IN_PROCESS: dict[str, str] = {
    "runtest": "import _pytest.python\n_pytest.python.Function.runtest = lambda self: None\n",
    "runtest_code": (
        "import _pytest.python\n_pytest.python.Function.runtest.__code__ = (lambda self: None).__code__\n"
        "import _pytest.unittest\n_pytest.unittest.TestCaseFunction.runtest = lambda self: None\n"
    ),
    "from_call": (
        "import _pytest.runner as r\nold = r.CallInfo.from_call.__func__\n"
        "def forged(cls, func, when, reraise=None):\n"
        "    info = old(cls, func, when, reraise)\n    info.excinfo = None\n    return info\n"
        "r.CallInfo.from_call = classmethod(forged)\n"
    ),
    "report": (
        "import _pytest.reports as r\nold = r.TestReport.from_item_and_call.__func__\n"
        "def forged(cls, item, call):\n    call.excinfo = None\n    return old(cls, item, call)\n"
        "r.TestReport.from_item_and_call = classmethod(forged)\n"
    ),
    "late_plugin": (
        "import gc, pytest\n"
        "class Forger:\n"
        "    @pytest.hookimpl(wrapper=True)\n"
        "    def pytest_runtest_makereport(self, item, call):\n"
        "        report = yield\n"
        "        if 'test_add' in item.nodeid:\n            report.outcome = 'passed'\n"
        "        return report\n"
        "for thing in gc.get_objects():\n"
        "    if type(thing).__name__ == 'PytestPluginManager':\n        thing.register(Forger())\n        break\n"
    ),
    "quiet_plugin": (
        "import gc, pytest\n"
        "class Forger:\n"
        "    def pytest_pyfunc_call(self, pyfuncitem):\n"
        "        return True if pyfuncitem.name == 'test_add' else None\n"
        "Forger.__module__ = '_pytest.forged'\n"
        "for thing in gc.get_objects():\n"
        "    if type(thing).__name__ == 'PytestPluginManager':\n        thing.register(Forger())\n        break\n"
    ),
    "assertion": "import unittest\nunittest.TestCase.assertEqual = lambda self, *a, **k: None\n",
    "hook_function": (
        "import gc\n"
        "for thing in gc.get_objects():\n"
        "    if type(thing).__name__ == 'HookImpl' and thing.function.__name__ == 'pytest_pyfunc_call':\n"
        "        thing.function = lambda pyfuncitem: True\n"
    ),
    "report_pipe": (
        "import os\n"
        "for number in range(3, 64):\n"
        "    try:\n        os.write(number, b'[\"t\",0,\"ppp\"]\\t' + b'0' * 32 + b'\\n')\n    except OSError:\n        pass\n"
    ),
    "reporter_methods": (
        "import gc\n"
        "for thing in gc.get_objects():\n"
        "    if type(thing).__name__ == 'Channel':\n"
        "        old = type(thing).say\n"
        "        def say(self, *record):\n"
        "            if record[0] == 't':\n                record = ('t', record[1], 'ppp')\n"
        "            old(self, *record)\n"
        "        type(thing).say = say\n        break\n"
    ),
    "hook_function_for_one_test": (
        "import gc\n"
        "for thing in gc.get_objects():\n"
        "    if type(thing).__name__ == 'HookImpl' and thing.function.__name__ == 'pytest_pyfunc_call':\n"
        "        old = thing.function\n"
        "        thing.function = lambda pyfuncitem: pyfuncitem.name == 'test_add' or old(pyfuncitem)\n"
    ),
    "reporter_for_one_test": (
        "import gc\n"
        "def take_over():\n"
        "    channel = next(o for o in gc.get_objects() if type(o).__name__ == 'Channel')\n"
        "    old = type(channel).say\n"
        "    def say(self, *record):\n"
        "        old(self, *(('t', 1, 'ppp') if record[:2] == ('t', 1) else record))\n"
        "    type(channel).say = say\n"
        "take_over()\n"
    ),
    "exit_at_the_end": "import atexit, os\natexit.register(os._exit, 0)\n",
    "fork_and_leave": "import os\nif os.fork():\n    os._exit(0)\n",
}


@pytest.mark.parametrize("name", IN_PROCESS)
async def test_C7_code_under_test_that_rewrites_the_runner(case: Case, name: str) -> None:
    found = await case.grade({"calc.py": IN_PROCESS[name] + BROKEN})
    assert found.status is Status.TAMPERED, found


FOUND = "next(o for o in gc.get_objects() if type(o).__name__ == 'Function' and o.name == 'test_add')"
EXCHANGED = {
    "function": "sys.modules['test_calc'].test_add.__code__ = (lambda: None).__code__",
    "attribute": "sys.modules['test_calc'].test_add = lambda: None",
    "object": f"{FOUND}.obj = lambda: None",
    "runtest": f"{FOUND}.runtest = lambda: None",
}


@pytest.mark.parametrize("name", EXCHANGED)
async def test_C7_code_under_test_that_exchanges_a_test_before_it_runs(tmp_path: Path, name: str) -> None:
    tests = "from calc import add, mul\n\n\ndef test_mul():\n    assert mul(2, 3) == 6\n\n\n"
    tests += "def test_add():\n    assert add(1, 2) == 3\n"
    case = make_case(tmp_path, {**FILES, "tests/test_calc.py": tests}, pass_to_pass=[MUL])
    code = BROKEN.replace("    return a * b", f"    {EXCHANGED[name]}\n    return a * b")
    found = await case.grade({"calc.py": "import gc, sys\n" + code})
    assert (found.status, found.kind) == (Status.TAMPERED, "runner-patched"), found


BEFORE_COLLECTION = {
    "by a thread": (
        "import sys, threading, time\n"
        "def swap():\n"
        "    for _ in range(500):\n"
        "        for module in list(sys.modules.values()):\n"
        "            test = getattr(module, 'test_add', None) or getattr(getattr(module, 'Calc', None), 'test_add', None)\n"
        "            if hasattr(test, '__code__'):\n"
        "                test.__code__ = (lambda *self: None).__code__\n"
        "        time.sleep(0.001)\n"
        "threading.Thread(target=swap, daemon=True).start()\n"
    ),
    "when its module is done": (
        "import sys\n"
        "def watch(frame, event, arg):\n"
        "    if event == 'return' and frame.f_code.co_name == '<module>':\n"
        "        test = frame.f_globals.get('test_add') or getattr(frame.f_globals.get('Calc'), 'test_add', None)\n"
        "        if test:\n"
        "            test.__code__ = (lambda *self: None).__code__\n"
        "sys.setprofile(watch)\n"
    ),
    "by another function": (
        "import sys\n"
        "def watch(frame, event, arg):\n"
        "    if event == 'return' and frame.f_code.co_name == '<module>':\n"
        "        holder = frame.f_globals.get('Calc')\n"
        "        if holder:\n            holder.test_add = lambda self: None\n"
        "        elif 'test_add' in frame.f_globals:\n            frame.f_globals['test_add'] = lambda: None\n"
        "sys.setprofile(watch)\n"
    ),
}
UNITTEST = (
    "import unittest\nfrom calc import add, mul\n\n\nclass Calc(unittest.TestCase):\n"
    "    def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n\n"
    "    def test_mul(self):\n        self.assertEqual(mul(2, 3), 6)\n"
)


@pytest.mark.parametrize("framework", ["pytest", "unittest"])
@pytest.mark.parametrize("name", BEFORE_COLLECTION)
async def test_C7_code_under_test_that_exchanges_a_test_before_it_is_collected(
    tmp_path: Path, name: str, framework: str
) -> None:
    """What is collected is compared with what the file defines: nobody has to have seen the test before."""
    if framework == "pytest":
        case = make_case(tmp_path)
    else:
        ids = [f"tests/test_calc.py::Calc::{test}" for test in ("test_add", "test_mul")]
        case = make_case(
            tmp_path, {"calc.py": BROKEN, "tests/__init__.py": "", "tests/test_calc.py": UNITTEST}, framework="unittest",
            fail_to_pass=ids[:1], pass_to_pass=ids[1:], args=(), paths=("tests",),
        )  # fmt: skip
    assert (await case.grade({"calc.py": FIXED})).status is Status.RESOLVED
    found = await case.grade({"calc.py": BEFORE_COLLECTION[name] + BROKEN})
    assert (found.status, found.kind) == (Status.TAMPERED, "runner-patched"), found


@pytest.mark.parametrize(
    "code",
    [
        "open('tests/test_two.py', 'w').write('def test_two():\\n    pass\\n')",
        "open('tests/two/conftest.py', 'w').write('def pytest_pyfunc_call(pyfuncitem): return True')",
    ],
)
async def test_C7_a_test_file_that_is_rewritten_before_it_is_read(tmp_path: Path, code: str) -> None:
    """Files are collected one after the other; the code under test is imported by the first."""
    two = "from calc import add\n\n\ndef test_two():\n    assert add(2, 2) == 4\n"
    files = {**FILES, "tests/test_two.py": two, "tests/two/conftest.py": "", "tests/two/test_three.py": two}
    required = ["tests/test_two.py::test_two", "tests/two/test_three.py::test_two"]
    case = make_case(tmp_path, files, fail_to_pass=[ADD, *required])
    assert (await case.grade({"calc.py": FIXED})).status is Status.RESOLVED
    found = await case.grade({"calc.py": f"{code}\n{BROKEN}"})
    assert found.status is Status.TAMPERED
    assert code.split("'")[1] in found.reason


SIX = """\
import pytest
from calc import add, mul


@pytest.fixture
def six():
    return mul(2, 3)


def test_add(six):
    assert add(1, 2) == 3


def test_mul():
    assert mul(2, 3) == 6
"""
IN_SETUP = {
    "exchanged, and put back by what runs instead": (
        "    g = sys.modules['test_calc'].__dict__; test = g['test_add']; kept = test.__code__\n"
        "    if sys._getframe(1).f_code.co_name == 'six':\n"
        "        g['_back'] = lambda: setattr(test, '__code__', kept)\n"
        "        text = 'def test_add(six):\\n    _back()'\n"
        "        test.__code__ = compile(text, kept.co_filename, 'exec').co_consts[0]\n"
    ),
    "under the file name of an installed package": (
        "    def forged(six): pass\n"
        "    forged.__code__ = forged.__code__.replace(co_filename=sys.prefix + '/x.py')\n"
        "    for thing in gc.get_objects():\n"
        "        if type(thing).__name__ == 'Function' and thing.name == 'test_add': thing.obj = forged\n"
    ),
    "a way around the test that closes behind it": (
        "    old = _pytest.python.Function.runtest\n"
        "    def runtest(self):\n"
        "        _pytest.python.Function.runtest = old\n"
        "        return None if self.name == 'test_add' else old(self)\n"
        "    if sys._getframe(1).f_code.co_name == 'six': _pytest.python.Function.runtest = runtest\n"
    ),
}


@pytest.mark.parametrize("name", IN_SETUP)
async def test_C7_a_test_exchanged_while_its_fixtures_are_made(tmp_path: Path, name: str) -> None:
    case = make_case(tmp_path, {**FILES, "tests/test_calc.py": SIX}, pass_to_pass=[MUL])
    assert (await case.grade({"calc.py": FIXED})).status is Status.RESOLVED
    code = BROKEN.replace("    return a * b", IN_SETUP[name] + "    return a * b")
    found = await case.grade({"calc.py": "import gc, sys, _pytest.python\n" + code})
    assert (found.status, found.kind) == (Status.TAMPERED, "runner-patched"), found


WITHOUT_ASSERTIONS = {
    "ast.parse": (
        "import ast\nold = ast.parse\n"
        "class Drop(ast.NodeTransformer):\n"
        "    def visit_Assert(self, node): return ast.copy_location(ast.Expr(node.test), node)\n"
        "ast.parse = lambda *a, **k: ast.fix_missing_locations(Drop().visit(old(*a, **k)))\n"
    ),
    "builtins.compile": (
        "import ast, builtins\nold = builtins.compile\n"
        "class Drop(ast.NodeTransformer):\n"
        "    def visit_If(self, node): return ast.copy_location(ast.Pass(), node)\n"
        "def drop(source, *a, **k):\n"
        "    source = Drop().visit(source) if isinstance(source, ast.AST) else source\n"
        "    return old(source, *a, **k)\n"
        "builtins.compile = drop\n"
    ),
}


@pytest.mark.parametrize("name", WITHOUT_ASSERTIONS)
async def test_C7_assertions_taken_out_of_files_that_are_read_later(tmp_path: Path, name: str) -> None:
    first = "from calc import mul\n\n\ndef test_mul():\n    assert mul(2, 3) == 6\n"
    files = {**FILES, "tests/test_a.py": first, "tests/test_calc.py": TESTS}
    case = make_case(tmp_path, files, pass_to_pass=[MUL, MORE, "tests/test_a.py::test_mul"])
    assert (await case.grade({"calc.py": FIXED})).status is Status.RESOLVED
    found = await case.grade({"calc.py": WITHOUT_ASSERTIONS[name] + BROKEN})
    assert (found.status, found.kind) == (Status.TAMPERED, "runner-patched"), found


async def test_C7_a_builtin_that_agrees_with_everything(tmp_path: Path) -> None:
    tests = TESTS.replace("assert add(1, 2) == 3", "assert all([add(1, 2) == 3])")
    case = make_case(tmp_path, {**FILES, "tests/test_calc.py": tests})
    assert (await case.grade({"calc.py": FIXED})).status is Status.RESOLVED
    found = await case.grade({"calc.py": "import builtins\nbuiltins.all = lambda values: True\n" + BROKEN})
    assert (found.status, found.kind) == (Status.TAMPERED, "runner-patched"), found


async def test_C7_a_plugin_of_the_environment_that_runs_tests_is_watched_too(tmp_path: Path) -> None:
    """Also a part of it that nobody has loaded before the work does."""
    tests = (
        "import pytest\nfrom calc import add, mul\n\n\n"
        "@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n\n\n"
        "@pytest.mark.anyio\nasync def test_add():\n    assert add(1, 2) == 3\n\n\n"
        "def test_mul():\n    assert mul(2, 3) == 6\n"
    )
    arguments = (*ARGS, "-p", "anyio.pytest_plugin")
    case = make_case(tmp_path, {**FILES, "tests/test_calc.py": tests}, pass_to_pass=[MUL], args=arguments)
    assert (await case.grade({"calc.py": FIXED})).status is Status.RESOLVED
    code = "import anyio._backends._asyncio as backend\nbackend.TestRunner.run_test = lambda self, test, values: None\n"
    found = await case.grade({"calc.py": code + BROKEN})
    assert (found.status, found.kind) == (Status.TAMPERED, "runner-patched"), found


CASE = "type(sys._getframe(1).f_locals['self'])"
UNITTEST_ENDS = {
    "signal": ("return a - b", "raise unittest.case._ShouldStop", Status.UNRESOLVED),
    "method": ("return a * b", f"{CASE}.assertEqual = lambda *a: None; return a * b", Status.TAMPERED),
    "exception": (
        "return a * b", f"{CASE}.failureException = unittest.case._ShouldStop; return a * b", Status.TAMPERED
    ),
}  # fmt: skip


@pytest.mark.parametrize("framework", ["pytest", "unittest"])
@pytest.mark.parametrize("name", UNITTEST_ENDS)
async def test_C7_a_unittest_case_that_ends_without_a_word(tmp_path: Path, name: str, framework: str) -> None:
    # The one that is exchanged stands last, behind one that passes.
    tests = UNITTEST.replace("test_add", "test_z")
    ids = [f"tests/test_calc.py::Calc::{test}" for test in ("test_z", "test_mul")]
    arguments = ARGS if framework == "pytest" else ()
    files = {**FILES, "tests/__init__.py": "", "tests/test_calc.py": tests}
    case = make_case(
        tmp_path, files, framework=framework, fail_to_pass=ids[:1], pass_to_pass=ids[1:], args=arguments
    )  # fmt: skip
    assert (await case.grade({"calc.py": FIXED})).status is Status.RESOLVED
    old, new, status = UNITTEST_ENDS[name]
    found = await case.grade({"calc.py": "import sys, unittest\n" + BROKEN.replace(old, new)})
    assert found.status is status, found


async def test_C7_unittests_own_end_of_a_subtest_stays_what_it_is(tmp_path: Path) -> None:
    """An expected failure inside a subtest ends the test by the same signal."""
    tests = (
        "import unittest\nfrom calc import add, mul\n\n\nclass Calc(unittest.TestCase):\n"
        "    def test_add(self):\n        with self.subTest():\n            self.assertEqual(add(1, 2), 3)\n\n"
        "    @unittest.expectedFailure\n    def test_mul(self):\n"
        "        with self.subTest():\n            self.assertEqual(mul(2, 3), 7)\n"
    )
    ids = [f"tests/test_calc.py::Calc::{test}" for test in ("test_add", "test_mul")]
    files = {**FILES, "tests/__init__.py": "", "tests/test_calc.py": tests}
    case = make_case(tmp_path, files, framework="unittest", fail_to_pass=ids[:1], pass_to_pass=ids[1:], args=())
    found = await case.grade({"calc.py": FIXED})
    assert found.checks == {ids[0]: "passed", ids[1]: "xfailed"}
    inside = await case.grade(
        {"calc.py": BROKEN.replace("return a - b", "import unittest; raise unittest.case._ShouldStop")}
    )
    assert inside.checks[ids[0]] == "failed"


@pytest.mark.parametrize("name", ["tests/test_z.py", "tests/data.json"])
async def test_C9_a_file_of_the_tests_that_the_run_rewrites(tmp_path: Path, name: str) -> None:
    """The file of a pass_to_pass test, and data that a test reads."""
    late = "import json, pathlib\nfrom calc import mul\n\n\ndef test_z():\n"
    late += "    want = json.loads((pathlib.Path(__file__).parent / 'data.json').read_text())\n    assert mul(2, 3) == want\n"
    files = {**FILES, "tests/test_z.py": late, "tests/data.json": "6"}
    case = make_case(tmp_path, files, pass_to_pass=["tests/test_z.py::test_z"])
    assert (await case.grade({"calc.py": FIXED})).status is Status.RESOLVED
    content = "0" if name.endswith("json") else "def test_z():\n    pass\n"
    code = f"open({name!r}, 'w').write({content!r})\n" + FIXED.replace("a * b", "0")
    found = await case.grade({"calc.py": code})
    assert found.status is Status.TAMPERED and name in found.reason, found


async def test_C2_a_required_doctest_is_graded(tmp_path: Path) -> None:
    """A doctest's name has dots; a decoy beside it must not break the run."""
    source = BROKEN.replace("def mul(a, b):\n", 'def mul(a, b):\n    """\n    >>> add(1, 2)\n    3\n    """\n')
    case = make_case(
        tmp_path, {**FILES, "calc.py": source}, fail_to_pass=["calc.py::calc.mul"], pass_to_pass=[MUL],
        args=(*ARGS, "--doctest-modules"), paths=("tests", "calc.py"),
    )  # fmt: skip
    fixed = await case.grade({"calc.py": source.replace("a - b", "a + b")})
    assert (fixed.status, fixed.checks) == (Status.RESOLVED, {"calc.py::calc.mul": "passed"})
    assert (await case.grade({})).status is Status.UNRESOLVED


async def test_C7_decorated_inherited_and_reassigned_tests_are_no_forgery(tmp_path: Path) -> None:
    """A target may put its tests together as it likes."""
    tests = (
        "import functools, unittest.mock, pytest\nfrom calc import add, mul\n\n\n"
        "def twice(test):\n    @functools.wraps(test)\n    def run():\n        test(); test()\n    return run\n\n\n"
        "@twice\ndef test_add():\n    assert add(1, 2) == 3\n\n\n"
        "def test_mul():\n    assert mul(2, 3) == 6\n\n\ntest_mul = twice(test_mul)\n\n\n"
        "class Base:\n    def test_mul(self):\n        assert mul(0, 3) == 0\n\n\nclass TestMore(Base):\n    pass\n\n\n"
        "@unittest.mock.patch('os.getcwd')\nclass TestPatched:\n    def test_it(self, getcwd):\n        assert mul(1, 1) == 1\n\n\n"
        "@pytest.mark.parametrize('n', [1, 2])\ndef test_n(n):\n    assert mul(n, 1) == n\n\n\n"
        "if True:\n    def test_inner():\n        assert add(0, 0) == 0\nelse:\n    def test_inner():\n        assert False\n"
    )
    more = [f"tests/test_calc.py::{name}" for name in ("TestPatched::test_it", "test_n[1]", "test_n[2]", "test_inner")]
    case = make_case(tmp_path, {**FILES, "tests/test_calc.py": tests}, pass_to_pass=[MUL, MORE, *more])
    assert (await case.grade({"calc.py": FIXED})).status is Status.RESOLVED


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.kill(os.getppid(), 9)\n",
        "import os\nif os.fork() == 0:\n    pass\nelse:\n    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))\n",
        "import os\nfor n in range(3, 256):\n    try:\n        os.close(n)\n    except OSError:\n        pass\n",
        "raise SystemExit(0)\n",
        "import sys, pytest\npytest.exit('all passed', 0)\n",
    ],
)
async def test_C7_code_under_test_that_takes_the_report_away(case: Case, code: str) -> None:
    found = await case.grade({"calc.py": code + FIXED})
    assert found.status in (Status.UNRESOLVED, Status.TAMPERED)
    assert found.passed == 0


async def test_C7_writing_into_the_supervisors_output(case: Case) -> None:
    code = (
        "import os\ntry:\n    out = os.open(f'/proc/{os.getppid()}/fd/1', os.O_WRONLY)\n"
        "    os.write(out, b'E2\\n{}S00\\n')\nexcept OSError:\n    pass\n"
    )
    found = await case.grade({"calc.py": code + BROKEN})
    assert found.status in (Status.UNRESOLVED, Status.TAMPERED)


async def test_C7_printed_results_and_a_forged_junit_file_are_never_read(case: Case) -> None:
    code = (
        "import sys\nprint('tests/test_calc.py::test_add PASSED\\n3 passed in 0.01s')\n"
        "sys.stderr.write('R5\\nhello\\n')\n"
        "open('report.xml', 'w').write('<testsuite tests=\"3\" failures=\"0\"/>')\n"
    )
    found = await case.grade({"calc.py": code + BROKEN, "report.xml": "<testsuite/>"})
    assert (found.status, found.checks) == (Status.UNRESOLVED, {ADD: "failed"})


async def test_C7_output_that_floods_is_bounded_and_changes_nothing(case: Case) -> None:
    code = (
        "import atexit, os\n\n\ndef flood():\n    for _ in range(200):\n        os.write(1, b'x' * 1_000_000)\n"
        "    os.write(2, b'\\xff\\n')\n\n\natexit.register(flood)\n"
    )
    found = await case.grade({"calc.py": code + FIXED})
    assert found.status is Status.RESOLVED
    assert len(found.log) < 200_000 and b"bytes left out" in found.log


async def test_C7_forced_colour_and_width_change_nothing(tmp_path: Path) -> None:
    settings = "[tool.pytest.ini_options]\naddopts = '--color=yes -v'\n"
    case = make_case(tmp_path, {**FILES, "pyproject.toml": settings}, args=["--disable-plugin-autoload"])
    assert (await case.grade({"calc.py": FIXED})).status is Status.RESOLVED


# ------------------------------------------------------------------------------------------------------- C8 … C11: work


async def test_C8_a_process_left_behind_reaches_neither_work_nor_grading(case: Case) -> None:
    agent = case.sandbox()
    await agent.prepare()
    await agent.put_tree(case.prepared.visible, agent.workspace)
    late = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(2)\n    open('calc.py', 'w').write('late')\n"
    env = {"PATH": os.environ["PATH"]}
    await agent.exec(["python3", "-c", late], env=env, timeout_s=10)
    await agent.kill()
    work = capture(case.prepared.visible, agent.host_path(agent.workspace))
    found = await case.grade(work)
    time.sleep(2.2)
    assert capture(case.prepared.visible, agent.host_path(agent.workspace)).patch == b"" == work.patch
    assert found.status is Status.UNRESOLVED
    await agent.destroy()


async def test_C9_weakened_deleted_and_added_tests_neither_help_nor_hurt(tmp_path: Path) -> None:
    case = make_case(tmp_path, {**FILES, "tests/test_two.py": "def test_two():\n    assert True\n"})
    found = await case.grade(
        {
            "tests/test_calc.py": TESTS.replace("== 3", "is not None"),
            "tests/test_two.py": None,
            "tests/test_mine.py": "def test_mine():\n    assert False\n",
            "calc_test.py": "def test_other():\n    assert False\n",
        }
    )
    assert (found.status, found.checks) == (Status.UNRESOLVED, {ADD: "failed"})
    assert found.touched == ("calc_test.py", "tests/test_calc.py", "tests/test_mine.py", "tests/test_two.py")
    assert b"test_two.py::test_two" in found.report and b"test_mine" not in found.report.split(b'"touched"')[0]


@pytest.mark.parametrize("kind", ["link", "file"])
async def test_C9_the_test_folder_replaced_comes_back(case: Case, tmp_path: Path, kind: str) -> None:
    workspace = tmp_path / "agent"
    work = case.work({"tests/test_calc.py": None, "easy/test_calc.py": TESTS.replace("== 3", "is not None")})
    (workspace / "tests").rmdir()
    if kind == "link":
        (workspace / "tests").symlink_to("easy")
    else:
        (workspace / "tests").write_text("gone\n")
    work = capture(case.prepared.visible, workspace)
    found = await case.grade(work)
    assert (found.status, found.checks) == (Status.UNRESOLVED, {ADD: "failed"})
    assert "tests" in found.touched


async def test_C10_new_binary_linked_and_executable_files_take_part(tmp_path: Path) -> None:
    tests = TESTS + (
        "\n\ndef test_files():\n    import os, subprocess\n    from pathlib import Path\n    import calc\n"
        "    assert Path('data.bin').read_bytes() == bytes(range(256))\n"
        "    assert Path('alias').is_symlink() and Path('alias').read_bytes() == bytes(range(256))\n"
        "    assert os.access('tool.sh', os.X_OK)\n    assert Path('build/ignored.log').exists()\n"
        "    assert not Path('old.txt').exists()\n    assert Path('dos.txt').read_bytes() == b'a\\r\\nb\\r\\n'\n"
    )
    files = {
        **FILES,
        "tests/test_calc.py": tests,
        "old.txt": "old\n",
        ".gitignore": "build/\n",
        "tool.sh": "#!/bin/sh\n",
    }
    wanted = "tests/test_calc.py::test_files"
    case = make_case(tmp_path, files, fail_to_pass=[ADD, wanted])
    case.work(
        {
            "calc.py": "from helper import add\n\n\ndef mul(a, b):\n    return a * b\n",
            "helper.py": FIXED,
            "data.bin": bytes(range(256)),
            "build/ignored.log": "x\n",
            "old.txt": None,
            "dos.txt": b"a\r\nb\r\n",
        }
    )
    (tmp_path / "agent" / "alias").symlink_to("data.bin")
    (tmp_path / "agent" / "tool.sh").chmod(0o755)
    found = await case.grade(capture(case.prepared.visible, tmp_path / "agent"))
    assert found.status is Status.RESOLVED, found.log


async def test_C11_hidden_tests_win_over_edits_of_the_same_file(case: Case) -> None:
    hidden = case.without_hidden(
        {"tests/test_calc.py": TESTS.replace("def test_add():\n    assert add(1, 2) == 3\n", "")}
    )
    found = await hidden.grade({"calc.py": FIXED, "tests/test_calc.py": "# rewritten by the agent\n"})
    assert found.status is Status.RESOLVED
    assert found.touched == ("tests/test_calc.py",)


async def test_C11_work_that_does_not_fit_the_tree_is_an_error(case: Case) -> None:
    patch = case.work({"calc.py": FIXED}).patch.replace(b"-    return a - b", b"-    return a % b")
    sandbox = case.sandbox()
    await sandbox.prepare()
    with pytest.raises(GradeError, match="does not fit"):
        await grade(case.prepared, patch, sandbox)
    await sandbox.destroy()


# ------------------------------------------------------------------------------------------------------------ C12 … C15


async def test_C12_work_of_an_agent_that_was_killed_is_graded(case: Case) -> None:
    agent = case.sandbox()
    await agent.prepare()
    await agent.put_tree(case.prepared.visible, agent.workspace)
    await agent.put_file(f"{agent.workspace}/fixed.txt", FIXED.encode())
    command = ["python3", "-c", "import os, time\nos.replace('fixed.txt', 'calc.py')\ntime.sleep(60)"]
    ended = await agent.exec(command, env={"PATH": os.environ["PATH"]}, timeout_s=1.5)
    await agent.kill()
    assert ended.timed_out
    assert (
        await case.grade(capture(case.prepared.visible, agent.host_path(agent.workspace)))
    ).status is Status.RESOLVED
    await agent.destroy()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("fix(); done('turn_limit')", StopReason.TURN_LIMIT),
        ("fix(); done('gave_up')", StopReason.GAVE_UP),
        ("fix(); os.kill(os.getpid(), 11)", StopReason.CRASHED),
    ],
)
async def test_C12_work_left_at_a_limit_or_crash_is_graded(tmp_path: Path, script: str, reason: StopReason) -> None:
    receipt, _ = await make_laboratory(tmp_path, f"{HEAD}start(); {script}").attempt()
    assert (receipt.status, receipt.stop_reason) == (Status.RESOLVED, reason)


class Failing(LocalSandbox):
    """A sandbox whose command meets a fault of the machine."""

    fault: ExecResult | SandboxError

    async def exec(self, argv, **options):  # type: ignore[no-untyped-def]
        if isinstance(self.fault, SandboxError):
            raise self.fault
        return self.fault


ENDED = ExecResult(None, 9, b"", b"", truncated=False, timed_out=False, limit=None, oom=False, duration_s=1.0)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (replace(ENDED, oom=True, limit="memory"), "limit-memory"),
        (replace(ENDED, limit="disk"), "limit-disk"),
        (replace(ENDED, limit="pids"), "limit-pids"),
        (replace(ENDED, timed_out=True, limit="wall"), "limit-wall"),
        (replace(ENDED, truncated=True), "limit-output"),
        (ENDED, "no-report"),
        (replace(ENDED, exit_code=127, signal=None, stderr=b"python: not found"), "no-report"),
    ],
)
async def test_C13_faults_of_the_machine_are_never_a_grade(case: Case, fault: ExecResult, kind: str) -> None:
    found = await _grade_in(case, fault)
    assert (found.status, found.kind) == (Status.GRADING_ERROR, kind)


async def test_C13_a_lost_sandbox_is_raised_not_graded(case: Case) -> None:
    with pytest.raises(SandboxError, match="engine gone"):
        await _grade_in(case, SandboxError("engine gone"))


async def _grade_in(case: Case, fault: ExecResult | SandboxError) -> Grade:
    sandbox = Failing(case.sandbox().spec)  # type: ignore[attr-defined]
    sandbox.fault = fault
    await sandbox.prepare()
    try:
        return await grade(case.prepared, case.work({"calc.py": FIXED}).patch, sandbox)
    finally:
        await sandbox.destroy()


async def test_C13_a_damaged_cache_is_never_a_grade(case: Case) -> None:
    (case.prepared.defective / "tests" / "test_calc.py").write_text("def test_add():\n    pass\n")
    with pytest.raises(Exception, match="changed since it was made"):
        await case.grade({})


async def test_C14_code_under_test_runs_in_another_process(case: Case) -> None:
    found = await case.grade(
        {"calc.py": "import atexit, os\natexit.register(lambda: os.write(1, b'pid=%d;' % os.getpid()))\n" + FIXED}
    )
    pids = {int(part.partition(b";")[0]) for part in found.log.split(b"pid=")[1:]}
    assert pids and os.getpid() not in pids


def test_C14_grading_never_imports_or_executes_what_it_grades() -> None:
    for path in _sources():
        if "reporters" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                plain = node.func.id if isinstance(node.func, ast.Name) else ""
                method = getattr(node.func, "attr", "")
                assert plain not in {"exec", "eval", "__import__"}, path
                assert method not in {"import_module", "run_path", "run_module", "exec_module"}, path


LIES = {
    "finished, and did nothing": ("done('finished')", StopReason.FINISHED, Status.UNRESOLVED),
    "finished, with its own error flag": ("done('finished', error=True)", StopReason.CRASHED, Status.UNRESOLVED),
    "finished, then killed": ("done('finished'); os.kill(os.getpid(), 9)", StopReason.CRASHED, Status.UNRESOLVED),
    "finished, then exit code 1": ("done('finished'); sys.exit(1)", StopReason.CRASHED, Status.UNRESOLVED),
    "fixed, then an error": ("fix(); done('finished', error=True)", StopReason.CRASHED, Status.RESOLVED),
    "fixed, and says that it failed": ("fix(); done('crashed', error=True)", StopReason.CRASHED, Status.RESOLVED),
    "not a word": ("fix()", StopReason.CRASHED, Status.RESOLVED),
}


@pytest.mark.parametrize("name", LIES)
async def test_C15_the_agents_own_word_decides_nothing(tmp_path: Path, name: str) -> None:
    script, reason, status = LIES[name]
    receipt, _ = await make_laboratory(tmp_path, f"{HEAD}start(); {script}").attempt()
    assert (receipt.stop_reason, receipt.status) == (reason, status), receipt.reason


# --------------------------------------------------------------------------------------------------------- blindness


def _sources() -> list[Path]:
    return sorted(Path(inspect.getfile(pairtrial.grading)).parent.rglob("*.py"))


def test_C_grader_cannot_reach_the_arm() -> None:
    """By signature, by type and by source: nothing that is passed in names an arm, nothing that names one is read."""
    assert list(inspect.signature(grade).parameters) == ["prepared", "work_patch", "sandbox", "timeout_s"]
    assert list(inspect.signature(grade_from_report).parameters) == ["report", "task"]
    assert not {"arm", "cell", "provider", "plan"} & {item.name for item in fields(Prepared)}
    assert not {"arm", "cell", "label", "spec"} & set(Sandbox.__annotations__)
    reading = {"arm", "arms", "cell", "provider", "treatment", "spec", "facts", "label_of"}
    for path in _sources():
        if "qualify" in path.parts:
            continue  # it qualifies tasks before any plan is frozen: there are no arms yet
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pairtrial."):
                assert (node.module or "").split(".")[1] in {"core", "sandbox", "tasks", "grading"}, path
            words = {getattr(node, name, None) for name in ("id", "attr", "arg", "name")}
            assert not words & reading or "reporters" in path.parts, path
