"""Every framework as a small suite of our own that holds each state a test can have, for the tests of grading.

The expected words are those of the table in ``docs/grading.md``. One required test is broken until ``fixed`` is applied.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from grading_cases import Case as Prepared
from grading_cases import make_case, tool_environment
from parts import real_program

from pairtrial.grading.frameworks.meanings import Case

Modules = Callable[[str], Path]


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
PACKAGES = {"vitest": ["vitest@4.0.18"], "jest": ["jest@30.5.2"], "mocha": ["mocha@11.8.0", "chai@4.5.0"]}

BUILT_IN = {item.framework: item for item in (PYTEST, UNITTEST, NODE_TEST, GO_TEST, CARGO_TEST)}


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``modules("jest")``: a folder of packages with that runner, made once."""
    made: dict[str, Path] = {}

    def install(name: str) -> Path:
        if name not in made:
            root = tmp_path_factory.mktemp(f"npm-{name}")
            (root / "package.json").write_text(PACKAGE_JSON)
            command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *PACKAGES[name]]
            subprocess.run(command, cwd=root, check=True, capture_output=True)
            made[name] = root / "node_modules"
        return made[name]

    return install


def environment_of(example: Example, root: Path, modules: Modules) -> Path | None:
    """An environment with the programs and packages of an example; None where the one of these tests does."""
    if example.framework == "pytest":
        return None
    packages = modules(example.framework) if example.framework in INSTALLED else None
    return tool_environment(root / "environment", {name: real_program(name) for name in example.programs}, packages)
