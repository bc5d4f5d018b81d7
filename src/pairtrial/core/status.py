"""Statuses and stop reasons: one definition for harness, score and report."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """How one attempt of a cell ended. Only the first two are grades; the others are never 0."""

    RESOLVED = "resolved"
    UNRESOLVED = "unresolved"
    SETUP_FAILURE = "setup_failure"
    INVALID_ENVIRONMENT = "invalid_environment"
    CONTAMINATED = "contaminated"
    TAMPERED = "tampered"
    GRADING_ERROR = "grading_error"
    SANDBOX_LOST = "sandbox_lost"
    CANCELLED = "cancelled"
    CLEANUP_FAILURE = "cleanup_failure"

    @property
    def is_graded(self) -> bool:
        """True for resolved and unresolved."""
        return self in (Status.RESOLVED, Status.UNRESOLVED)

    @property
    def is_infrastructure(self) -> bool:
        """True where the machine failed, not the agent: the only kind that a plan may let run again."""
        return self in (Status.SANDBOX_LOST, Status.CLEANUP_FAILURE, Status.SETUP_FAILURE)


class StopReason(StrEnum):
    """Why the agent stopped. The work that it left is graded whatever the reason (intention to treat)."""

    FINISHED = "finished"
    """The agent believes that it is done; says nothing about whether it is."""
    GAVE_UP = "gave_up"
    TURN_LIMIT = "turn_limit"
    SPEND_LIMIT = "spend_limit"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    NOT_STARTED = "not_started"
