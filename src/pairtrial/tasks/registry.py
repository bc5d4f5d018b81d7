"""Running the download tool of a registry as the user has set it up; no host is named here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from pairtrial.core.errors import EnvironmentFault
from pairtrial.sandbox.process import run

TIMEOUT_S = 600.0
_DROPPED = ("PYTHON", "VIRTUAL_ENV", "GIT_", "npm_config_prefix", "NODE_OPTIONS", "NODE_PATH")


def tool_env() -> dict[str, str]:
    """The user's environment, without what would change what a tool does."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
    return {**kept, "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}


async def call(argv: Sequence[str], folder: Path, *, wants: str, hint: str) -> tuple[int, str, str]:
    """Exit code, what was printed and what was complained about; `EnvironmentFault` when the tool is not there."""
    if shutil.which(argv[0]) is None:
        raise EnvironmentFault(f"{wants} needs {argv[0]}, which is not installed", hint=hint, slug="missing-tool")
    done = await run(argv, env=tool_env(), cwd=folder, timeout_s=TIMEOUT_S, output_cap=4 << 20)
    code = done.exit_code if done.exit_code is not None else -1
    return code, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def said(text: str, limit: int = 600) -> str:
    """Output of a tool on one line, without addresses: they may hold credentials."""
    words = ["(address)" if "://" in word else word for word in text.split()]
    return " ".join(words)[-limit:]


def only_file(folder: Path, suffix: str) -> Path | None:
    """The one file that a download left."""
    found = sorted(path for path in folder.iterdir() if path.name.endswith(suffix))
    return found[0] if len(found) == 1 else None
