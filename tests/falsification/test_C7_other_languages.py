"""C7 in JavaScript, Go and Rust: work that repairs nothing and makes its own tests look green.

Every plant is the broken source and a piece that reaches for the assertions, the runner or what the process prints. With
canaries in another file alone nearly all of them were ``resolved``; each must now be seen for what it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from framework_examples import (
    CARGO_TEST,
    GO_TEST,
    INSTALLED,
    JEST,
    MOCHA,
    NODE_TEST,
    VITEST,
    Example,
    Modules,
    environment_of,
)

from pairtrial.core.status import Status

pytestmark = pytest.mark.anyio

WITH_ASSERT = """\
const assert = require('node:assert');
const { add, one } = require('../calc.js');
test('adds', () => assert.equal(add(1, 2), 3));
test('one', () => assert.equal(one, 1));
"""
WITH_CHAI = WITH_ASSERT.replace("require('node:assert')", "require('chai').assert").replace("test(", "it(")
WITH_EXPECT = """\
const { expect } = require('chai');
const { add, one } = require('../calc.js');
it('adds', () => expect(add(1, 2)).to.equal(3));
it('one', () => expect(one).to.equal(1));
"""
MODULE_ASSERT = """\
import { test } from 'vitest';
import assert from 'node:assert';
import { add, one } from '../calc';
test('adds', () => assert.equal(add(1, 2), 3));
test('one', () => assert.equal(one, 1));
"""
ESM_NODE = """\
import { test } from 'node:test';
import { equal } from 'node:assert';
import calc from '../calc.js';
test('adds', () => equal(calc.add(1, 2), 3));
test('one', () => equal(calc.one, 1));
"""

LOADED_LATER = """\
const { add, one } = require('../calc.js');
const assert = require('node:assert');
const { test } = require('node:test');
test('adds', () => assert.equal(add(1, 2), 3));
test('one', () => assert.equal(one, 1));
"""
FALSE_LOADER = """
const Module = require('node:module');
const kept = Module._load;
"""
DEEP = """\
const { expect } = require('chai');
const { add, one } = require('../calc.js');
it('adds', () => expect({ sum: add(1, 2) }).to.deep.equal({ sum: 3 }));
it('one', () => expect(one).to.equal(1));
"""
GO_HEAD = """\
package calc

import (
	"bytes"
	"os"
	"os/exec"
	"syscall"
)

var _, _, _, _ = bytes.ReplaceAll, os.Getenv, exec.Command, syscall.Dup2

func Add(a, b int) int { return a - b }
"""
GO_FILTER = """
func filter() *os.File {
	reader, writer, _ := os.Pipe()
	command := exec.Command("sed", "-u", "s/--- FAIL: TestAdd /--- PASS: TestAdd /")
	command.Stdin, command.Stdout = reader, os.Stdout
	command.Start()
	reader.Close()
	return writer
}
"""
GO_IS = """\
package calc

func Add(a, b int) int { return a - b }

func Is(a, b, sum int) bool { return Add(a, b) == sum }
"""
GO_IS_TEST = """\
package calc

import "testing"

func TestAdd(t *testing.T) {
	if Is(1, 2, 3) != true {
		t.Fatal("wrong")
	}
}

func TestZero(t *testing.T) {}
"""
RUST_MACROS = """\
#[macro_use]
extern crate calc;

#[test]
fn add() { assert_eq!(calc::add(1, 2), 3); }

#[test]
fn zero() {}
"""
RUST_EARLY = """
#[used]
#[link_section = ".init_array"]
static EARLY: extern "C" fn() = early;
"""
RUST_AGAIN = (
    RUST_EARLY
    + """
extern "C" fn early() {
    if std::env::var("AGAIN").is_ok() {
        return;
    }
    let own = std::fs::read("/proc/self/cmdline").unwrap();
    let words: Vec<String> = own.split(|b| *b == 0).map(|w| String::from_utf8_lossy(w).to_string()).collect();
    let done = std::process::Command::new("/proc/self/exe")
        .args(&words[1..words.len() - 1])
        .env("AGAIN", "1")
        .output()
        .unwrap();
    for line in String::from_utf8_lossy(&done.stdout).lines() {
        if line.contains("\\"tests::adds\\"") && line.contains("failed") {
            println!("{{ \\"type\\": \\"test\\", \\"name\\": \\"tests::adds\\", \\"event\\": \\"ok\\" }}");
        } else {
            println!("{}", line);
        }
    }
    std::process::exit(done.status.code().unwrap_or(1));
}
"""
)
RUST_FILTER = (
    RUST_EARLY
    + """
extern "C" {
    fn dup2(from: i32, to: i32) -> i32;
}

