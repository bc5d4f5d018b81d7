"""Downloading one tarball from the registry that npm is configured with."""

from __future__ import annotations

from pathlib import Path

from pairtrial.core.errors import EnvironmentFault, TaskError
from pairtrial.tasks.model import NpmTarball
from pairtrial.tasks.registry import call, only_file, said


async def download_npm(document: NpmTarball, target: Path) -> None:
    """Write the tarball of this name and version to ``target``; its hash is not checked here."""
    folder = target.parent / "npm"
    folder.mkdir()
    wanted = f"{document.name}@{document.version}"
    argv = ["npm", "pack", wanted, "--ignore-scripts", "--no-audit", "--no-update-notifier", "--loglevel=error"]
    code, _, complaint = await call(argv, folder, wants=wanted, hint="install Node.js with npm")
    if code != 0 and ("E404" in complaint or "ETARGET" in complaint or "notarget" in complaint):
        raise TaskError(f"the configured npm registry has no {wanted}", slug="no-such-release")
    found = only_file(folder, ".tgz")
    if code != 0 or found is None:
        raise EnvironmentFault(
            f"{wanted} cannot be downloaded: {said(complaint) or f'npm ended with {code}'}",
            hint="check the network and `npm config get registry`; what has been downloaded before needs no network",
            slug="registry-unreachable",
        )
    found.rename(target)
