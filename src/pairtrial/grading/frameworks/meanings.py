"""What can happen to a test, and what each framework's record of it means.

The one table of the kind: the documentation prints it, and the tests of every framework produce each of its cells with
the real runner. Whatever is not ``passed`` does not count as a pass, neither for fail_to_pass nor for pass_to_pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pairtrial.grading.frameworks.base import COUNTS_AS_PASS, Outcome


class Case(StrEnum):
    """What happened."""

    PASSES = "passes"
    FAILS = "fails an assertion"
    RAISES = "raises another error"
    SETUP_FAILS = "its fixture or hook fails"
    SKIPPED = "skipped"
    EXPECTED_FAILURE = "expected to fail, and fails"
    UNEXPECTED_SUCCESS = "expected to fail, and passes"
    STRICT_SUCCESS = "the same, strict"
    TODO = "to do"
    TODO_FAILS = "to do, and fails"
    SUBTEST_FAILS = "one of its subtests fails"
    LATER_TRY = "passes at a later try"
    DOCTEST = "example in the documentation, passes"
    DOCTEST_FAILS = "example in the documentation, fails"
    PANICS_AS_IT_SHOULD = "`should_panic`, and panics"
    DOES_NOT_PANIC = "`should_panic`, and does not"
    NOT_COLLECTED = "its file cannot be loaded or built"


_O = Outcome
MEANINGS: Mapping[str, Mapping[Case, Outcome]] = {
    "pytest": {
        Case.PASSES: _O.PASSED,
        Case.FAILS: _O.FAILED,
        Case.RAISES: _O.FAILED,
        Case.SETUP_FAILS: _O.ERROR,
        Case.SKIPPED: _O.SKIPPED,
        Case.EXPECTED_FAILURE: _O.XFAILED,
        Case.UNEXPECTED_SUCCESS: _O.XPASSED,
        Case.STRICT_SUCCESS: _O.FAILED,
        Case.SUBTEST_FAILS: _O.FAILED,
        Case.LATER_TRY: _O.RERUN,
        Case.DOCTEST: _O.PASSED,
        Case.DOCTEST_FAILS: _O.FAILED,
        Case.NOT_COLLECTED: _O.UNCOLLECTED,
    },
    "unittest": {
        Case.PASSES: _O.PASSED,
        Case.FAILS: _O.FAILED,
        Case.RAISES: _O.ERROR,
        Case.SETUP_FAILS: _O.ERROR,
        Case.SKIPPED: _O.SKIPPED,
        Case.EXPECTED_FAILURE: _O.XFAILED,
        Case.UNEXPECTED_SUCCESS: _O.XPASSED,
        Case.SUBTEST_FAILS: _O.FAILED,
        Case.NOT_COLLECTED: _O.UNCOLLECTED,
    },
    "node-test": {
        Case.PASSES: _O.PASSED,
        Case.FAILS: _O.FAILED,
        Case.RAISES: _O.FAILED,
        Case.SETUP_FAILS: _O.FAILED,
        Case.SKIPPED: _O.SKIPPED,
        Case.TODO: _O.TODO,
        Case.TODO_FAILS: _O.TODO,
        Case.SUBTEST_FAILS: _O.FAILED,
        Case.NOT_COLLECTED: _O.UNCOLLECTED,
    },
    "vitest": {
        Case.PASSES: _O.PASSED,
        Case.FAILS: _O.FAILED,
        Case.RAISES: _O.FAILED,
        Case.SETUP_FAILS: _O.FAILED,
        Case.SKIPPED: _O.SKIPPED,
        Case.EXPECTED_FAILURE: _O.XFAILED,
        Case.UNEXPECTED_SUCCESS: _O.FAILED,
        Case.TODO: _O.TODO,
        Case.LATER_TRY: _O.RERUN,
        Case.NOT_COLLECTED: _O.UNCOLLECTED,
    },
    "jest": {
        Case.PASSES: _O.PASSED,
        Case.FAILS: _O.FAILED,
        Case.RAISES: _O.FAILED,
        Case.SETUP_FAILS: _O.FAILED,
        Case.SKIPPED: _O.SKIPPED,
        Case.EXPECTED_FAILURE: _O.XFAILED,
        Case.UNEXPECTED_SUCCESS: _O.FAILED,
        Case.TODO: _O.TODO,
        Case.LATER_TRY: _O.RERUN,
        Case.NOT_COLLECTED: _O.UNCOLLECTED,
    },
    "mocha": {
        Case.PASSES: _O.PASSED,
        Case.FAILS: _O.FAILED,
        Case.RAISES: _O.FAILED,
        Case.SETUP_FAILS: _O.UNCOLLECTED,
        Case.SKIPPED: _O.SKIPPED,
        Case.TODO: _O.SKIPPED,
        Case.LATER_TRY: _O.RERUN,
        Case.NOT_COLLECTED: _O.MISSING,
    },
    "go-test": {
        Case.PASSES: _O.PASSED,
        Case.FAILS: _O.FAILED,
        Case.RAISES: _O.FAILED,
        Case.SKIPPED: _O.SKIPPED,
        Case.SUBTEST_FAILS: _O.FAILED,
        Case.DOCTEST: _O.PASSED,
        Case.DOCTEST_FAILS: _O.FAILED,
        Case.NOT_COLLECTED: _O.UNCOLLECTED,
    },
    "cargo-test": {
        Case.PASSES: _O.PASSED,
        Case.FAILS: _O.FAILED,
        Case.RAISES: _O.FAILED,
        Case.SKIPPED: _O.SKIPPED,
        Case.DOCTEST: _O.PASSED,
        Case.DOCTEST_FAILS: _O.FAILED,
        Case.PANICS_AS_IT_SHOULD: _O.PASSED,
        Case.DOES_NOT_PANIC: _O.FAILED,
        Case.NOT_COLLECTED: _O.UNCOLLECTED,
    },
}
"""What a framework does not know is not in its row."""


def tables() -> str:
    """Both tables as Markdown, for the documentation."""
    lines = ["| the test … | " + " | ".join(MEANINGS) + " |", "| --- |" + " --- |" * len(MEANINGS)]
    for case in Case:
        cells = [row[case].value if case in row else "–" for row in MEANINGS.values()]
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    lines += ["", "| record | counts as a pass |", "| --- | --- |"]
    lines += [f"| {outcome} | {'yes' if COUNTS_AS_PASS[outcome] else 'no'} |" for outcome in Outcome]
    return "\n".join(lines) + "\n"
