"""Every framework on a small suite of our own that holds each state a test can have."""

from __future__ import annotations

import json
import random
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
from framework_examples import (
    BUILT_IN,
    CARGO_TEST,
    GO_TEST,
    INSTALLED,
    MOCHA,
    NODE_TEST,
    UNITTEST,
    Example,
    Modules,
    environment_of,
)
from grading_cases import ADD, FILES, FIXED, make_case, tool_environment
from parts import real_program

from pairtrial.core.status import Status
from pairtrial.grading.frameworks.base import COUNTS_AS_PASS, Outcome
from pairtrial.grading.frameworks.meanings import MEANINGS, Case, tables
from pairtrial.grading.observe import run_suite

pytestmark = pytest.mark.anyio
Require = Callable[..., None]


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


@pytest.fixture
def environment(example: Example, tmp_path: Path, modules: Modules) -> Path | None:
    return environment_of(example, tmp_path, modules)


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
async def test_mocha_hook_that_fails_takes_its_suite_along(tmp_path: Path, modules: Modules) -> None:
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
