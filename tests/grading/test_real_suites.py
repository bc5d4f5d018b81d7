"""Every framework on a real upstream suite: as many tests as it has, each with an id of its own, the same ids twice.

Nothing of the packages is kept; names, versions and hashes are all that stands here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from real_targets import Suite, case_for, observe, relative_to_machine, theirs

from pairtrial.grading.frameworks.base import Outcome

pytestmark = [pytest.mark.anyio, pytest.mark.registry, pytest.mark.slow, pytest.mark.timeout(900)]

SUITES = {
    "unittest": Suite(
        "unittest", "cachetools==8.0.2", "30ac523adfc118b51d2b2e7bad8a0ddb31370dfe2700c7f10ca224f36ccf81e0", 476,
        "tests/test_lru.py::LRUCacheTest::test_lru", args=("discover", "-s", "tests", "-t", "."), pythonpath=("src",),
    ),
    "pytest": Suite(
        "pytest", "sqlparse==0.6.1", "ca722573f848ff2d30e40ea30f53a104b7dea7635ea9285891263eb2c58fb6e7", 537,
        "tests/test_parse.py::test_parse_tokenize", others=3,
    ),
    "vitest": Suite(
        "vitest", "css-what@8.0.0", "1eccce8f4d523832253a082815495f823b8621d0aab6a2eea5853d0d37eb4417", 936,
        "src/parse.spec.ts::x", paths=("src",), packages=("vitest@4.0.18",), programs=("node",),
    ),
    "node-test": Suite(
        "node-test", "find-my-way@9.10.2", "85eba7364db72f208f2cc5f9fa805811fd1b8207d1c75dec2985439a9276bbd5", 563,
        "test/find.test.js::x", paths=("test/",), programs=("node",),
        packages=("proxyquire@2.1.3", "rfdc@1.4.1", "fast-deep-equal@3.1.3", "fast-querystring@1.1.2",
                  "safe-regex2@5.0.0"),
    ),
    "mocha": Suite(
        "mocha", "fraction.js@5.3.4", "27e23d8e5ad285541e13e4befc51d39739354abe1f71a348de08a1c88a54a124", 314,
        "tests/fraction.test.js::x", packages=("mocha@11.8.0",), programs=("node",),
    ),
    "go-test": Suite(
        "go-test", "golang-github-blang-semver-dev", "7687d85fbfd2bc3cbb3f18a15bb111f6aa7621a57ca773f600173d0131e0dbbf",
        74, "github.com/blang/semver::TestString", paths=("./...",), programs=("go",),
    ),
    "cargo-test": Suite(
        "cargo-test", "librust-semver-dev", "bf3719b7aac4b7f16f0d68a7037306dbc1532758fe7a5dea01254e85cecaca8c", 35,
        "semver test:test_version::test_parse", args=("--offline",), programs=("cargo", "rustc", "rustdoc"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(SUITES))
async def test_real_suite(name: str, tmp_path: Path, require: Callable[..., None]) -> None:
    suite = SUITES[name]
    for part in (*suite.programs[:1], *(["dpkg"] if "==" not in suite.package and "@" not in suite.package else [])):
        require(part)
    case = case_for(suite, tmp_path)
    (tmp_path / "another place").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "another place")
    first, log = await observe(case, tmp_path / "scratch")
    tests = theirs(first)
    passed = [test_id for test_id, outcome in tests.items() if outcome is Outcome.PASSED]
    assert first.ended and first.chained and first.seal == "whole", log.decode(errors="replace")
    assert (len(passed), len(tests) - len(passed)) == (suite.total, suite.others), log.decode(errors="replace")[-3000:]
    assert relative_to_machine(first, tmp_path) == []
    second, _ = await observe(case, tmp_path / "link")
    assert theirs(second) == tests
