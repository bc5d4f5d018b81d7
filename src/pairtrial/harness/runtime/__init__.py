"""The interpreter inside an agent's sandbox: an environment with the MCP SDK and the embedded agent, nothing else.

Our own environment would do, but it holds packages that are targets of tasks (click and markdown-it-py come with any
command line program), so an agent that reads ``site-packages`` would find there what the defect took away. This one is
made from ``requirements.lock`` beside this module: the MCP SDK and what it imports, without the web server and its
command line, which no stdio server needs.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread

from pairtrial.core.canonical import digest_json, sha256_file, tree_digest
from pairtrial.core.disk import write_atomic
from pairtrial.core.errors import EnvironmentFault
from pairtrial.sandbox.process import run
from pairtrial.tasks.locking import kept, publish
from pairtrial.tasks.virtualenv import (
    install_arguments,
    installed,
    interpreter,
    run_uv,
    said_by,
    site_packages,
    venv_arguments,
)

LOCK = Path(__file__).parent / "requirements.lock"
RECORD = "pairtrial-runtime.json"
_FORMAT = 1
_PACKAGE = Path(__file__).resolve().parents[2]
_PROGRAM = ("__init__.py", "harness/__init__.py", "harness/tinker")
"""What of our own package the embedded agent consists of."""
_WORKS = "import mcp, mcp.client.stdio, mcp.server.lowlevel, mcp.server.stdio, pairtrial.harness.tinker"


@dataclass(frozen=True, slots=True)
class Runtime:
    """An interpreter that agents, MCP servers and indexers run with, as ``${PYTHON}``."""

    python: Path
    folders: tuple[Path, ...]
    """What a sandbox must show of it."""
    digest: str
    """Of interpreter, platform, packages and program: equal where agents run on the same."""


def runtime_identity() -> str:
    """What a lock holds of the runtime: the digest of its own lock, the same on every platform."""
    return sha256_file(LOCK)


async def build_runtime(cache: Path) -> Runtime:
    """The runtime, from the cache or built now; `EnvironmentFault` when the index does not deliver."""
    ingredients = {
        "format": _FORMAT,
        "lock": runtime_identity(),
        "program": await anyio.to_thread.run_sync(_program_digest),
        "python": sys.version,
        "interpreter": interpreter(),
        "platform": sysconfig.get_platform(),
    }
    final = cache / "runtimes" / digest_json(ingredients)[:32]
    return await kept(cache, "runtime", final, _load, _build)


def _program_digest() -> str:
    parts = {name: _PACKAGE / name for name in _PROGRAM}
    return digest_json(
        {
            name: tree_digest(path, exclude=("__pycache__",)) if path.is_dir() else sha256_file(path)
            for name, path in parts.items()
        }
    )


def _load(final: Path) -> Runtime | None:
    """What is in the cache, when every file of it is as it was built; somebody may have written into it."""
    try:
        record = json.loads((final / RECORD).read_bytes())
        if tree_digest(final, exclude=(RECORD,)) != record["tree"]:
            return None
        return Runtime(final / "bin" / "python", (final, Path(sys.base_prefix)), record["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


async def _build(building: Path, final: Path) -> Runtime:
    root = building / "runtime"
    await _uv(venv_arguments(root))
    await _uv(install_arguments(root, LOCK))
    await anyio.to_thread.run_sync(_copy_program, site_packages(root))
    python = os.fspath(root / "bin" / "python")
    program = os.fspath(site_packages(root) / _PACKAGE.name)
    await _own(python, ["-I", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", program])
    await _own(python, ["-I", "-c", _WORKS])
    await anyio.to_thread.run_sync(_write_record, root)
    await anyio.to_thread.run_sync(publish, root, final)
    built = await anyio.to_thread.run_sync(_load, final)
    if built is None:
        raise EnvironmentFault(f"{final}: the runtime that was built cannot be read", slug="environment-failed")
    return built


def _copy_program(site: Path) -> None:
    for name in _PROGRAM:
        source, target = _PACKAGE / name, site / _PACKAGE.name / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, target)


def _write_record(root: Path) -> None:
    identity = {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": sysconfig.get_platform(),
        "packages": installed(root),
        "program": _program_digest(),
    }
    record = {"digest": digest_json(identity), "runtime": identity, "tree": tree_digest(root)}
    write_atomic(root / RECORD, json.dumps(record, indent=1, sort_keys=True).encode())


async def _uv(arguments: list[str]) -> None:
    done = await run_uv(arguments)
    if done.exit_code != 0:
        raise EnvironmentFault(
            f"the runtime of the agents: uv {' '.join(arguments[:2])} failed: {said_by(done)}",
            hint="check the network and the index that uv or pip is configured with",
            slug="environment-failed",
        )


async def _own(python: str, arguments: list[str]) -> None:
    done = await run([python, *arguments], env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}, timeout_s=300.0)
    if done.exit_code != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise EnvironmentFault(f"the runtime of the agents does not work: {''.join(last)}", slug="environment-failed")
