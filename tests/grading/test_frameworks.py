"""Every framework on a small suite of our own that holds each state a test can have.

The expected words are those of the table in ``docs/grading.md``. One required test is broken until ``fix`` is applied.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from grading_cases import ADD, FILES, FIXED, make_case, tool_environment
from grading_cases import Case as Prepared
from parts import real_program

from pairtrial.core.status import Status
from pairtrial.grading.frameworks.base import COUNTS_AS_PASS, Outcome
from pairtrial.grading.frameworks.meanings import MEANINGS, Case, tables
from pairtrial.grading.observe import run_suite

pytestmark = pytest.mark.anyio
Require = Callable[..., None]


@dataclass(frozen=True)
class Example:
    """A suite, its fix, and what every test of it must give."""

    framework: str
    files: Mapping[str, str]
    source: str
    fail_to_pass: str
    expected: Mapping[str, Case]
    """What happens to every other id."""
    args: tuple[str, ...] = ()
    paths: tuple[str, ...] = ("tests",)
    programs: tuple[str, ...] = ()
    defect: tuple[str, str] = ("a - b", "a + b")
    syntax_error: str = "(((\n"
    plain: str = ""
    """An id that passes before and after."""
    fake: str = field(default="")
    """Code that prints a forged result when the source is loaded."""

    def case(self, root: Path, required: list[str], environment: Path | None) -> Prepared:
        return make_case(
            root,
            self.files,
            fail_to_pass=[self.fail_to_pass],
            pass_to_pass=required,
            args=self.args,
            paths=self.paths,
            framework=self.framework,
            defect_file=self.source,
            environment=environment,
        )

    @property
    def fixed(self) -> str:
        return self.files[self.source].replace(*self.defect)


UNITTEST = Example(
    framework="unittest",
    source="calc.py",
    files={
        "calc.py": "def add(a, b):\n    return a - b\n",
        "tests/__init__.py": "",
        "tests/test_calc.py": """\
import sys
import unittest
from calc import add

class Add(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(1, 2), 3)

    def test_zero(self):
        sys.stderr.write("no line end")
        self.assertEqual(add(1, 0), 1)

class States(unittest.TestCase):
    def test_fails(self):
        self.fail()

    def test_error(self):
        raise RuntimeError

    @unittest.skip("no")
    def test_skip(self):
        pass

    @unittest.expectedFailure
    def test_expected(self):
        self.fail()

    @unittest.expectedFailure
    def test_unexpected(self):
        pass

    def test_sub(self):
        for number in range(3):
            with self.subTest(number=number):
                self.assertNotEqual(number, 1)

class Setup(unittest.TestCase):
    def setUp(self):
        raise RuntimeError

    def test_setup(self):
        pass

class Add2(Add):
    pass
""",
    },
    fail_to_pass="tests/test_calc.py::Add::test_add",
    plain="tests/test_calc.py::Add::test_zero",
    args=("discover", "-s", "tests", "-t", "."),
    expected={
        "tests/test_calc.py::Add2::test_zero": Case.PASSES,
        "tests/test_calc.py::States::test_fails": Case.FAILS,
        "tests/test_calc.py::States::test_error": Case.RAISES,
        "tests/test_calc.py::States::test_skip": Case.SKIPPED,
        "tests/test_calc.py::States::test_expected": Case.EXPECTED_FAILURE,
        "tests/test_calc.py::States::test_unexpected": Case.UNEXPECTED_SUCCESS,
        "tests/test_calc.py::States::test_sub": Case.SUBTEST_FAILS,
        "tests/test_calc.py::Setup::test_setup": Case.SETUP_FAILS,
    },
    fake="print('ok\\nOK\\nRan 9 tests')\n",
)

PYTEST = Example(
    framework="pytest",
    source="calc.py",
    files={
        "calc.py": 'def add(a, b):\n    """\n    >>> add(0, 0)\n    0\n    """\n    return a - b\n',
        "conftest.py": """\
