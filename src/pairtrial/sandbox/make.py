"""From the name of a sandbox to the sandbox; never a weaker one than was asked for."""

from __future__ import annotations

from pairtrial.core.errors import SandboxUnavailableError
from pairtrial.sandbox.local import LocalSandbox
from pairtrial.sandbox.protocol import Isolation, Sandbox, SandboxSpec

KINDS = {"local": Isolation.NONE, "bubblewrap": Isolation.NAMESPACES, "docker": Isolation.CONTAINER}


def make_sandbox(kind: str, spec: SandboxSpec, *, wanted: Isolation | None = None) -> Sandbox:
    """A sandbox of exactly this kind; raises `SandboxUnavailableError` where this machine has it not.

    ``wanted`` is the isolation that the plan states: a kind that gives less is refused.
    """
    if kind not in KINDS:
        raise SandboxUnavailableError(f"sandbox kind {kind!r}: one of {', '.join(KINDS)}", slug="unknown-sandbox")
    order = list(Isolation)
    if wanted is not None and order.index(KINDS[kind]) < order.index(wanted):
        raise SandboxUnavailableError(
            f"the plan wants isolation {wanted.value!r}, and the sandbox {kind!r} gives {KINDS[kind].value!r}",
            hint=f"use {' or '.join(name for name, given in KINDS.items() if given is wanted)}",
            slug="weaker-isolation",
        )
    if kind == "local":
        return LocalSandbox(spec)
    if kind == "bubblewrap":
        from pairtrial.sandbox.bubblewrap import BubblewrapSandbox

        return BubblewrapSandbox(spec)
    from pairtrial.sandbox.docker import DockerSandbox

    return DockerSandbox(spec)
