"""Whose index is used: that of the user's configuration, in the order of the tools themselves."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import pairtrial.tasks
from pairtrial.tasks.index import configured_certificates, configured_index, tool_environment, without_credentials


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment whose configuration lies in the test's folder."""
    return {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path / "xdg"), "PIP_CONFIG_FILE": str(tmp_path / "named")}


def test_the_environment_goes_before_files(home: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "named").write_text("[global]\nindex-url = http://file.invalid/simple\n")
    assert configured_index(home) == "http://file.invalid/simple"
    assert configured_index({**home, "PIP_INDEX_URL": "http://pip.invalid"}) == "http://pip.invalid"
    both = {**home, "PIP_INDEX_URL": "http://pip.invalid", "UV_DEFAULT_INDEX": "name=http://uv.invalid/a=b"}
    assert configured_index(both) == "http://uv.invalid/a=b"


def test_later_files_win_as_with_pip(home: dict[str, str], tmp_path: Path) -> None:
    user = tmp_path / ".config" / "pip" / "pip.conf"
    user.parent.mkdir(parents=True)
    user.write_text("[global]\nindex_url = http://user.invalid\ncert = /bundle\n")
    assert configured_index(home) == "http://user.invalid"
    assert configured_certificates(home) == "/bundle"
    (tmp_path / "named").write_text("[install]\nindex-url = http://named.invalid\n")
    assert configured_index(home) == "http://named.invalid"


def test_pip_can_be_told_to_read_no_file(home: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".pip").mkdir()
    (tmp_path / ".pip" / "pip.conf").write_text("[global]\nindex-url = http://user.invalid\n")
    assert configured_index({**home, "PIP_CONFIG_FILE": "/dev/null"}) is None


def test_a_broken_file_is_passed_over(home: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "named").write_bytes(b"no section\n\xff")
    absent = {**home, "PIP_CONFIG_FILE": str(tmp_path / "absent")}
    assert configured_index(home) == configured_index(absent)


def test_uv_gets_the_index_and_nothing_that_changes_the_result(home: dict[str, str]) -> None:
    given = {
        **home,
        "PATH": "/bin",
        "HTTPS_PROXY": "p",
        "PIP_INDEX_URL": "http://pip.invalid",
        "UV_CONSTRAINT": "c.txt",
        "UV_TARGET": "/elsewhere",
        "UV_CACHE_DIR": "/cache",
        "UV_INDEX_MINE_PASSWORD": "x",
        "VIRTUAL_ENV": "/venv",
        "PYTHONPATH": "/lib",
        "GIT_DIR": "/repo",
    }
    assert tool_environment(given) == {
        "HOME": home["HOME"],
        "XDG_CONFIG_DIRS": home["XDG_CONFIG_DIRS"],
        "PATH": "/bin",
        "HTTPS_PROXY": "p",
        "UV_CACHE_DIR": "/cache",
        "UV_INDEX_MINE_PASSWORD": "x",
        "UV_DEFAULT_INDEX": "http://pip.invalid",
    }


def test_credentials_are_not_shown() -> None:
    assert without_credentials("https://me:pw@host.invalid:8/simple?token=x#y") == "https://host.invalid:8/simple"


def test_no_host_is_named_in_the_code() -> None:
    """Every string of the package: an index is the user's business."""
    for path in Path(pairtrial.tasks.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not re.search(r"\w://[\w-]", node.value), (path.name, node.value)
