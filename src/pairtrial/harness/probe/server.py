"""An MCP server of so many tools that do nothing, for measuring what a server of that size costs an agent.

usage: python server.py N

It needs the standard library only, so that its schemas are the same bytes with whatever SDK a machine has.
"""

from __future__ import annotations

import json
import sys
from typing import Any

DESCRIPTION = (
    "Look up entries of kind {number} in the project's index. Use it when you need to know where something is defined, "
    "who calls it or what is written about it; give a short query and, where you know it, the folder. Returns at most "
    "`limit` entries, best first, each with its path, line and a one-line summary."
)


def tool_name(number: int) -> str:
    """``lookup_01``."""
    return f"lookup_{number:02d}"


def tool(number: int) -> dict[str, Any]:
    """The definition of one tool: about 0.6 kB, as those of servers in use."""
    return {
        "name": tool_name(number),
        "description": DESCRIPTION.format(number=number),
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What to look for, in a few words"},
                "folder": {"type": "string", "description": "Folder to look in, relative to the workspace"},
                "limit": {"type": "integer", "description": "Most entries to return"},
            },
            "required": ["query"],
        },
    }


def answer(request: dict[str, Any], count: int) -> dict[str, Any]:
    """The answer to a request."""
    match request["method"]:
        case "initialize":
            version = request["params"]["protocolVersion"]
            about = {"name": "probe", "version": "1.0.0"}
            # What the official SDK's servers say of themselves: agents add tools of their own for resources.
            can: dict[str, Any] = {"prompts": {}, "resources": {}, "tools": {}}
            result: dict[str, Any] = {"protocolVersion": version, "capabilities": can, "serverInfo": about}
        case "tools/list":
            result = {"tools": [tool(number) for number in range(1, count + 1)]}
        case "resources/list" | "resources/templates/list" | "prompts/list" as method:
            key = {"resources/templates/list": "resourceTemplates"}.get(method, method.partition("/")[0])
            result = {key: []}
        case "tools/call":
            result = {"content": [{"type": "text", "text": "nothing found"}]}
        case "ping":
            result = {}
        case method:
            return {"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": f"no {method}"}}
    return {"jsonrpc": "2.0", "id": request["id"], "result": result}


def main() -> None:
    """Answer requests until standard input ends; notifications have no id and get no answer."""
    count = int(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request and "method" in request:
            sys.stdout.write(json.dumps(answer(request, count)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
