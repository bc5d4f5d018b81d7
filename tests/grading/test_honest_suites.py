"""Suites as people write them, with what stands or runs around our canaries: a repair is resolved, no work is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
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


def with_tests(example: Example, text: str, *, files: Mapping[str, str] | None = None, args: str = "") -> Example:
    """The example with another test file, and more files."""
    name = example.fail_to_pass.partition("::")[0]
    return replace(example, files={**example.files, name: text, **(files or {})}, args=(*example.args, *args.split()))


def node(body: str) -> str:
    return (
        "const { test, before, mock } = require('node:test');\nconst assert = require('node:assert');\n"
        "const { add, one } = require('../calc.js');\n" + body
    )


ADDS = "test('adds', () => assert.equal(add(1, 2), 3))\ntest('one', () => assert.equal(one, 1))"
IT = "const assert = require('node:assert');\nconst { add, one } = require('../calc.js');\n" + ADDS.replace(
    "test(", "it("
)
EXPECTS = "test('adds', () => expect(add(1, 2)).toBe(3));\ntest('one', () => expect(one).toBe(1))"
JEST_HEAD = "const { add, one } = require('../calc.js');\n"
VITEST_HEAD = "import { test, expect, vi, beforeEach, describe } from 'vitest';\nimport { add, one } from '../calc';\n"
ESM_NODE = replace(
    NODE_TEST,
    files={
        "package.json": '{"type": "module"}\n',
        "calc.js": "export const add = (a, b) => a - b;\nexport const one = 1;\n",
        "tests/calc.test.js": "import { test } from 'node:test';\nimport assert from 'node:assert/strict';\n"
        "import { add, one } from '../calc.js';\n" + ADDS,
    },
    paths=("tests/calc.test.js",),
)
ESM_MOCHA = replace(
    MOCHA,
    files={
        "package.json": '{"type": "module"}\n',
        "calc.js": "export const add = (a, b) => a - b;\nexport const one = 1;\n",
        "tests/calc.test.js": "import { expect } from 'chai';\nimport { add, one } from '../calc.js';\n"
        "it('adds', () => expect(add(1, 2)).to.equal(3))\nit('one', () => { expect(one).to.equal(1) })",
    },
)

GO_ADD = 'func TestAdd(t *testing.T) {\n\tif calc.Add(1, 2) != 3 {\n\t\tt.Fatal("wrong")\n\t}\n}\n'
GO_ZERO = "\nfunc TestZero(t *testing.T) {}\n"


def go(tests: str, *, source: str = "", args: str = "") -> Example:
    files = {
        "go.mod": GO_TEST.files["go.mod"],
        "calc.go": GO_TEST.files["calc.go"] + source,
        "calc_test.go": tests,
    }
    return replace(GO_TEST, files=files, args=(*GO_TEST.args, *args.split()))


def inside(body: str, imports: str = '"testing"') -> str:
    return f"package calc\n\nimport (\n{imports}\n)\n\n" + GO_ADD.replace("calc.", "") + body


LIB = "pub fn add(a: i32, b: i32) -> i32 {\n    a - b\n}\n"
MODULE = "\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn adds() { assert_eq!(::add(1, 2), 3); }\n    #[test]\n    fn zero() {}\n}"


def cargo(
    files: Mapping[str, str], test: str, *, source: str = "src/lib.rs", manifest: str = "", edition: str = "2021"
) -> Example:
    head = f'[package]\nname = "my-calc"\nversion = "0.1.0"\nedition = "{edition}"\n'
    return replace(
        CARGO_TEST,
        files={"Cargo.toml": head + manifest, **files},
        source=source,
        fail_to_pass=f"my-calc {test}adds",
        plain=f"my-calc {test}zero",
        args=("--offline",),
        paths=("tests",),
    )


def unit(attributes: str = "", *, end: str = "\n", edition: str = "2021", manifest: str = "") -> Example:
    body = attributes + LIB + (MODULE if edition == "2015" else MODULE.replace("::add", "crate::add")) + end
    return cargo({"src/lib.rs": body}, "lib:my_calc::tests::", edition=edition, manifest=manifest)


INTEGRATION = "#[test]\nfn adds() { assert_eq!(my_calc::add(1, 2), 3); }\n\n#[test]\nfn zero() {}\n"
SUITES = {
    "node-test, modules": ESM_NODE,
    "node-test, no semicolon and no last line end": with_tests(NODE_TEST, node(ADDS)),
    "node-test, a comment at the end": with_tests(NODE_TEST, node(ADDS) + "\n// the end"),
    "node-test, first line for a shell, CRLF": with_tests(
        NODE_TEST, ("#!/usr/bin/env node\n'use strict';\n" + node(ADDS)).replace("\n", "\r\n")
    ),
    "node-test, byte order mark": with_tests(NODE_TEST, "\ufeff" + node(ADDS)),
    "node-test, mocked timers and removed globals": with_tests(
        NODE_TEST, node("mock.timers.enable();\ndelete globalThis.setTimeout;\n" + ADDS)
    ),
    "node-test, another folder": with_tests(NODE_TEST, node("before(() => process.chdir('/'));\n" + ADDS)),
    "node-test, an assertion of its own": with_tests(
        NODE_TEST,
        node("assert.adds = (a, b) => assert.equal(add(a, 2), b);\n" + ADDS.replace("equal(add(1, 2)", "adds(1")),
    ),
    "mocha, tdd": with_tests(MOCHA, IT.replace("it(", "test("), args="--ui tdd", files={"tests/more.test.js": ""}),
    "mocha, modules and chai": ESM_MOCHA,
    "mocha, chai for everybody": with_tests(
        MOCHA,
        JEST_HEAD + "it('adds', () => expect(add(1, 2)).to.equal(3));\nit('one', () => { expect(one).to.equal(1); });",
        files={".mocharc.json": '{"require": ["chai/register-expect.js", "chai/register-assert.js"]}'},
    ),
    "mocha, a name of the runner taken by the file": with_tests(MOCHA, "const test = 1, load = 2, wrong = 3;\n" + IT),
    "jest, no globals": with_tests(
        JEST,
        "const { test, expect } = require('@jest/globals');\n" + JEST_HEAD + EXPECTS,
        files={
            "jest.config.js": "module.exports = { injectGlobals: false };\n",
            "tests/more.test.js": "require('@jest/globals').test('one', () => {});\n",
        },
    ),
    "jest, fake timers, reset modules, assertions demanded": with_tests(
        JEST,
        JEST_HEAD + "jest.useFakeTimers();\nbeforeEach(() => { expect.hasAssertions(); });\n" + EXPECTS,
        files={"jest.config.js": "module.exports = { resetModules: true, restoreMocks: true };\n"},
    ),
    "jest, some only": with_tests(JEST, JEST_HEAD + EXPECTS.replace("test(", "test.only(")),
    "vitest, globals and every test concurrent": with_tests(
        VITEST,
        "import { add, one } from '../calc';\n" + EXPECTS,
        files={"vitest.config.ts": "export default { test: { globals: true, sequence: { concurrent: true } } };\n"},
    ),
    "vitest, fake timers and assertions demanded": with_tests(
        VITEST,
        VITEST_HEAD + "vi.useFakeTimers();\nbeforeEach(() => { expect.hasAssertions(); });\n" + EXPECTS,
        files={
            "vitest.config.ts": "export default { test: { expect: { requireAssertions: true } } };\n",
            "tests/more.test.ts": "import { test, expect } from 'vitest';\ntest('one', () => expect(1).toBe(1));\n",
        },
    ),
    "vitest, one worker for all": with_tests(
        VITEST,
        VITEST_HEAD + EXPECTS,
        files={"vitest.config.ts": "export default { test: { isolate: false, pool: 'threads' } };\n"},
    ),
    "vitest, contexts": with_tests(
        VITEST,
        VITEST_HEAD + EXPECTS,
        files={"vitest.config.ts": "export default { test: { pool: 'vmThreads' } };\n"},
    ),
    "vitest, some only": with_tests(VITEST, VITEST_HEAD + EXPECTS.replace("test(", "test.only("), args="--allowOnly"),
    "go-test, a package outside": go(
        'package calc_test\n\nimport (\n\t"testing"\n\n\t"example.invalid/calc"\n)\n\n' + GO_ADD + GO_ZERO
    ),
    "go-test, names of packages taken": go(
        inside(GO_ZERO), source="\nvar os, strconv = 1, 2\n\ntype seat = int\n\nvar _, _ = os, strconv\n"
    ),
    "go-test, TestMain": go(
        inside(GO_ZERO + "\nfunc TestMain(m *testing.M) {\n\tos.Exit(m.Run())\n}\n", '"os"\n"testing"')
    ),
    "go-test, its own binary as a helper": go(
        inside(
            GO_ZERO
            + """
