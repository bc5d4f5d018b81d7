"""Providers: loaded at run time only, refused with the field and the fix, and rendered to the same bytes."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

import pairtrial
from pairtrial.core.errors import ProviderError
from pairtrial.providers import expand, load_provider, mcp_template

SOURCE = Path(pairtrial.__file__).parent
PROVIDERS = Path(__file__).parents[2] / "providers"
GOOD: dict[str, Any] = {
    "schema": "pairtrial.provider.v1",
    "id": "p",
    "version": "1",
    "title": "t",
    "servers": {"s": {"command": "${PYTHON}", "args": ["${PROVIDER}/x.py"], "env": {"A": "b"}, "tools": ["look"]}},
}


def write(folder: Path, document: dict[str, Any] | str, name: str = "provider.yaml") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(document if isinstance(document, str) else json.dumps(document))
    return folder


def test_no_module_names_a_provider() -> None:
    """The source is read: no import of a provider, and no string that holds the name of one."""
    names = {path.name for path in PROVIDERS.iterdir() if path.is_dir()}
    assert "bm25" in names
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules: list[str] = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in names, f"{path} names a provider"
            for module in modules:
                parts = module.split(".")
                assert parts[0] != "providers", f"{path} imports {module}"
                assert not names & set(parts), f"{path} imports {module}"


def test_the_mcp_file_holds_every_field_of_a_server(tmp_path: Path) -> None:
    provider = load_provider("p", write(tmp_path / "p", GOOD).parent)
    assert json.loads(mcp_template(provider.config)) == {
        "mcpServers": {"s": {"command": "${PYTHON}", "args": ["${PROVIDER}/x.py"], "env": {"A": "b"}}}
    }
    assert mcp_template(None) == b'{"mcpServers":{}}'


def test_one_changed_byte_is_another_identity(tmp_path: Path) -> None:
    folder = write(tmp_path / "p", GOOD)
    (folder / "x.py").write_text("a")
    before = load_provider("p", tmp_path).tree
    (folder / "x.py").write_text("b")
    assert load_provider("p", tmp_path).tree != before
    (folder / "x.py").write_text("a")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.pyc").write_bytes(b"")
    assert load_provider("p", tmp_path).tree == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prompt_suffix": "be good"}, "prompt_suffix: unknown key"),
        ({"servers": {}, "context_files": {}}, "the control under another name"),
        ({"servers": {"s": {"command": "${NODE}", "tools": ["t"]}}}, "${NODE} is no placeholder"),
        ({"servers": {"s": {"command": "x", "tools": []}}}, "servers.s.tools"),
        ({"context_files": {"../CLAUDE.md": "a"}}, "relative POSIX path"),
        ({"context_files": {".git/hooks/post-checkout": "a"}}, "lies in .git"),
        ({"context_files": {"CLAUDE.md": "absent.md"}}, "no file absent.md in the folder"),
        ({"index": {"command": [], "timeout_s": 1, "max_bytes": 1}}, "index.command"),
        ({"index": {"command": ["x"], "timeout_s": 0, "max_bytes": 1}}, "index.timeout_s"),
    ],
)
def test_what_a_provider_may_not_say(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    write(tmp_path / "p", {**GOOD, **change})
    with pytest.raises(ProviderError) as caught:
        load_provider("p", tmp_path)
    assert words in str(caught.value)
    assert "provider" in str(caught.value)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("raise SystemError('boom')", "SystemError: boom"),
        ("x = 1", "has no attribute 'agent_config'"),
        ("def agent_config(): return {'schema': 'pairtrial.provider.v1'}", "id: Field required"),
        ("def agent_config(:", "SyntaxError"),
    ],
)
def test_a_module_that_fails_is_one_clear_error(tmp_path: Path, code: str, words: str) -> None:
    write(tmp_path / "p", code, "provider.py")
    with pytest.raises(ProviderError) as caught:
        load_provider("p", tmp_path)
    assert words in str(caught.value)


def test_a_module_gives_the_same_as_a_document(tmp_path: Path) -> None:
    write(tmp_path / "p", f"def agent_config(): return {GOOD!r}", "provider.py")
    write(tmp_path / "q", GOOD)
    assert load_provider("p", tmp_path).config == load_provider("q", tmp_path).config


def test_missing_and_ambiguous_folders(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="no such provider folder"):
        load_provider("absent", tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ProviderError, match=r"neither provider\.yaml nor provider\.py"):
        load_provider("empty", tmp_path)
    write(write(tmp_path / "both", GOOD), "x = 1", "provider.py")
    with pytest.raises(ProviderError, match=r"both provider\.yaml and provider\.py"):
        load_provider("both", tmp_path)
    with pytest.raises(ProviderError, match="no entry point 'nobody'"):
        load_provider("entry-point:nobody", tmp_path)


def test_placeholders_are_filled_in_everywhere_and_only_known_ones() -> None:
    table = {"A": "1", "B": "2"}
    assert expand({"k${A}": ["${A}${B}", {"x": "$A"}], "n": 3}, table) == {"k1": ["12", {"x": "$A"}], "n": 3}
    with pytest.raises(ProviderError, match=r"\$\{C\} has no value here"):
        expand("${C}", table)


def test_tools_of_the_agent_are_no_providers_business(tmp_path: Path) -> None:
    """They would be a second difference between arms."""
    write(tmp_path / "none", {**GOOD, "allowed_tools": []})
    assert load_provider("none", tmp_path).config.allowed_tools == ()
    write(tmp_path / "one", {**GOOD, "allowed_tools": ["Bash"]})
    with pytest.raises(ProviderError, match="allowed_tools: the agent's own tools are the same in every arm"):
        load_provider("one", tmp_path)
