"""Speaks MCP to the servers of the config, through the official SDK. Imported only when there is a server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult, Implementation, TextContent, Tool

from pairtrial.harness.tinker import NAME, VERSION
from pairtrial.harness.tinker.answers import Search, hits_of, search_of
from pairtrial.harness.tinker.config import ServerConfig
from pairtrial.harness.tinker.localise import Hit

REQUEST_TIMEOUT_S = 30.0
"""Longest wait for one answer; for the first one the start of the server is in it."""
MAX_PAGES = 20


@dataclass(frozen=True, slots=True)
class Asked:
    """One search and what came back."""

    server: str
    tool: str
    arguments: dict[str, object]
    ok: bool
    size: int
    """Bytes of text in the answer."""
    hits: tuple[Hit, ...]


@dataclass(frozen=True, slots=True)
class Connection:
    """One server after the attempt to connect."""

    name: str
    client: Client | None
    """None: it did not start."""
    tools: tuple[Tool, ...] = ()

    @property
    def status(self) -> dict[str, object]:
        """Its entry in the startup event."""
        word = "failed" if self.client is None else "connected"
        return {"name": self.name, "status": word, "tools": [tool.name for tool in self.tools]}


async def consult(
    servers: Sequence[ServerConfig],
    started: Callable[[list[dict[str, object]]], None],
    question: Callable[[], str | None],
) -> list[Asked]:
    """Connect to every server, report all of them through ``started``, then put the question to each that can search."""
    asked: list[Asked] = []
    async with AsyncExitStack() as stack:
        connections = [await _connect(server, stack) for server in servers]
        started([connection.status for connection in connections])
        query = question()
        for connection in connections:
            search = search_of([(tool.name, tool.input_schema) for tool in connection.tools])
            if connection.client is not None and search is not None and query is not None:
                asked.append(await _ask(connection.name, connection.client, search, query))
    return asked


async def _connect(server: ServerConfig, stack: AsyncExitStack) -> Connection:
    parameters = StdioServerParameters(
        command=server.command, args=list(server.args), env=dict(server.env), cwd=Path.cwd()
    )
    own = AsyncExitStack()
    try:
        client = Client(
            parameters,
            read_timeout_seconds=REQUEST_TIMEOUT_S,
            client_info=Implementation(name=NAME, version=VERSION),
        )
        await own.enter_async_context(client)
        tools = await _tools(client)
    except Exception as fault:  # whatever a foreign server does wrong, it is reported as failed
        sys.stderr.write(f"tinker: MCP server {server.name!r} failed: {type(fault).__name__}: {fault}\n")
        await own.aclose()
        return Connection(server.name, None)
    stack.push_async_exit(own.__aexit__)
    return Connection(server.name, client, tools)


async def _tools(client: Client) -> tuple[Tool, ...]:
    tools: list[Tool] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools.extend(page.tools)
        cursor = page.next_cursor
        if cursor is None:
            return tuple(tools)
    raise ValueError(f"its tool list has more than {MAX_PAGES} pages")


async def _ask(server: str, client: Client, search: Search, query: str) -> Asked:
    arguments = search.arguments(query)
    try:
        result = await client.call_tool(search.tool, arguments)
    except Exception as fault:  # a failed call is an outcome; the agent goes on without the answer
        sys.stderr.write(f"tinker: {server}.{search.tool} failed: {type(fault).__name__}: {fault}\n")
        return Asked(server, search.tool, arguments, ok=False, size=0, hits=())
    text = _text(result)
    hits = () if result.is_error else hits_of(result.structured_content, text)
    return Asked(server, search.tool, arguments, ok=not result.is_error, size=len(text.encode()), hits=hits)


def _text(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))
