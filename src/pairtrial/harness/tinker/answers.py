"""How tinker uses a server that it has never seen: which tool to call, and what places its answer names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pairtrial.harness.tinker.localise import ANSWERS_USED, Hit

_QUERY_KEYS = ("query", "q", "question", "search", "pattern", "text", "prompt", "keywords")
_COUNT_KEYS = ("k", "limit", "top_k", "n", "max_results", "count")
_FILE_KEYS = ("file", "path", "filename", "file_path", "relative_path", "filepath")
_LINE_KEYS = ("line", "start_line", "lineno", "line_number", "startLine")
_NAME_KEYS = ("name", "qualified_name", "qualname", "symbol", "function")
_SEARCHES = re.compile(r"search|find|query|retriev|lookup|ask", re.IGNORECASE)
_PLACE = re.compile(r"(?P<path>[\w][\w./-]*\.py)\b(?:(?::|#L|, line )(?P<line>\d{1,7}))?")


@dataclass(frozen=True, slots=True)
class Search:
    """A tool that takes a question in words."""

    tool: str
    query_key: str
    count_key: str | None = None

    def arguments(self, query: str) -> dict[str, object]:
        """Arguments of one call."""
        arguments: dict[str, object] = {self.query_key: query}
        if self.count_key is not None:
            arguments[self.count_key] = ANSWERS_USED
        return arguments


def search_of(tools: Sequence[tuple[str, Mapping[str, object]]]) -> Search | None:
    """The search tool among (name, input schema) pairs: named like one before others, then in the server's order."""
    found = [search for name, schema in tools if (search := _search(name, schema)) is not None]
    return min(found, key=lambda search: not _SEARCHES.search(search.tool), default=None)


def _search(name: str, schema: Mapping[str, object]) -> Search | None:
    properties = schema.get("properties")
    required = schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        return None

    def first(keys: Sequence[str], kind: str) -> str | None:
        typed = (key for key in keys if isinstance(properties.get(key), dict) and properties[key].get("type") == kind)
        return next(typed, None)

    query, count = first(_QUERY_KEYS, "string"), first(_COUNT_KEYS, "integer")
    if query is None or set(required) - {query, count}:
        return None
    return Search(name, query, count)


def hits_of(structured: object, text: str) -> tuple[Hit, ...]:
    """The places of an answer, best first: of its structured part if that names any, else of its text."""
    if hits := tuple(_records(structured)):
        return hits
    try:
        if hits := tuple(_records(json.loads(text))):
            return hits
    except (ValueError, RecursionError):
        pass
    return tuple(Hit(match["path"], int(match["line"]) if match["line"] else None) for match in _PLACE.finditer(text))


def _records(value: object) -> Iterator[Hit]:
    """Objects with a file, in order; they may stand in lists and objects, but not deep."""
    level = [value]
    for _ in range(4):
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                path = next((item[key] for key in _FILE_KEYS if isinstance(item.get(key), str)), None)
                if path is not None:
                    yield Hit(
                        path, _line(item), next((item[k] for k in _NAME_KEYS if isinstance(item.get(k), str)), None)
                    )
                    continue
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        level = below


def _line(item: Mapping[str, object]) -> int | None:
    for key in _LINE_KEYS:
        value = item.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None
