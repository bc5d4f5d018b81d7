"""What this machine can do: each kind of sandbox tried, not guessed."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio

from pairtrial.core.errors import SandboxError, SandboxUnavailableError
from pairtrial.sandbox.cgroups import find_hierarchies
from pairtrial.sandbox.engine import engine
from pairtrial.sandbox.make import make_sandbox
from pairtrial.sandbox.protocol import Limits, SandboxSpec


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's screen."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    """What to install or change; empty when nothing is wanting."""


def survey() -> list[Finding]:
    """Look at everything a sandbox needs."""
    return [_system(), _local(), _bubblewrap(), _docker(), _user_namespaces(), _control_groups(), _scratch()]


def _system() -> Finding:
    linux = sys.platform == "linux"
    python = platform.python_version()
    detail = f"{platform.system()} {platform.release()}, {os.cpu_count()} cores, Python {python}"
    return Finding("system", linux, detail, "" if linux else "only the sandbox 'local' is possible here")


def _local() -> Finding:
    return _try("local", None)


def _bubblewrap() -> Finding:
    return _try("bubblewrap", None)


def _docker() -> Finding:
    try:
        known = engine()
    except SandboxUnavailableError as fault:
        start = "start it (systemctl start docker, or dockerd)"
        install = "install it (Debian, Ubuntu: docker.io)"
        fix = start if shutil.which("dockerd") else install
        return Finding("docker", False, fault.message, f"{fix}, or set DOCKER_HOST=unix:///path/of/its/socket")
    images = [tag for item in known.api.images() for tag in item.get("RepoTags") or () if tag.startswith("pairtrial/")]
    detail = f"engine {known.version}, API {known.api_version}, {known.storage}, control groups v{known.cgroup_version}"
    if not images:
        fix = "no image of ours yet: python sandbox/images/host/build.py, or name an image of your own in the plan"
        return Finding("docker", True, detail, fix)
    tried = _try("docker", images[0])
    return Finding("docker", tried.ok, f"{detail}; {tried.detail}", tried.fix)


def _try(kind: str, image: str | None) -> Finding:
    """Run one command in a sandbox of this kind."""
    with tempfile.TemporaryDirectory(prefix="pairtrial-doctor-") as scratch:
        spec = SandboxSpec(label="doctor", scratch=Path(scratch), image=image, limits=Limits(wall_s=30))
        try:
            sandbox = make_sandbox(kind, spec)
            isolation, ran = anyio.run(partial(_true, sandbox))
        except SandboxError as fault:
            return Finding(kind, False, fault.message, fault.hint or "")
    return Finding(kind, ran, f"isolation {isolation}" + ("" if ran else ", but a command failed"))


async def _true(sandbox: object) -> tuple[str, bool]:
    from pairtrial.sandbox.protocol import Sandbox

    box: Sandbox = sandbox  # type: ignore[assignment]
    try:
        await box.prepare()
        result = await box.exec(["true"], env={"PATH": "/usr/bin:/bin"}, timeout_s=30)
        return box.isolation.value, result.ok
    finally:
        await box.destroy()


def _user_namespaces() -> Finding:
    if sys.platform != "linux":
        return Finding("namespaces", False, "none: not Linux")
    try:
        most = int(Path("/proc/sys/user/max_user_namespaces").read_text())
    except (OSError, ValueError):
        most = 0
    restricted = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    held_back = restricted.exists() and restricted.read_text().strip() == "1" and os.geteuid() != 0
    if most == 0 or held_back:
        fix = "allow them: sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns"
        return Finding("namespaces", False, "user namespaces are closed to this user", fix)
    return Finding("namespaces", True, f"user namespaces open (at most {most})")


def _control_groups() -> Finding:
    found = find_hierarchies()
    if found is None:
        fix = "run as root or below a delegated group (systemd-run --user --scope -p Delegate=yes …)"
        detail = "none that we may use: memory is limited for each process by itself, CPU not at all (docker: engine)"
        return Finding("control groups", False, detail, fix)
    return Finding("control groups", True, f"v{found.version}: {', '.join(sorted(found.parents))}")


def _scratch() -> Finding:
    memory = Path("/dev/shm")  # noqa: S108 - looked at, not written
    if not memory.is_dir():
        return Finding("scratch", True, "no tmpfs found; work trees go to the disk")
    state = os.statvfs(memory)
    free = state.f_bavail * state.f_frsize >> 20
    shown = shutil.disk_usage(tempfile.gettempdir()).free >> 20
    return Finding("scratch", True, f"{memory} has {free} MB free (--scratch {memory} is fastest); temp {shown} MB")
