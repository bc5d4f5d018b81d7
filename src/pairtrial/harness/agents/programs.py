"""Finding an agent's program and proving that it is the one that was measured."""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pairtrial.core.canonical import sha256_file, tree_digest
from pairtrial.core.disk import cache_root
from pairtrial.core.errors import AgentError
from pairtrial.harness.agents.base import AgentManifest, ProgramSource

FOLDER_VARIABLE = "PAIRTRIAL_AGENTS"
"""Names another folder than ``agents`` in the cache."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program on this machine."""

    command: tuple[str, ...]
    """Words in front of its arguments: the program, or its interpreter and the program."""
    folder: Path
    """Everything that it needs to read, its interpreter excepted."""
    interpreter: Path | None
    digest: str
    pinned: bool
    """Whether the manifest knows the digest for this platform; if not, the lock pins what is here."""


def agents_folder() -> Path:
    """Where `install-agents.sh` puts agents."""
    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named) if named else cache_root() / "agents"


def install_folder(manifest: AgentManifest, version: str) -> Path:
    """Folder of one version."""
    source = manifest.programs.get(version)
    named = source.folder if source else None
    return agents_folder() / (named or f"{manifest.id}-{version}")


def this_platform() -> str:
    """``linux-x86_64``."""
    return f"{platform.system().lower()}-{platform.machine()}"


def find_program(manifest: AgentManifest, version: str) -> Program:
    """The program of a version; raises `AgentError` when it is not here or not the one that was measured."""
    return _find(manifest.id, version, str(install_folder(manifest, version)), _source(manifest, version))


def _source(manifest: AgentManifest, version: str) -> str:
    source = manifest.programs.get(version)
    if source is None:
        raise AgentError(
            f"agent.version: {manifest.id} {version} has no program in its manifest; "
            f"measured are {', '.join(manifest.versions)}",
            slug="unknown-version",
        )
    return source.model_dump_json()


@cache
def _find(agent: str, version: str, folder_name: str, source_json: str) -> Program:
    source, folder = ProgramSource.model_validate_json(source_json), Path(folder_name)
    path = folder / source.path
    if not path.is_file():
        raise AgentError(
            f"{agent} {version} is not installed ({path} is missing)",
            hint=f"bash harness/install-agents.sh {agent}@{version}",
            slug="agent-missing",
        )
    digest = installed_digest(source, folder)
    wanted = source.sha256.get(this_platform(), source.sha256.get("any"))
    if wanted is not None and digest != wanted:
        raise AgentError(
            f"{agent} {version}: {path} has digest {digest[:16]}…, measured was {wanted[:16]}…",
            hint=f"install it anew: bash harness/install-agents.sh {agent}@{version}",
            slug="agent-digest",
        )
    interpreter = None
    if source.interpreter is not None:
        found = shutil.which(source.interpreter)
        if found is None:
            raise AgentError(f"{agent} needs {source.interpreter} on PATH", slug="agent-missing")
        interpreter = Path(found)
    words = (str(path),) if interpreter is None else (str(interpreter), str(path))
    return Program(words, folder.resolve(), interpreter, digest, wanted is not None)


def installed_digest(source: ProgramSource, folder: Path) -> str:
    """Digest of what is installed, in the manifest's own terms."""
    if source.digest_of is not None:
        return tree_digest(folder / source.digest_of)
    return sha256_file(folder / source.path)


def own_code(*names: str) -> dict[str, str]:
    """SHA-256 of the files that drive an agent, beside this module, and of those that every agent's sessions share."""
    here = Path(__file__).parent
    return {name: sha256_file(here / name) for name in (*names, "base.py", "reads.py", "session.py")}