func TestMain(m *testing.M) {
	if os.Getenv("HELPER") == "1" {
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestHelper(t *testing.T) {
	command := exec.Command(os.Args[0], "-test.run=TestZero")
	command.Env = append(os.Environ(), "HELPER=1")
	if err := command.Run(); err != nil {
		t.Fatal(err)
	}
}
""",
            '"os"\n"os/exec"\n"testing"',
        )
    ),
    "go-test, output caught and environment cleared": go(
        inside(
            GO_ZERO
            + """
func TestAaa(t *testing.T) {
	os.Clearenv()
	kept := os.Stdout
	_, os.Stdout, _ = os.Pipe()
	os.Stdout = kept
}
""",
            '"os"\n"testing"',
        )
    ),
    "go-test, shuffled, covered, two at a time": go(inside(GO_ZERO), args="-shuffle=on -cover -parallel=2 -v"),
    "cargo-test, in the library": unit(),
    "cargo-test, edition 2015": unit(edition="2015"),
    "cargo-test, without the standard library": unit("#![no_std]\n"),
    "cargo-test, without the standard library, edition 2015": unit("#![no_std]\n", edition="2015"),
    "cargo-test, everything denied": unit(
        "//! Adds.\n#![forbid(unsafe_code)]\n#![deny(warnings, missing_docs, unused, rust_2018_idioms, unused_results)]\n"
        "#![deny(unreachable_pub, unused_qualifications, missing_debug_implementations, trivial_casts)]\n/// Adds.\n"
    ),
    "cargo-test, everything forbidden": unit("//! Adds.\n#![forbid(warnings, missing_docs, unused)]\n/// Adds.\n"),
    "cargo-test, a comment at the end": unit(end="\n// the end"),
    "cargo-test, a library elsewhere": cargo(
        {"code/here.rs": LIB + MODULE.replace("::add", "crate::add")},
        "lib:other::tests::",
        source="code/here.rs",
        manifest='\n[lib]\nname = "other"\npath = "code/here.rs"\n',
    ),
    "cargo-test, a program": cargo(
        {"src/main.rs": LIB + "fn main() { add(1, 2); }\n" + MODULE.replace("::add", "crate::add")},
        "bin:my-calc::tests::",
        source="src/main.rs",
    ),
    "cargo-test, one of several programs": cargo(
        {
            "src/lib.rs": "",
            "src/bin/more/main.rs": LIB + "fn main() { add(1, 2); }\n" + MODULE.replace("::add", "crate::add"),
        },
        "bin:more::tests::",
        source="src/bin/more/main.rs",
    ),
    "cargo-test, a folder of integration tests": cargo(
        {"src/lib.rs": LIB, "tests/big/main.rs": INTEGRATION}, "test:big::"
    ),
    "cargo-test, an integration test elsewhere": cargo(
        {"src/lib.rs": LIB, "tests/deep/in.rs": INTEGRATION},
        "test:named::",
        manifest='\n[[test]]\nname = "named"\npath = "tests/deep/in.rs"\n',
    ),
    "cargo-test, macros": cargo(
        {
            "src/lib.rs": "extern crate proc_macro;\n"
            "#[proc_macro]\npub fn nothing(_: proc_macro::TokenStream) -> proc_macro::TokenStream "
            "{ proc_macro::TokenStream::new() }\n" + LIB.replace("pub ", "") + MODULE.replace("::add", "crate::add")
        },
        "lib:my_calc::tests::",
        manifest="\n[lib]\nproc-macro = true\n",
    ),
}
MARKS = [pytest.mark.registry, pytest.mark.timeout(300)]
PARAMETERS = [pytest.param(name, marks=MARKS if SUITES[name].framework in INSTALLED else []) for name in SUITES]


@pytest.mark.parametrize("name", PARAMETERS)
async def test_honest_suites(name: str, tmp_path: Path, modules: Modules, require: Callable[..., None]) -> None:
    example = SUITES[name]
    for part in example.programs[:1]:
        require(part)
    case = example.case(tmp_path, [example.plain], environment_of(example, tmp_path, modules))
    fixed = await case.grade({example.source: example.fixed}, timeout_s=110)
    assert fixed.status is Status.RESOLVED, (fixed.kind, fixed.reason, fixed.log.decode(errors="replace"))
    nothing = await case.grade({}, timeout_s=110)
    assert (nothing.status, nothing.checks) == (Status.UNRESOLVED, {example.fail_to_pass: "failed"})


async def test_documentation_tests_alone_have_canaries(tmp_path: Path, require: Callable[..., None]) -> None:
    require("cargo")
    body = "/// ```\n/// assert_eq!(calc::add(1, 2), 3);\n/// ```\npub fn checked() {}\n"
    example = replace(
        CARGO_TEST,
        files={**CARGO_TEST.files, "calc/src/lib.rs": CARGO_TEST.files["calc/src/lib.rs"] + body},
        fail_to_pass="calc doc::calc/src/lib.rs - checked #1",
    )
    case = example.case(tmp_path, [example.plain], environment_of(example, tmp_path, _no_modules))
    found = await case.grade({example.source: example.fixed}, timeout_s=110)
    assert found.status is Status.RESOLVED, (found.kind, found.reason, found.log.decode(errors="replace"))
    assert (await case.grade({}, timeout_s=110)).checks == {example.fail_to_pass: "failed"}


def _no_modules(name: str) -> Path:
    raise AssertionError(name)