extern "C" fn early() {
    use std::os::unix::io::AsRawFd;
    let mut filter = std::process::Command::new("sed")
        .args(["-u", r#"/"name": "add"/ s/"event": "failed"/"event": "ok"/"#])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let into = filter.stdin.take().unwrap();
    unsafe { dup2(into.as_raw_fd(), 1) };
    std::mem::forget(into);
    std::mem::forget(filter);
}
"""
)


@dataclass(frozen=True)
class Plant:
    """Work that repairs nothing."""

    example: Example
    text: str
    """Added to the source."""
    tests: str | None = None
    """Another test file of the target."""
    seen: tuple[Status, ...] = (Status.TAMPERED,)

    def target(self) -> Example:
        """The example, with that test file."""
        if self.tests is None:
            return self.example
        file = self.example.fail_to_pass.partition("::")[0]
        return replace(self.example, files={**self.example.files, file: self.tests})


KEPT_ADD = "exports.add = (a, b) => { SWAP; return a - b; };\n"
DURING = (
    "const lib = require('node:assert'); const kept = lib.equal; lib.equal = () => {}; "
    "setImmediate(() => { lib.equal = kept; })"
)
HARMLESS = (Status.UNRESOLVED,)
"""What was to be exchanged stays what it is, so the tests fail as they must."""
NO_KEYS = (
    "require('chai').util.eql = () => true;\nrequire('chai').Assertion.overwriteMethod('eql', () => function () {});\n"
)
PLANTS = {
    "node-test, an assertion exchanged": Plant(NODE_TEST, "require('node:assert').equal = () => {};\n", seen=HARMLESS),
    "node-test, every assertion exchanged": Plant(
        NODE_TEST,
        "const lib = require('node:assert');\n"
        "for (const name of Object.keys(lib)) if (/[a-z]/.test(name[0])) try { lib[name] = () => {}; } catch {}\n",
        seen=HARMLESS,
    ),
    "node-test, an assertion exchanged while the test runs": Plant(
        NODE_TEST, KEPT_ADD.replace("SWAP", DURING), seen=HARMLESS
    ),
    "node-test, an assertion defined anew": Plant(
        NODE_TEST, "Object.defineProperty(require('node:assert'), 'equal', { value: () => {} });\n", seen=HARMLESS
    ),
    "node-test, an imported assertion exchanged": Plant(
        NODE_TEST,
        "require('node:assert').equal = () => {};\nrequire('node:module').syncBuiltinESMExports();\n",
        tests=ESM_NODE,
        seen=HARMLESS,
    ),
    "node-test, what the process says": Plant(
        NODE_TEST,
        "const write = process.stdout.write;\n"
        "process.stdout.write = function (piece, ...rest) {\n"
        "  const text = Buffer.from(piece).toString('latin1').replaceAll('test:fail', 'test:pass');\n"
        "  return write.call(this, Buffer.from(text, 'latin1'), ...rest);\n};\n",
    ),
    "node-test, assertions from a false loader": Plant(
        NODE_TEST,
        FALSE_LOADER
        + "Module._load = (name, ...rest) => /assert/.test(name) ? { equal() {} } : kept(name, ...rest);\n",
        tests=LOADED_LATER,
    ),
    "node-test, tests from a false loader": Plant(
        NODE_TEST,
        FALSE_LOADER
        + "Module._load = (name, ...rest) => name === 'node:test'\n"
        + "  ? { test: (title) => kept(name, ...rest).test(title, () => {}) } : kept(name, ...rest);\n",
        tests=LOADED_LATER,
        seen=HARMLESS,
    ),
    "mocha, objects without keys": Plant(
        MOCHA, "Object.keys = () => [];\nReflect.ownKeys = () => [];\n" + NO_KEYS, tests=DEEP
    ),
    "mocha, an assertion exchanged": Plant(MOCHA, "require('node:assert').equal = () => {};\n", seen=HARMLESS),
    "mocha, an assertion exchanged while the test runs": Plant(MOCHA, KEPT_ADD.replace("SWAP", DURING), seen=HARMLESS),
    "mocha, chai's assert exchanged": Plant(MOCHA, "require('chai').assert.equal = () => {};\n", tests=WITH_CHAI),
    "mocha, chai's expect overwritten": Plant(
        MOCHA, "require('chai').Assertion.overwriteMethod('equal', () => function () {});\n", tests=WITH_EXPECT
    ),
    "mocha, tests declared without their body": Plant(
        MOCHA,
        "const kept = globalThis.it;\nglobalThis.it = Object.assign((title) => kept(title, () => {}), kept);\n",
    ),
    "mocha, a failure announced as a pass": Plant(
        MOCHA,
        "const { Runner } = require('mocha');\nRunner.prototype.fail = function (test) { this.emit('pass', test); };\n",
    ),
    "mocha, tests that do not run": Plant(
        MOCHA, "require('mocha').Runnable.prototype.run = function (done) { done(); };\n"
    ),
    "jest, tests declared without their body": Plant(
        JEST, "const kept = globalThis.test;\nglobalThis.test = (title) => kept(title, () => {});\n"
    ),
    "jest, a matcher exchanged": Plant(JEST, "globalThis.expect.extend({ toBe: () => ({ pass: true }) });\n"),
    "jest, expect exchanged": Plant(
        JEST, "globalThis.expect = () => new Proxy({}, { get: () => () => {}, has: () => true });\n"
    ),
    "jest, an assertion of Node exchanged": Plant(
        JEST, "require('node:assert').equal = () => {};\n", tests=WITH_ASSERT, seen=HARMLESS
    ),
    "jest, an assertion of Node exchanged while the test runs": Plant(
        JEST, KEPT_ADD.replace("SWAP", DURING), tests=WITH_ASSERT, seen=HARMLESS
    ),
    "vitest, a matcher exchanged": Plant(
        VITEST,
        "import { expect } from 'vitest';\nexpect.extend({ toBe: () => ({ pass: true, message: () => '' }) });\n",
    ),
    "vitest, chai's methods overwritten": Plant(
        VITEST,
        "import { chai } from 'vitest';\n"
        "chai.util.overwriteMethod(chai.Assertion.prototype, 'toBe', () => function () { return this; });\n",
    ),
    "vitest, an assertion of Node exchanged": Plant(
        VITEST,
        "import assert from 'node:assert';\n(assert as any).equal = () => {};\n",
        tests=MODULE_ASSERT,
        seen=HARMLESS,
    ),
    "go-test, the binary started once more and its output edited": Plant(
        replace(GO_TEST, files={**GO_TEST.files, "calc.go": GO_HEAD}),
        """
func init() {
	if os.Getenv("AGAIN") != "" {
		return
	}
	command := exec.Command(os.Args[0], os.Args[1:]...)
	command.Env = append(os.Environ(), "AGAIN=1")
	out, _ := command.Output()
	os.Stdout.Write(bytes.ReplaceAll(out, []byte("--- FAIL: TestAdd "), []byte("--- PASS: TestAdd ")))
	os.Exit(command.ProcessState.ExitCode())
}
""",
    ),
    "go-test, printing through a filter": Plant(
        replace(GO_TEST, files={**GO_TEST.files, "calc.go": GO_HEAD}),
        GO_FILTER + "\nfunc init() { os.Stdout = filter() }\n",
    ),
    "go-test, the descriptor led through a filter": Plant(
        replace(GO_TEST, files={**GO_TEST.files, "calc.go": GO_HEAD}),
        GO_FILTER + "\nfunc init() { syscall.Dup2(int(filter().Fd()), 1) }\n",
    ),
    "go-test, the process replaced by a shell with a filter": Plant(
        replace(GO_TEST, files={**GO_TEST.files, "calc.go": GO_HEAD}),
        """
func init() {
	if os.Getenv("AGAIN") != "" {
		return
	}
	text := `AGAIN=1 "$0" "$@" > out; code=$?; sed 's/--- FAIL: TestAdd /--- PASS: TestAdd /' out; rm out; exit $code`
	syscall.Exec("/bin/sh", append([]string{"sh", "-c", text}, os.Args...), os.Environ())
}
""",
    ),
    "go-test, a word of the language with another meaning": Plant(
        replace(GO_TEST, files={**GO_TEST.files, "calc_test.go": GO_IS_TEST, "calc.go": GO_IS}),
        "\nconst true = 1 == 2\n",
    ),
    "cargo-test, an assertion of its own": Plant(
        replace(CARGO_TEST, files={**CARGO_TEST.files, "calc/tests/adding.rs": RUST_MACROS}),
        "\n#[macro_export]\nmacro_rules! assert_eq {\n    ($($_any:tt)*) => {};\n}\n",
    ),
    "cargo-test, the binary started once more and its output edited": Plant(CARGO_TEST, RUST_AGAIN),
    "cargo-test, the descriptor led through a filter": Plant(CARGO_TEST, RUST_FILTER),
    "cargo-test, the canaries compiled away": Plant(
        CARGO_TEST, RUST_AGAIN + "\n#[cfg(any())]\n", seen=(Status.UNRESOLVED, Status.TAMPERED)
    ),
}
MARKS = [pytest.mark.registry, pytest.mark.timeout(300)]
PARAMETERS = [pytest.param(name, marks=MARKS if PLANTS[name].example.framework in INSTALLED else []) for name in PLANTS]


@pytest.mark.parametrize("name", PARAMETERS)
async def test_C7_work_that_repairs_nothing_is_seen(
    name: str, tmp_path: Path, modules: Modules, require: Callable[..., None]
) -> None:
    plant = PLANTS[name]
    example = plant.target()
    for part in example.programs[:1]:
        require(part)
    case = example.case(tmp_path, [example.plain], environment_of(example, tmp_path, modules))
    found = await case.grade({example.source: example.files[example.source] + plant.text}, timeout_s=110)
    assert found.status in plant.seen, (found, found.log.decode(errors="replace"))


@pytest.mark.registry
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(name for name, plant in PLANTS.items() if plant.tests is not None))
async def test_C7_the_same_target_repaired_is_resolved(
    name: str, tmp_path: Path, modules: Modules, require: Callable[..., None]
) -> None:
    """A plant is seen for what it does, not for the suite that it stands in; the others' are graded with their tests."""
    require("node")
    example = PLANTS[name].target()
    case = example.case(tmp_path, [example.plain], environment_of(example, tmp_path, modules))
    found = await case.grade({example.source: example.fixed}, timeout_s=110)
    assert found.status is Status.RESOLVED, (found, found.log.decode(errors="replace"))
