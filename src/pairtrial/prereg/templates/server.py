"""A context layer to start from: an MCP server with one tool that finds lines. Replace what it does.

It runs in the agent's sandbox, in the task's tree, with an interpreter that holds the MCP SDK and nothing else.
"""

import re
import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer

sys.dont_write_bytecode = True  # a __pycache__ here would change the digest of the provider
MOST = 20
server = MCPServer("@NAME@")


@server.tool()
def search(query: str) -> str:
    """Find the lines of the project's Python files that share the most words with the query, best first."""
    words = set(re.findall(r"\w{3,}", query.lower()))
    found = []
    for path in sorted(Path().rglob("*.py")):
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            shared = len(words & set(re.findall(r"\w{3,}", line.lower())))
            if shared:
                found.append((-shared, str(path), number, line.strip()))
    return "\n".join(f"{path}:{number}: {line}" for _, path, number, line in sorted(found)[:MOST]) or "nothing found"


if __name__ == "__main__":
    server.run()