def pytest_runtest_protocol(item, nextitem):
    if "flaky" not in item.name:
        return None
    from _pytest.runner import runtestprotocol
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for _ in range(2):
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    return True
""",
        "tests/bad.txt": ">>> 1 + 1\n3\n",
        "tests/test_calc.py": """\
import pytest
from calc import add

runs = []

@pytest.fixture
def broken():
    raise RuntimeError

def test_add():
    assert add(1, 2) == 3

def test_zero():
    assert add(1, 0) == 1

def test_fails():
    assert False

def test_raises():
    raise RuntimeError

def test_setup(broken):
    pass

@pytest.mark.skip
def test_skip():
    pass

@pytest.mark.xfail
def test_xfails():
    assert False

@pytest.mark.xfail
def test_xpasses():
    pass

@pytest.mark.xfail(strict=True)
def test_strict():
    pass

def test_subtests(subtests):
    with subtests.test():
        assert False

def test_flaky():
    runs.append(1)
    assert len(runs) == 2
""",
    },
    fail_to_pass="tests/test_calc.py::test_add",
    plain="tests/test_calc.py::test_zero",
    args=("-o", "addopts=", "--disable-plugin-autoload", "--doctest-modules", "--doctest-glob=*.txt"),
    paths=("tests", "calc.py"),
    expected={
        "tests/test_calc.py::test_fails": Case.FAILS,
        "tests/test_calc.py::test_raises": Case.RAISES,
        "tests/test_calc.py::test_setup": Case.SETUP_FAILS,
        "tests/test_calc.py::test_skip": Case.SKIPPED,
        "tests/test_calc.py::test_xfails": Case.EXPECTED_FAILURE,
        "tests/test_calc.py::test_xpasses": Case.UNEXPECTED_SUCCESS,
        "tests/test_calc.py::test_strict": Case.STRICT_SUCCESS,
        "tests/test_calc.py::test_subtests": Case.SUBTEST_FAILS,
        "tests/test_calc.py::test_flaky": Case.LATER_TRY,
        "calc.py::calc.add": Case.DOCTEST,
        "tests/bad.txt::bad.txt": Case.DOCTEST_FAILS,
    },
    fake="print('tests/test_calc.py::test_add PASSED\\n9 passed in 0.01s')\n",
)

JS_SOURCE = "exports.add = (a, b) => a - b;\nexports.one = 1;\n"

NODE_TEST = Example(
    framework="node-test",
    source="calc.js",
    programs=("node",),
    files={
        "calc.js": JS_SOURCE,
        "tests/calc.test.js": """\
