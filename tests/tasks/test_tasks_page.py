"""The pack in docs/tasks.md works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pairtrial.cli.main import main
from pairtrial.core.errors import ExitCode
from pairtrial.tasks import load_target

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^`([\w./-]+)`\n\n(`{3,})\w+\n(.*?)^\2$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Every file of the page, and a lock with pytest in it."""
    page = (ROOT / "docs" / "tasks.md").read_text()
    for name, _, text in BLOCK.findall(page):
        path = tmp_path / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    lock = ROOT / "tasks" / "core" / "targets" / "toolz" / "requirements.lock"
    (tmp_path / "mine" / "targets" / "abacus" / "requirements.lock").write_bytes(lock.read_bytes())
    return tmp_path / "mine"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as caught:
        main(["tasks", *arguments])
    return int(str(caught.value.code)), capsys.readouterr().out


def test_the_page_shows_the_digest_that_the_command_prints(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = load_target(written / "targets" / "abacus")
    code, out = run(capsys, "digest", str(written / "targets" / "abacus" / "source"))
    assert (code, out.strip()) == (ExitCode.OK, getattr(target.source, "tree", None))


@pytest.mark.registry
def test_the_pack_of_the_page_is_what_it_says(
    written: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIRTRIAL_CACHE", str(tmp_path / "cache"))
    code, out = run(capsys, "baseline", str(written / "targets" / "abacus"))
    assert (code, out) == (ExitCode.OK, "tests/test_abacus.py::test_below\ntests/test_abacus.py::test_above\n")
    (written / "targets" / "abacus" / "baseline.txt").write_text(out)
    code, out = run(capsys, "measure", str(written))
    assert (code, out.split(",")[0]) == (ExitCode.OK, "abacus-clamp-upper: 1 fail")
