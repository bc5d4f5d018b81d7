"""From the name of a sandbox to the sandbox; never a weaker one than was asked for."""

from __future__ import annotations

from pairtrial.core.errors import SandboxUnavailableError
from pairtrial.sandbox.local import LocalSandbox
from pairtrial.sandbox.protocol import Isolation, Sandbox, SandboxSpec

KINDS = {"local": Isolation.NONE, "bubblewrap": Isolation.NAMESPACES, "docker": Isolation.CONTAINER}


def make_sandbox(kind: str, spec: SandboxSpec) -> Sandbox:
    """A sandbox of exactly this kind; raises `SandboxUnavailableError` where this machine has it not."""
    if kind == "local":
        return LocalSandbox(spec)
    raise SandboxUnavailableError(f"sandbox kind {kind!r}: one of {', '.join(KINDS)}", slug="unknown-sandbox")
