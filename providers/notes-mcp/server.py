"""An MCP server with one tool that gives the working notes beside it."""

from __future__ import annotations

from pathlib import Path

from mcp.server import MCPServer

NOTES = Path(__file__).with_name("notes.md")
server = MCPServer("notes")


@server.tool()
def working_notes() -> str:
    """Notes on how to repair something in this repository. Read them before you begin."""
    return NOTES.read_text(encoding="utf-8")


if __name__ == "__main__":
    server.run("stdio")