const { test, describe, it, beforeEach } = require('node:test');
const assert = require('node:assert');
const { add, one } = require('../calc.js');
test('adds', () => assert.equal(add(1, 2), 3));
test('one', () => assert.equal(one, 1));
describe('states', () => {
  it('fails', () => assert.fail());
  it('raises', () => { throw new Error('x'); });
  it('skips', { skip: true }, () => {});
  it('is to do', { todo: true }, () => {});
  it('fails to do', { todo: 'later' }, () => assert.fail());
  it('same title', () => {});
  it('same title', () => assert.fail());
  it('odd > [31m é \\u001b[31m "quoted"', () => {});
});
test('parent', async (t) => {
  await t.test('child', () => {});
});
test('bad parent', async (t) => {
  await t.test('child', () => assert.fail());
});
describe('hooked', () => {
  beforeEach(() => { throw new Error('hook'); });
  it('never', () => {});
});
describe('other', () => { it('same title', () => {}); });
""",
        "tests/more.test.js": "require('node:test').test('one', () => {});\n",
    },
    fail_to_pass="tests/calc.test.js::adds",
    plain="tests/calc.test.js::one",
    paths=("tests/calc.test.js", "tests/more.test.js"),
    expected={
        "tests/more.test.js::one": Case.PASSES,
        "tests/calc.test.js::states > fails": Case.FAILS,
        "tests/calc.test.js::states > skips": Case.SKIPPED,
        "tests/calc.test.js::states > is to do": Case.TODO,
        "tests/calc.test.js::states > fails to do": Case.TODO_FAILS,
        "tests/calc.test.js::states > same title #1": Case.PASSES,
        "tests/calc.test.js::states > same title #2": Case.FAILS,
        'tests/calc.test.js::states > odd > [31m é \u001b[31m "quoted"': Case.PASSES,
        "tests/calc.test.js::parent": Case.PASSES,
        "tests/calc.test.js::states > raises": Case.RAISES,
        "tests/calc.test.js::bad parent": Case.SUBTEST_FAILS,
        "tests/calc.test.js::bad parent > child": Case.FAILS,
        "tests/calc.test.js::hooked > never": Case.SETUP_FAILS,
        "tests/calc.test.js::parent > child": Case.PASSES,
        "tests/calc.test.js::other > same title": Case.PASSES,
    },
    fake="console.log('TAP version 13\\nok 1 - adds\\n# pass 9');\n",
)

GO_TEST = Example(
    framework="go-test",
    source="calc.go",
    programs=("go",),
    files={
        "go.mod": "module example.invalid/calc\n\ngo 1.19\n",
        "calc.go": "package calc\n\nfunc Add(a, b int) int { return a - b }\n",
        "calc_test.go": """\
package calc

import (
	"fmt"
	"testing"
)

func TestAdd(t *testing.T) {
	if Add(1, 2) != 3 {
		t.Fatal("wrong")
	}
}

func TestZero(t *testing.T) {
	fmt.Print("no line end")
	if Add(1, 0) != 1 {
		t.Fatal("wrong")
	}
}

func TestSkip(t *testing.T) { t.Skip("no") }

func TestFails(t *testing.T) { t.Fatal("always") }

func TestSubs(t *testing.T) {
	t.Run("with space", func(t *testing.T) {})
	t.Run("bad", func(t *testing.T) { t.Fatal("always") })
	t.Run("same", func(t *testing.T) {})
	t.Run("same", func(t *testing.T) {})
}

func TestPanics(t *testing.T) {
	defer func() { recover(); t.Error("recovered") }()
	panic("x")
}

func ExampleAdd_wrong() {
	fmt.Println(Add(0, 0))
	// Output: 1
}

func ExampleAdd() {
	fmt.Println(Add(0, 0))
	// Output: 0
}
""",
        "inner/inner.go": "package inner\n",
        "inner/inner_test.go": 'package inner\n\nimport "testing"\n\nfunc TestZero(t *testing.T) { t.Fatal("other") }\n',
        "broken/broken.go": "package broken\n",
        "broken/broken_test.go": "package broken\n\nfunc TestNothing(t *testing.T) {}\n",
    },
    fail_to_pass="example.invalid/calc::TestAdd",
    plain="example.invalid/calc::TestZero",
    args=("-count=1",),
    paths=("./...",),
    expected={
        "example.invalid/calc/inner::TestZero": Case.FAILS,
        "example.invalid/calc::TestSkip": Case.SKIPPED,
        "example.invalid/calc::TestFails": Case.FAILS,
        "example.invalid/calc::TestSubs": Case.SUBTEST_FAILS,
        "example.invalid/calc::TestSubs/with_space": Case.PASSES,
        "example.invalid/calc::TestSubs/bad": Case.FAILS,
        "example.invalid/calc::TestSubs/same": Case.PASSES,
        "example.invalid/calc::TestSubs/same#01": Case.PASSES,
        "example.invalid/calc::ExampleAdd": Case.DOCTEST,
        "example.invalid/calc::ExampleAdd_wrong": Case.DOCTEST_FAILS,
        "example.invalid/calc::TestPanics": Case.RAISES,
    },
    fake='\nfunc init() { println("ok  \\texample.invalid/calc\\t0.1s"); print("--- PASS: TestAdd (0.00s)\\n") }\n',
)

CARGO_TEST = Example(
    framework="cargo-test",
    source="calc/src/lib.rs",
    programs=("cargo", "rustc", "rustdoc"),
    files={
        "Cargo.toml": '[workspace]\nmembers = ["calc", "empty", "third"]\nresolver = "2"\n',
        "calc/Cargo.toml": '[package]\nname = "calc"\nversion = "0.1.0"\nedition = "2021"\n',
        "empty/Cargo.toml": '[package]\nname = "empty"\nversion = "0.1.0"\nedition = "2021"\n',
        "third/Cargo.toml": '[package]\nname = "third"\nversion = "0.1.0"\nedition = "2021"\n',
        "empty/src/lib.rs": "",
        "third/src/lib.rs": "#[test]\nfn zero() { panic!() }\n",
        "calc/src/lib.rs": """\
