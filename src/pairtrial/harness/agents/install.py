"""Installing agents by name, pinned version and digest: ``python -m pairtrial.harness.agents.install NAME[@VERSION]…``.

npm packages are single packages without dependencies and without install scripts; wheels carry a binary or come with a
lock that holds the hash of every package. Nothing is used whose digest is not the one in the manifest. A client that
hangs is ended and tried again, a bounded number of times.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from pairtrial.core.disk import remove_tree
from pairtrial.core.errors import AgentError, EnvironmentFault, ExitCode, PairtrialError
from pairtrial.harness.agents.base import AgentManifest, ProgramSource, load_manifest
from pairtrial.harness.agents.programs import agents_folder, install_folder, installed_digest, this_platform
from pairtrial.sandbox import host_env, run_blocking

TIMEOUT_S = 300.0
"""For one try of a registry's client; the largest agent is 180 MB."""
TRIES = 3
HERE = Path(__file__).parent


def manifests() -> dict[str, AgentManifest]:
    """Every manifest beside this module that names programs."""
    here = Path(__file__).parent
    found = [load_manifest(str(path.with_suffix(".py"))) for path in sorted(here.glob("*.yaml"))]
    return {manifest.id: manifest for manifest in found if manifest.programs}


def install_command(source: ProgramSource, folder: Path) -> list[str]:
    """The registry's ordinary client, told the exact release."""
    if source.registry == "npm":
        words = [
            "npm",
            "install",
            "--ignore-scripts",
            "--omit=optional",
            "--no-audit",
            "--no-fund",
            "--force",
            "--fetch-timeout=60000",
            "--fetch-retries=1",
        ]
        return [*words, "--prefix", str(folder), f"{source.package}@{source.release}"]
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
    words = [uv, "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--python", sys.executable]
    words += ["--target", str(folder)]
    if source.lock is not None:
        return [*words, "--require-hashes", "-r", str(HERE / source.lock)]
    return [*words, f"{source.package}=={source.release}"]


def fetch(name: str, source: ProgramSource, folder: Path, *, timeout_s: float = TIMEOUT_S, tries: int = TRIES) -> None:
    """Let the registry's client fill the folder; each try has a time limit and an empty folder."""
    for number in range(1, tries + 1):
        remove_tree(folder)
        folder.mkdir(parents=True)
        result = run_blocking(install_command(source, folder), env=host_env(), timeout_s=timeout_s)
        if result.ok:
            return
        text = result.stderr.decode(errors="replace").strip()[-600:]
        reason = f"gave no answer within {timeout_s:g} s and was ended" if result.timed_out else f"failed: {text}"
        print(f"{name}: try {number} of {tries}: the client of {source.registry} {reason}", file=sys.stderr)  # noqa: T201
    raise EnvironmentFault(
        f"{name}: the client of {source.registry} {reason}; tried {tries} times",
        hint=f"see that the {source.registry} registry can be reached, then run the same command again",
        slug="install",
    )


def install(manifest: AgentManifest, version: str) -> bool:
    """Install one version; False when it is here already. Raises `PairtrialError`."""
    source = manifest.programs[version]
    final = install_folder(manifest, version)
    wanted = source.sha256.get(this_platform(), source.sha256.get("any"))
    if wanted is None:
        raise AgentError(f"{manifest.id} {version}: no digest is known for {this_platform()}", slug="agent-platform")
    if (final / source.path).is_file() and installed_digest(source, final) == wanted:
        return False
    agents_folder().mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=".building-", dir=agents_folder()))
    try:
        fetch(f"{manifest.id} {version}", source, building)
        if not (building / source.path).is_file():
            raise AgentError(f"{manifest.id} {version}: the package holds no {source.path}", slug="agent-missing")
        seen = installed_digest(source, building)
        if seen != wanted:
            raise AgentError(f"{manifest.id} {version}: digest {seen}, measured was {wanted}", slug="agent-digest")
        remove_tree(final)
        building.rename(final)
    finally:
        remove_tree(building)
    return True


def main(arguments: list[str]) -> int:
    """Install what is named; everything when nothing is."""
    known = manifests()
    code = ExitCode.OK
    for word in arguments or sorted(known):
        name, _, version = word.partition("@")
        if name not in known or (version and version not in known[name].programs):
            print(f"unknown agent {word}; known are {', '.join(sorted(known))}", file=sys.stderr)  # noqa: T201
            return ExitCode.USAGE
        for one in [version] if version else known[name].programs:
            try:
                done = install(known[name], one)
                print(f"{name} {one}: {'installed' if done else 'is here'}")  # noqa: T201 - a command of its own
            except PairtrialError as fault:
                print(f"error: {fault}", file=sys.stderr)  # noqa: T201
                code = fault.exit_code
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
