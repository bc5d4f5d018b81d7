"""Every error that pairtrial raises on purpose.

::

    PairtrialError                 exit 1  base; never raised itself
    ├── UsageError                 exit 2  the command line asks for something impossible
    ├── PlanError                  exit 1  a plan, lock or schedule is wrong or has drifted
    ├── TaskError                  exit 1  a task, target, pack or source is wrong
    ├── ProviderError              exit 1  a provider is wrong, or broke its contract
    ├── AgentError                 exit 1  an agent adapter or its manifest is wrong
    ├── GradeError                 exit 1  grading could not give a verdict
    ├── ReceiptError               exit 1  a receipt, journal or run folder is wrong
    ├── SandboxError               exit 4  a sandbox failed
    │   └── SandboxUnavailableError  exit 4  this machine cannot give the isolation that the plan wants
    └── EnvironmentFault           exit 4  disk, registry, lock file: this machine, not the plan

Outcomes that an experiment expects (timeout, agent crash, tampering) are statuses in receipts, not exceptions.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a command returns; the same table stands in the README."""

    OK = 0
    REFUSED = 1
    """A gate or check said no."""
    USAGE = 2
    INCONCLUSIVE = 3
    ENVIRONMENT = 4
    INTERRUPTED = 130


class PairtrialError(Exception):
    """An error with a message that names the file, the field and the fix.

    Parameters
    ----------
    message
        One sentence; several problems go one on a line.
    hint
        What to do about it.
    slug
        Stable name of the fault, for tests and for the documentation.
    """

    exit_code: ExitCode = ExitCode.REFUSED

    def __init__(self, message: str, *, hint: str | None = None, slug: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.slug = slug

    def __str__(self) -> str:
        return f"{self.message}\n  fix: {self.hint}" if self.hint else self.message


class UsageError(PairtrialError):
    """The command line asks for something impossible."""

    exit_code = ExitCode.USAGE


class PlanError(PairtrialError):
    """A plan, lock or schedule is wrong, or has drifted since it was frozen."""


class TaskError(PairtrialError):
    """A task, target, pack or source is wrong."""


class ProviderError(PairtrialError):
    """A provider is wrong, or broke its contract."""


class AgentError(PairtrialError):
    """An agent adapter or its manifest is wrong."""


class GradeError(PairtrialError):
    """Grading could not give a verdict."""


class ReceiptError(PairtrialError):
    """A receipt, journal or run folder is wrong."""


class SandboxError(PairtrialError):
    """A sandbox failed; seen by the rollout, which records ``sandbox_lost``."""

    exit_code = ExitCode.ENVIRONMENT


class SandboxUnavailableError(SandboxError):
    """This machine cannot give the isolation that the plan wants; seen by the user before any rollout."""


class EnvironmentFault(PairtrialError):
    """The machine is at fault (disk, registry, lock file), not the plan."""

    exit_code = ExitCode.ENVIRONMENT