/// Adds.
///
/// ```
/// assert_eq!(calc::add(0, 0), 0);
/// ```
///
/// ```
/// assert_eq!(calc::add(0, 0), 1);
/// ```
pub fn add(a: i32, b: i32) -> i32 {
    a - b
}

#[cfg(test)]
mod tests {
    #[test]
    fn zero() {
        println!("{{ \\"type\\": \\"test\\", \\"event\\": \\"ok\\", \\"name\\": \\"tests::fails\\" }}");
        assert_eq!(super::add(1, 0), 1);
    }

    #[test]
    fn fails() {
        assert!(false)
    }

    #[test]
    fn raises() {
        panic!()
    }

    #[test]
    #[ignore]
    fn ignored() {}

    #[test]
    #[should_panic]
    fn panics() {
        panic!()
    }

    #[test]
    #[should_panic]
    fn does_not_panic() {}
}
""",
        "calc/tests/adding.rs": "#[test]\nfn add() { assert_eq!(calc::add(1, 2), 3); }\n\n#[test]\nfn zero() {}\n",
    },
    fail_to_pass="calc test:adding::add",
    plain="calc test:adding::zero",
    args=("--offline", "--workspace"),
    paths=("calc/tests",),
    expected={
        "calc lib:calc::tests::zero": Case.PASSES,
        "calc lib:calc::tests::fails": Case.FAILS,
        "calc lib:calc::tests::raises": Case.RAISES,
        "calc lib:calc::tests::ignored": Case.SKIPPED,
        "calc lib:calc::tests::panics": Case.PANICS_AS_IT_SHOULD,
        "calc lib:calc::tests::does_not_panic": Case.DOES_NOT_PANIC,
        "calc doc::calc/src/lib.rs - add #1": Case.DOCTEST,
        "calc doc::calc/src/lib.rs - add #2": Case.DOCTEST_FAILS,
        "third lib:third::zero": Case.FAILS,
    },
    fake='\n#[test]\nfn shout() { println!("test result: ok. 9 passed; 0 failed"); }\n',
)

PACKAGE_JSON = '{"name": "calc", "version": "1.0.0", "private": true}\n'
ESM_SOURCE = "export const add = (a, b) => a - b;\nexport const one = 1;\n"

VITEST = Example(
    framework="vitest",
    source="calc.ts",
    programs=("node",),
    files={
        "package.json": '{"name": "calc", "version": "1.0.0", "private": true, "type": "module"}\n',
        "calc.ts": ESM_SOURCE.replace("(a, b)", "(a: number, b: number): number"),
        "tests/calc.test.ts": """\
