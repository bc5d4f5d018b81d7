"""Candidates are run in memory, in processes of their own, within limits."""

from __future__ import annotations

import os
import time
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from pairtrial.harness.tinker.candidates import Candidate, candidates_of
from pairtrial.harness.tinker.evaluate import Evaluator, imported_modules, place_of
from pairtrial.harness.tinker.sources import SourceFile, parse_source, read_sources
from pairtrial.harness.tinker.splice import spliced

EXAMPLE = "from pack import slug\n\nassert slug('one two', limit=7) == 'one-two'\n"
Read = Callable[[Path], dict[str, bytes]]


def edit(source: SourceFile, old: str, new: str) -> Candidate:
    start = source.data.index(old.encode())
    function = source.function_at(source.line_of(start))
    name = function.name if function else None
    line = source.line_of(start)
    return Candidate(source.path, start, start + len(old), old.encode(), new.encode(), line, name, "compare")


@pytest.fixture
def slugs(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> SourceFile:
    monkeypatch.chdir(workspace)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return next(source for source in read_sources(workspace) if source.path == "pack/slugs.py")


def sources() -> list[SourceFile]:
    return read_sources(Path.cwd())


def test_a_repair_passes_and_the_tree_is_not_touched(slugs: SourceFile, tree: Read) -> None:
    before = tree(Path.cwd())
    with Evaluator(EXAMPLE, sources()) as evaluator:
        assert evaluator.unedited == "fail"
        assert evaluator.outcome(edit(slugs, "< limit", "<= limit")) == "pass"
        assert evaluator.outcome(edit(slugs, "< limit", "> limit")) == "fail"
        assert evaluator.outcome(edit(slugs, "< limit", "<= limit")) == "pass"
    assert tree(Path.cwd()) == before


def test_an_edit_outside_of_functions_counts_too(slugs: SourceFile) -> None:
    example = "from pack import slug\n\nassert slug('a b') == 'a_b'\n"
    with Evaluator(example, sources()) as evaluator:
        assert evaluator.outcome(edit(slugs, '"-"', '"_"')) == "pass"


def test_an_edit_of_a_default_value_counts_too(slugs: SourceFile) -> None:
    example = "from pack import slug\n\nassert slug('aaaaaaaaaa bbbbbbbbbb') == 'aaaaaaaaaa-bbbbbbbbbb'\n"
    with Evaluator(example, sources()) as evaluator:
        assert evaluator.outcome(edit(slugs, "limit=20", "limit=22")) == "pass"


def test_a_file_that_the_example_does_not_import_cannot_help(slugs: SourceFile, workspace: Path) -> None:
    (workspace / "pack" / "unused.py").write_text("def f(a, b):\n    return a < b\n")
    unused = next(source for source in sources() if source.path == "pack/unused.py")
    with Evaluator(EXAMPLE, sources()) as evaluator:
        assert evaluator.outcome(edit(unused, "<", ">")) == "fail"
        assert evaluator.outcome(edit(slugs, "< limit", "<= limit")) == "pass"


@pytest.mark.parametrize("way_out", ["import os; os._exit(0)", "raise SystemExit(0)", "import sys; sys.exit()"])
def test_an_exit_before_the_assertion_is_not_a_pass(slugs: SourceFile, way_out: str) -> None:
    with Evaluator(EXAMPLE, sources()) as evaluator:
        assert evaluator.outcome(edit(slugs, "return result", f"{way_out}")) == "fail"


def test_an_endless_loop_is_killed_by_its_processor_time(slugs: SourceFile) -> None:
    with Evaluator(EXAMPLE, sources()) as evaluator:
        begun = time.monotonic()
        assert evaluator.outcome(edit(slugs, 'result = ""', "\n    while True: pass")) == "killed"
        assert time.monotonic() - begun < 20
        assert evaluator.outcome(edit(slugs, "< limit", "<= limit")) == "pass"


def test_a_sleeper_that_ignores_signals_is_killed_by_the_wall_clock(slugs: SourceFile) -> None:
    sleeper = (
        "import signal, time; signal.signal(signal.SIGALRM, signal.SIG_IGN); signal.signal(signal.SIGTERM, "
        "signal.SIG_IGN); time.sleep(600)"
    )
    with Evaluator(EXAMPLE, sources()) as evaluator:
        assert evaluator.outcome(edit(slugs, 'result = ""', sleeper)) == "killed"
        assert evaluator.outcome(edit(slugs, "< limit", "<= limit")) == "pass"


def test_memory_is_limited(slugs: SourceFile) -> None:
    with Evaluator("from pack import slug\n\nassert slug('a') and len(slug('b')) > 2**31\n", sources()) as evaluator:
        assert evaluator.outcome(edit(slugs, "return result", "return bytearray(2**31 + 1)")) != "pass"


def test_what_a_candidate_starts_dies_with_it(slugs: SourceFile, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    spawn = f"import subprocess; p = subprocess.Popen(['sleep', '600']); open({str(mark)!r}, 'w').write(str(p.pid))"
    with Evaluator(EXAMPLE, sources()) as evaluator:
        evaluator.outcome(edit(slugs, 'result = ""', spawn))
    pid = int(mark.read_text())
    time.sleep(0.1)
    state = Path(f"/proc/{pid}/stat")
    assert not state.exists() or ") Z " in state.read_text()


def test_a_candidate_cannot_speak_for_the_server(slugs: SourceFile) -> None:
    shout = 'import os; [os.write(fd, b\'{"outcome": "pass"}\\n\') for fd in range(1, 30) if not _closed(fd)]'
    helper = "def _closed(fd):\n    import os\n    try:\n        os.fstat(fd)\n    except OSError:\n        return True\n\n\n"
    place = Path.cwd() / "pack" / "slugs.py"
    place.write_text(helper + place.read_text())
    again = next(source for source in sources() if source.path == "pack/slugs.py")
    with Evaluator(EXAMPLE, sources()) as evaluator:
        for _ in range(3):
            assert evaluator.outcome(edit(again, 'result = ""', shout)) == "fail"


def test_a_module_is_seen_unedited_by_the_next_candidate_and_state_is_not_shared(slugs: SourceFile) -> None:
    example = (
        "import pack.slugs as s\n\ns.seen = getattr(s, 'seen', 0) + 1\n"
        "assert s.seen == 1 and s.slug('one two', 7) == 'one-two'\n"
    )
    with Evaluator(example, sources()) as evaluator:
        for _ in range(3):
            assert evaluator.outcome(edit(slugs, "< limit", "<= limit")) == "pass"


def test_an_example_that_is_no_python_fails(slugs: SourceFile) -> None:
    with Evaluator("assert (\n", sources()) as evaluator:
        assert evaluator.unedited == "fail"
        assert evaluator.outcome(edit(slugs, "< limit", "<= limit")) == "fail"


def test_a_python_that_cannot_run_is_said_plainly(
    slugs: SourceFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin" / "python"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\nexit 3\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}{os.pathsep}/usr/bin:/bin")
    with pytest.raises(RuntimeError, match="working 'python' on PATH"):
        Evaluator(EXAMPLE, [slugs])


def test_modules_of_the_workspace_are_never_preloaded(slugs: SourceFile, workspace: Path) -> None:
    # `helper` imports the workspace's package; preloading it would load the unedited file for good.
    (workspace / "helper.py").write_text("import pack.slugs\n")
    example = "import helper\n" + EXAMPLE
    with Evaluator(example, sources()) as evaluator:
        assert evaluator.outcome(edit(slugs, "< limit", "<= limit")) == "pass"


def test_imports_are_found_outside_of_functions_only() -> None:
    source = parse_source(
        "a.py",
        b"import os.path, json as j\nfrom re import x\nfrom . import y\nfrom .z import w\ntry:\n    import antigravity\n"
        b"    import zlib\nexcept ImportError:\n    pass\n\n\ndef f():\n    import csv\n",
    )
    assert source is not None
    assert imported_modules([source.tree]) == ["json", "os.path", "re", "zlib"]


CODE = '''\
from __future__ import annotations

import math

LIMIT = 3


class Base:
    def name(self):
        return "base"


class Child(Base):
    __secret = 1

    def name(self):
        """The name."""
        return super().name() + "-child"

    def secret(self):
        return [self.__secret + x for x in range(2)]

    class Inner:
        def deep(self, x=LIMIT):
            def twice():
                return x * 2
            return twice()

    @staticmethod
    def plain(a, b=2): return a < b


if LIMIT:
    def guarded(a):
        return math.floor(a) - 1


def total(*, a: int = 1) -> int:
    global LIMIT
    LIMIT = LIMIT + a
    return LIMIT
'''


def outcome(code: types.CodeType) -> list[object]:
    """What the code of ``CODE`` does, errors by their kind."""
    namespace: dict[str, object] = {"__name__": "code"}
    exec(code, namespace)
    checks = (
        "Child().name()", "Child().secret()", "Child.Inner().deep()", "Child.Inner.deep.__qualname__",
        "Child.plain(1)", "guarded(3.5)", "total()", "total.__annotations__", "Child.name.__doc__", "LIMIT",
    )  # fmt: skip
    found: list[object] = []
    for check in checks:
        try:
            found.append(eval(check, namespace))
        except Exception as fault:
            found.append((type(fault), str(fault)))
    return found


def test_a_spliced_module_does_what_the_whole_edited_file_does() -> None:
    source = parse_source("code.py", CODE.encode())
    assert source is not None
    base = compile(source.data, "code.py", "exec", dont_inherit=True)
    count = 0
    for candidate in candidates_of(source):
        place = place_of(candidate, source)
        if place is None:
            continue
        edited = candidate.apply(source.data)
        code = spliced(base, edited, place, len(candidate.new) - len(candidate.old))
        if code is not None:
            count += 1
            assert outcome(code) == outcome(compile(edited, "code.py", "exec", dont_inherit=True)), candidate
    assert count > 30


def test_what_is_not_in_a_body_or_changes_the_closure_is_not_spliced() -> None:
    source = parse_source("code.py", CODE.encode())
    assert source is not None
    base = compile(source.data, "code.py", "exec", dont_inherit=True)
    for old, new in (("LIMIT = 3", "LIMIT = 4"), ("__secret = 1", "__secret = 2"), ("b=2", "b=3"), ("x=LIMIT", "x=7")):
        assert place_of(edit(source, old, new), source) is None
    lost = edit(source, 'super().name() + "-child"', '"-child"')
    place = place_of(lost, source)
    assert place is not None
    assert spliced(base, lost.apply(source.data), place, len(lost.new) - len(lost.old)) is None
