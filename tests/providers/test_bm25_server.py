"""The server over real MCP, from a copied folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.anyio


@pytest.fixture
def index(bm25: Path, tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "pack").mkdir(parents=True)
    (root / "pack" / "slugs.py").write_text(
        "def slug(text, limit=20):\n    return text[:limit]\n\n\ndef words(text):\n    return text.split()\n"
    )
    out = tmp_path / "index.json"
    subprocess.run([sys.executable, str(bm25 / "index.py"), "--root", str(root), "--out", str(out)], check=True)
    return out


def client(bm25: Path, index: Path, tmp_path: Path) -> Any:
    from mcp import Client, StdioServerParameters

    arguments = [str(bm25 / "server.py"), "--index", str(index)]
    return Client(StdioServerParameters(command=sys.executable, args=arguments, cwd=tmp_path), read_timeout_seconds=60)


async def test_it_offers_search_and_answers_with_place_and_snippet(bm25: Path, index: Path, tmp_path: Path) -> None:
    before = sorted(bm25.iterdir())
    async with client(bm25, index, tmp_path) as session:
        (tool,) = (await session.list_tools()).tools
        assert tool.name == "search"
        assert tool.input_schema["required"] == ["query"]
        answer = await session.call_tool("search", {"query": "a slug is cut", "k": 1})
        again = await session.call_tool("search", {"query": "a slug is cut", "k": 1})
        both = await session.call_tool("search", {"query": "slugs words"})
        none = await session.call_tool("search", {"query": "zebra"})
    assert not answer.is_error
    (hit,) = answer.structured_content["results"]
    assert {key: hit[key] for key in ("file", "line", "name", "snippet")} == {
        "file": "pack/slugs.py",
        "line": 1,
        "name": "slug",
        "snippet": "def slug(text, limit=20):\n    return text[:limit]",
    }
    assert answer.content[0].text == (
        "1. pack/slugs.py:1 slug\n    def slug(text, limit=20):\n        return text[:limit]"
    )
    assert again.structured_content == answer.structured_content
    assert [hit["name"] for hit in both.structured_content["results"]] == ["words", "slug"]
    assert none.structured_content == {"results": []}
    assert none.content[0].text == "No function fits."
    assert sorted(bm25.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "'query' must be a string with at least one word"),
        ({"query": "  "}, "'query' must be a string with at least one word"),
        ({"query": 7}, "'query' must be a string with at least one word"),
        ({"query": "x" * 20_001}, "'query' is longer than 20000 characters"),
        ({"query": "x", "k": 0}, "'k' must be a whole number from 1 to 50"),
        ({"query": "x", "k": 51}, "'k' must be a whole number from 1 to 50"),
        ({"query": "x", "k": True}, "'k' must be a whole number from 1 to 50"),
        ({"query": "x", "n": 1}, "unknown argument 'n': 'query' and 'k' are accepted"),
    ],
)
async def test_a_wrong_argument_is_named_with_its_fix(server_module: Any, arguments: dict[str, Any], said: str) -> None:
    assert server_module.problem(arguments) == said


async def test_wrong_calls_are_errors_and_the_server_goes_on(bm25: Path, index: Path, tmp_path: Path) -> None:
    from mcp import MCPError

    async with client(bm25, index, tmp_path) as session:
        empty = await session.call_tool("search", {"query": ""})
        assert empty.is_error
        assert empty.content[0].text == "'query' must be a string with at least one word"
        with pytest.raises(MCPError, match="unknown tool 'delete'"):
            await session.call_tool("delete", {})
        assert not (await session.call_tool("search", {"query": "slug"})).is_error


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"format": "other"}', b'{"format": "bm25-index-1"}'])
async def test_an_index_that_is_none_stops_it_with_one_line(bm25: Path, tmp_path: Path, content: bytes | None) -> None:
    place = tmp_path / "index.json"
    if content is not None:
        place.write_bytes(content)
    done = subprocess.run(
        [sys.executable, str(bm25 / "server.py"), "--index", str(place)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("bm25 server: cannot read the index: ")
    assert done.stderr.count("\n") == 1


async def test_it_imports_nothing_of_pairtrial(bm25: Path) -> None:
    for program in ("index.py", "server.py"):
        assert "pairtrial" not in (bm25 / program).read_text()


async def test_its_description_is_a_valid_provider(bm25: Path) -> None:
    from pairtrial.core.errors import ProviderError
    from pairtrial.core.model import load_yaml
    from pairtrial.providers.contract import AgentConfig

    config = load_yaml(bm25 / "provider.yaml", AgentConfig, ProviderError)
    assert config.id == "bm25"
    assert json.loads(json.dumps(config.servers["bm25"].tools)) == ["search"]