import { test, describe, it, expect, beforeEach } from 'vitest';
import { add, one } from '../calc';
test('adds', () => expect(add(1, 2)).toBe(3));
test('one', () => expect(one).toBe(1));
describe('states', () => {
  it('fails', () => expect(1).toBe(2));
  it('raises', () => { throw new Error('x'); });
  it.skip('skips', () => {});
  it.todo('is to do');
  it.fails('fails as expected', () => expect(1).toBe(2));
  it.fails('passes against expectation', () => {});
  it('flaky', { retry: 2 }, () => { globalThis.n = (globalThis.n ?? 0) + 1; expect(globalThis.n).toBe(2); });
  it('same title', () => {});
  it('same title', () => expect(1).toBe(2));
  it.each([[1, 1], [2, 3]])('each %i is %i', (a, b) => expect(a).toBe(b));
});
describe('hooked', () => {
  beforeEach(() => { throw new Error('hook'); });
  it('never', () => {});
});
""",
        "tests/more.test.ts": "import { test } from 'vitest';\ntest('one', () => {});\n",
    },
    fail_to_pass="tests/calc.test.ts::adds",
    plain="tests/calc.test.ts::one",
    expected={
        "tests/more.test.ts::one": Case.PASSES,
        "tests/calc.test.ts::states > fails": Case.FAILS,
        "tests/calc.test.ts::states > skips": Case.SKIPPED,
        "tests/calc.test.ts::states > is to do": Case.TODO,
        "tests/calc.test.ts::states > fails as expected": Case.EXPECTED_FAILURE,
        "tests/calc.test.ts::states > passes against expectation": Case.UNEXPECTED_SUCCESS,
        "tests/calc.test.ts::states > flaky": Case.LATER_TRY,
        "tests/calc.test.ts::states > same title #1": Case.PASSES,
        "tests/calc.test.ts::states > same title #2": Case.FAILS,
        "tests/calc.test.ts::states > each 1 is 1": Case.PASSES,
        "tests/calc.test.ts::states > raises": Case.RAISES,
        "tests/calc.test.ts::hooked > never": Case.SETUP_FAILS,
        "tests/calc.test.ts::states > each 2 is 3": Case.FAILS,
    },
    fake="console.log('Tests  9 passed (9)');\n",
)

JEST = Example(
    framework="jest",
    source="calc.js",
    programs=("node",),
    files={
        "package.json": PACKAGE_JSON,
        "calc.js": JS_SOURCE,
        "tests/calc.test.js": """\
const { add, one } = require('../calc.js');
test('adds', () => expect(add(1, 2)).toBe(3));
test('one', () => expect(one).toBe(1));
describe('states', () => {
  it('fails', () => expect(1).toBe(2));
  it('raises', () => { throw new Error('x'); });
  it.skip('skips', () => {});
  it.todo('is to do');
  it.failing('fails as expected', () => expect(1).toBe(2));
  it.failing('passes against expectation', () => {});
  it('same title', () => {});
  it('same title', () => expect(1).toBe(2));
  it('slow one has no second name', async () => { await new Promise((done) => setTimeout(done, 400)); });
  it.each([[1, 1], [2, 3]])('each %i is %i', (a, b) => expect(a).toBe(b));
});
describe('hooked', () => {
  beforeEach(() => { throw new Error('hook'); });
  it('never', () => {});
});
describe('flaky', () => {
  jest.retryTimes(2);
  let runs = 0;
  it('second time', () => { runs += 1; expect(runs).toBe(2); });
});
""",
        "tests/more.test.js": "test('one', () => {});\n",
    },
    fail_to_pass="tests/calc.test.js::adds",
    plain="tests/calc.test.js::one",
    expected={
        "tests/more.test.js::one": Case.PASSES,
        "tests/calc.test.js::states > fails": Case.FAILS,
        "tests/calc.test.js::states > skips": Case.SKIPPED,
        "tests/calc.test.js::states > is to do": Case.TODO,
        "tests/calc.test.js::states > fails as expected": Case.EXPECTED_FAILURE,
        "tests/calc.test.js::states > passes against expectation": Case.UNEXPECTED_SUCCESS,
        "tests/calc.test.js::states > same title #1": Case.PASSES,
        "tests/calc.test.js::states > same title #2": Case.FAILS,
        "tests/calc.test.js::states > slow one has no second name": Case.PASSES,
        "tests/calc.test.js::states > each 1 is 1": Case.PASSES,
        "tests/calc.test.js::states > raises": Case.RAISES,
        "tests/calc.test.js::hooked > never": Case.SETUP_FAILS,
        "tests/calc.test.js::states > each 2 is 3": Case.FAILS,
        "tests/calc.test.js::flaky > second time": Case.LATER_TRY,
    },
    fake="console.log('Tests: 9 passed, 9 total');\n",
)

MOCHA = Example(
    framework="mocha",
    source="calc.js",
    programs=("node",),
    files={
        "package.json": PACKAGE_JSON,
        "calc.js": JS_SOURCE,
        "tests/calc.test.js": """\
