"""Where commands run: the `Sandbox` protocol, its backends, and the one process helper."""

from pairtrial.sandbox.make import make_sandbox
from pairtrial.sandbox.process import host_env, run, run_blocking
from pairtrial.sandbox.protocol import ExecResult, Isolation, Limits, Mount, Process, Sandbox, SandboxSpec
from pairtrial.sandbox.sweep import Swept, new_scratch, sweep

__all__ = [
    "ExecResult",
    "Isolation",
    "Limits",
    "Mount",
    "Process",
    "Sandbox",
    "SandboxSpec",
    "Swept",
    "host_env",
    "make_sandbox",
    "new_scratch",
    "run",
    "run_blocking",
    "sweep",
]
