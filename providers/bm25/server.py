"""MCP server on stdio with one tool, ``search``: functions of the indexed tree, ranked by BM25.

``python server.py --index FILE``. Needs the ``mcp`` SDK and ``index.py`` beside it, nothing else.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

sys.dont_write_bytecode = True  # a __pycache__ here would change the digest of the provider
sys.path.insert(0, str(Path(__file__).resolve().parent))

from index import FORMAT, terms  # noqa: E402 - found only after the line above

K1 = 1.5
B = 0.75
MAX_RESULTS = 50
MAX_QUERY_CHARACTERS = 20_000


class Hit(NamedTuple):
    """One ranked function."""

    file: str
    line: int
    name: str
    snippet: str
    score: float


class Search:
    """BM25 over the documents of an index; ties are broken by file and line."""

    def __init__(self, documents: list[dict[str, Any]]) -> None:
        self._documents = documents
        self._postings: dict[str, list[tuple[int, int]]] = {}
        for number, entry in enumerate(documents):
            for term, count in entry["terms"].items():
                self._postings.setdefault(term, []).append((number, count))
        self._mean = sum(entry["length"] for entry in documents) / len(documents) if documents else 1.0

    @classmethod
    def load(cls, path: Path) -> Search:
        """Read an index file; ValueError if it is none of ours."""
        value = json.loads(path.read_bytes())
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise ValueError(f"not an index of the format {FORMAT}")
        return cls(value["documents"])

    def ranked(self, query: str, k: int) -> list[Hit]:
        """The best ``k`` functions with a score above 0, best first."""
        scores: dict[int, float] = {}
        total = len(self._documents)
        for term, repeated in sorted(Counter(terms(query)).items()):
            postings = self._postings.get(term, [])
            rarity = math.log(1 + (total - len(postings) + 0.5) / (len(postings) + 0.5))
            for number, count in postings:
                norm = K1 * (1 - B + B * self._documents[number]["length"] / self._mean)
                scores[number] = scores.get(number, 0.0) + repeated * rarity * count * (K1 + 1) / (count + norm)
        best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:k]
        return [self._hit(number, score) for number, score in best]

    def _hit(self, number: int, score: float) -> Hit:
        entry = self._documents[number]
        return Hit(entry["file"], entry["line"], entry["name"], entry["snippet"], round(score, 4))


INPUT_SCHEMA = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "Words and identifiers to look for."},
        "k": {"type": "integer", "minimum": 1, "maximum": MAX_RESULTS, "default": 10, "description": "How many."},
    },
    "required": ["query"],
    "additionalProperties": False,
}
DESCRIPTION = "Find the functions of this repository that fit a description best. Answers with file, line and name."


def as_text(hits: list[Hit]) -> str:
    """The answer for a reader."""
    if not hits:
        return "No function fits."
    blocks = []
    for rank, hit in enumerate(hits, 1):
        body = "\n".join(f"    {line}" for line in hit.snippet.splitlines())
        blocks.append(f"{rank}. {hit.file}:{hit.line} {hit.name}\n{body}")
    return "\n".join(blocks)


def problem(arguments: dict[str, Any]) -> str | None:
    """What is wrong with the arguments of a call, in a sentence that names the argument and the fix."""
    query, k = arguments.get("query"), arguments.get("k", 10)
    if unknown := sorted(set(arguments) - {"query", "k"}):
        return f"unknown argument {unknown[0]!r}: 'query' and 'k' are accepted"
    if not isinstance(query, str) or not query.strip():
        return "'query' must be a string with at least one word"
    if len(query) > MAX_QUERY_CHARACTERS:
        return f"'query' is longer than {MAX_QUERY_CHARACTERS} characters"
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MAX_RESULTS:
        return f"'k' must be a whole number from 1 to {MAX_RESULTS}"
    return None


async def serve(search: Search) -> None:
    """Answer one client on stdio until it closes the stream."""
    import mcp.types as types
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server
    from mcp.shared.exceptions import MCPError

    tool = types.Tool(name="search", description=DESCRIPTION, input_schema=INPUT_SCHEMA)

    async def list_tools(_: Any, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool])

    async def call_tool(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name != tool.name:
            raise MCPError(types.INVALID_PARAMS, f"unknown tool {params.name!r}; there is only 'search'")
        arguments = params.arguments or {}
        if fault := problem(arguments):
            return types.CallToolResult(content=[types.TextContent(type="text", text=fault)], is_error=True)
        hits = search.ranked(arguments["query"], arguments.get("k", 10))
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=as_text(hits))],
            structured_content={"results": [hit._asdict() for hit in hits]},
        )

    server: Server[Any] = Server("bm25", version="1.0.0", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main() -> int:
    """Load the index, then serve."""
    parser = argparse.ArgumentParser(description="Serve BM25 search over an index on stdio.")
    parser.add_argument("--index", type=Path, required=True)
    arguments = parser.parse_args()
    try:
        search = Search.load(arguments.index)
    except (OSError, ValueError, KeyError) as fault:
        sys.stderr.write(f"bm25 server: cannot read the index: {fault}\n")
        return 1
    import anyio

    anyio.run(serve, search)
    return 0


if __name__ == "__main__":
    sys.exit(main())