const assert = require('node:assert');
const { add, one } = require('../calc.js');
it('adds', () => assert.equal(add(1, 2), 3));
it('one', () => assert.equal(one, 1));
describe('states', () => {
  it('fails', () => assert.fail());
  it('raises', () => { throw new Error('x'); });
  it.skip('skips', () => {});
  it('is to do');
  it('same title', () => {});
  it('same title', () => assert.fail());
});
describe('hooks', () => {
  before(() => { throw new Error('hook'); });
  it('never runs', () => {});
});
describe('flaky', () => {
  let runs = 0;
  it('second time', function () { this.retries(2); runs += 1; assert.equal(runs, 2); });
});
""",
        "tests/more.test.js": "it('one', () => {});\n",
    },
    fail_to_pass="tests/calc.test.js::adds",
    plain="tests/calc.test.js::one",
    expected={
        "tests/more.test.js::one": Case.PASSES,
        "tests/calc.test.js::states > fails": Case.FAILS,
        "tests/calc.test.js::states > skips": Case.SKIPPED,
        "tests/calc.test.js::states > is to do": Case.TODO,
        "tests/calc.test.js::states > same title #1": Case.PASSES,
        "tests/calc.test.js::states > same title #2": Case.FAILS,
        "tests/calc.test.js::flaky > second time": Case.LATER_TRY,
        "tests/calc.test.js::states > raises": Case.RAISES,
    },
    fake="console.log('  9 passing (3ms)');\n",
)

INSTALLED = {item.framework: item for item in (VITEST, JEST, MOCHA)}
PACKAGES = {"vitest": "vitest@4.0.18", "jest": "jest@30.5.2", "mocha": "mocha@11.8.0"}

BUILT_IN = {item.framework: item for item in (PYTEST, UNITTEST, NODE_TEST, GO_TEST, CARGO_TEST)}


PARAMETERS = [
    *sorted(BUILT_IN),
    *(pytest.param(name, marks=[pytest.mark.registry, pytest.mark.timeout(300)]) for name in sorted(INSTALLED)),
]


@pytest.fixture(params=PARAMETERS)
def example(request: pytest.FixtureRequest, require: Require) -> Example:
    found = {**BUILT_IN, **INSTALLED}[request.param]
    for name in found.programs[:1]:
        require(name)
    return found


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``modules("jest")``: a folder of packages with that runner, installed once."""
    made: dict[str, Path] = {}

    def install(name: str) -> Path:
        if name not in made:
            root = tmp_path_factory.mktemp(f"npm-{name}")
            (root / "package.json").write_text(PACKAGE_JSON)
            command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", PACKAGES[name]]
            subprocess.run(command, cwd=root, check=True, capture_output=True)
            made[name] = root / "node_modules"
        return made[name]

    return install


@pytest.fixture
def environment(example: Example, tmp_path: Path, modules: Callable[[str], Path]) -> Path | None:
    programs = {name: real_program(name) for name in example.programs}
    packages = modules(example.framework) if example.framework in INSTALLED else None
    if example.framework == "pytest":
        return None
    return tool_environment(tmp_path / "environment", programs, packages)


async def test_states_have_one_meaning_each(example: Example, tmp_path: Path, environment: Path | None) -> None:
    case = example.case(tmp_path, [example.plain, *example.expected], environment)
    found = await case.grade({example.source: example.fixed}, timeout_s=110)
    meaning = MEANINGS[example.framework]
    expected = {name: meaning[happened] for name, happened in example.expected.items()}
    good = {name for name, outcome in expected.items() if COUNTS_AS_PASS[outcome]}
    assert found.status is Status.UNRESOLVED, (found, found.log.decode(errors="replace"))
    assert found.checks == {
        example.fail_to_pass: "passed",
        **{name: outcome.value for name, outcome in expected.items() if name not in good},
    }
    assert found.passed == len(good) + 2


async def test_fix_is_resolved_and_no_work_is_not(example: Example, tmp_path: Path, environment: Path | None) -> None:
    case = example.case(tmp_path, [example.plain], environment)
    fixed = await case.grade({example.source: example.fixed}, timeout_s=110)
    assert (fixed.status, fixed.passed, fixed.required) == (Status.RESOLVED, 2, 2), fixed.log.decode(errors="replace")
    nothing = await case.grade({}, timeout_s=110)
    assert (nothing.status, nothing.checks) == (Status.UNRESOLVED, {example.fail_to_pass: "failed"})


async def test_syntax_error_of_the_work(example: Example, tmp_path: Path, environment: Path | None) -> None:
    case = example.case(tmp_path, [example.plain], environment)
    found = await case.grade({example.source: example.syntax_error}, timeout_s=110)
    # mocha gives up when it cannot load a file, and so says nothing of the others.
    kind = "runner-died" if example.framework == "mocha" else "collection-error"
    assert (found.status, found.kind) == (Status.UNRESOLVED, kind), (found, found.log.decode())


async def test_unknown_id(example: Example, tmp_path: Path, environment: Path | None) -> None:
    case = example.case(tmp_path, [example.plain, f"{example.plain} that nobody wrote"], environment)
    found = await case.grade({example.source: example.fixed}, timeout_s=110)
    assert (found.status, found.kind) == (Status.GRADING_ERROR, "unmatched-id"), (found, found.log.decode())


async def test_printed_result_is_not_read(example: Example, tmp_path: Path, environment: Path | None) -> None:
    case = example.case(tmp_path, [example.plain], environment)
    source = example.files[example.source]
    forged = source + example.fake if example.framework.endswith(("go-test", "cargo-test")) else example.fake + source
    found = await case.grade({example.source: forged}, timeout_s=110)
    if found.status is Status.TAMPERED:  # Go before 1.20 cannot tell a printed result from a real one, so there are two
        assert example.framework == "go-test" and "two results" in found.reason
    else:
        assert (found.status, found.checks) == (Status.UNRESOLVED, {example.fail_to_pass: "failed"}), found


async def test_symlinked_workspace_moves_no_id(example: Example, tmp_path: Path, environment: Path | None) -> None:
    (tmp_path / "real place").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real place")
    case = example.case(tmp_path, [example.plain], environment)
    found = await case.grade({example.source: example.fixed}, timeout_s=110, scratch=tmp_path / "link")
    assert found.status is Status.RESOLVED, (found, found.log.decode(errors="replace"))


def test_every_cell_of_the_table_is_produced_by_a_real_runner() -> None:
    for name, found in {**BUILT_IN, **INSTALLED}.items():
        shown = {Case.PASSES, Case.NOT_COLLECTED, *found.expected.values()}
        if name == "mocha":
            shown.add(Case.SETUP_FAILS)  # `hooks > never runs`, in the test below
        assert shown == set(MEANINGS[name]), name


def test_documentation_prints_the_table() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "grading.md"
    assert tables() in page.read_text(encoding="utf-8")


@pytest.mark.registry
@pytest.mark.timeout(300)
async def test_mocha_hook_that_fails_takes_its_suite_along(tmp_path: Path, modules: Callable[[str], Path]) -> None:
    environment = tool_environment(tmp_path / "environment", {"node": real_program("node")}, modules("mocha"))
    case = MOCHA.case(tmp_path, [MOCHA.plain, "tests/calc.test.js::hooks > never runs"], environment)
    found = await case.grade({MOCHA.source: MOCHA.fixed}, timeout_s=110)
    assert (found.status, found.kind) == (Status.GRADING_ERROR, "collection-error")
    assert "1 required tests could not be collected" in found.reason


CRASHES = {
    "go-test": (GO_TEST, "\nfunc init() { panic(1) }\n"),
    "cargo-test": (CARGO_TEST, "\n#[test]\nfn abort() { std::process::abort() }\n"),
    "node-test": (NODE_TEST, "\nprocess.exit(0);\n"),
    "unittest": (UNITTEST, "\nimport os\nos._exit(3)\n"),
}


@pytest.mark.parametrize("name", sorted(CRASHES))
async def test_work_that_ends_the_process_of_the_tests_fails(name: str, tmp_path: Path, require: Require) -> None:
    example, crash = CRASHES[name]
    for part in example.programs[:1]:
        require(part)
    environment = tool_environment(tmp_path / "environment", {part: real_program(part) for part in example.programs})
    required = [example.plain, *(item for item, what in example.expected.items() if what is Case.PASSES)]
    case = example.case(tmp_path, required, environment)
    found = await case.grade({example.source: example.fixed + crash}, timeout_s=110)
    assert found.status is Status.UNRESOLVED, (found, found.log.decode(errors="replace"))
    assert "without the work the suite runs well" in found.reason


@pytest.mark.slow
async def test_twenty_thousand_tests_in_bounded_memory(tmp_path: Path) -> None:
    body = "import pytest\n\n\n@pytest.mark.parametrize('n', range(20_000))\ndef test_n(n):\n    assert n != 19_999\n"
    ids = [f"tests/test_many.py::test_n[{number}]" for number in range(20_000)]
    case = make_case(tmp_path, {**FILES, "tests/test_many.py": body}, pass_to_pass=ids)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = await case.grade({"calc.py": FIXED}, timeout_s=110)
    assert (found.status, found.passed, found.required) == (Status.UNRESOLVED, 20_000, 20_001)
    assert found.checks == {ADD: "passed", ids[-1]: "failed"}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000  # KiB


async def test_pytest_ids_are_those_of_pytest_whatever_is_in_them(tmp_path: Path) -> None:
    """Oracle: what pytest itself calls its items, written to a file by the target's conftest."""
    chance = random.Random(5)
    alphabet = "ab 1[]:/\\'\"\n\t\x00\x1b\x7fé日\U0001f600%-_+=,;#@!{}()<>|~`^&*?$."
    values = ["".join(chance.choices(alphabet, k=chance.randint(0, 12))) for _ in range(150)]
    listing = tmp_path / "ids.json"
    conftest = (
        "import json\n\ndef pytest_collection_finish(session):\n    ids = [item.nodeid for item in session.items]\n"
    )
    conftest += f"    open({str(listing)!r}, 'w').write(json.dumps(ids))\n"
    body = f"import pytest\n\n\n@pytest.mark.parametrize('v', {values!r})\ndef test_odd(v):\n    assert len(v) < 12\n"
    case = make_case(tmp_path, {**FILES, "conftest.py": conftest, "tests/test_odd.py": body})
    sandbox = case.sandbox()
    await sandbox.prepare()
    seen = await run_suite(case.prepared, b"", sandbox, timeout_s=60, label="work")
    await sandbox.destroy()
    theirs = json.loads(listing.read_text())
    assert [name for name, _ in seen.run.tests] == theirs
    odd = {name: outcome for name, outcome in seen.run.tests if "test_odd[" in name}
    assert len(odd) == len(values)
    assert [outcome is Outcome.PASSED for outcome in odd.values()] == [len(value) < 12 for value in values]
