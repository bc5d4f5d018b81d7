"""The receipt: the immutable record of one attempt of a cell."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pairtrial.core.canonical import canonical_json
from pairtrial.core.model import Model, RelPath, Sha256, Slug, UtcTime
from pairtrial.core.status import Status, StopReason

RECEIPT_FILE = "receipt.json"


class CellRecord(Model):
    """Which cell, and where it stood in the schedule."""

    id: str
    task: Slug
    arm: Slug
    repetition: int
    block: int
    """0-based place of the block in the schedule."""
    position: int
    """0-based place inside the block."""
    seed: int


class SandboxRecord(Model):
    """The isolation that was had."""

    kind: str
    isolation: str
    paths: Literal["fixed", "same-length"]
    """`fixed`: every rollout sees the same absolute paths; `same-length`: they differ between rollouts."""
    facts: dict[str, str] | None = None
    """What the sandbox found out about itself: limits in force, versions, user, image."""


class ServerRecord(Model):
    """An MCP server as the agent's startup event reported it."""

    name: str
    status: str
    tools: tuple[str, ...]


class StartupRecord(Model):
    """Evidence that the arm was delivered."""

    agent: str
    version: str
    model: str
    servers: tuple[ServerRecord, ...]
    tools: tuple[str, ...]
    problems: tuple[str, ...]
    """What differed from the arm as registered; empty when the assertion held."""


class GradeRecord(Model):
    """What the hidden checks said."""

    fail_to_pass: int
    """How many of them passed."""
    fail_to_pass_total: int
    pass_to_pass: int
    pass_to_pass_total: int
    broken: tuple[str, ...]
    """Ids of pass_to_pass that did not pass (the first hundred)."""
    missed: tuple[str, ...]
    """Ids of fail_to_pass that did not pass (the first hundred)."""
    touched: tuple[str, ...]
    """Protected paths that the work touched; they were put back before grading."""


class Times(Model):
    """Seconds of a monotonic clock."""

    setup_s: float
    index_s: float | None
    agent_s: float | None
    grading_s: float | None


class Usage(Model):
    """What the agent used, as far as it was measured; a missing figure is null."""

    model: str
    steps: int | None
    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    cost_usd: str | None


class WireRecord(Model):
    """What the gateway saw; absent for an agent that asks no model."""

    requests: int
    main_requests: int
    """Requests that offer tools: the others are titles, summaries and counts."""
    refused: int
    errors: int
    """Answers of the provider that report an error."""
    unfinished: int
    """Answers that broke off."""
    unpriced: int
    """Requests whose usage is not known; the budget counts them at their ceiling."""
    relayed: int
    """Requests to hosted MCP servers."""
    served: tuple[str, ...]
    """Models that answered, by their own word."""
    first_request_bytes: int | None
    first_request_tools: tuple[str, ...] | None
    cost_neutral_usd: str | None
    """Cost as if no provider cache existed."""
    capped: bool
    truncated: bool
    """Whether the wire log was cut at its cap."""


class Receipt(Model):
    """One attempt. Written once, never changed."""

    schema_: Annotated[Literal["pairtrial.receipt.v1"], Field(alias="schema")]
    plan_id: Sha256
    cell: CellRecord
    attempt: Annotated[int, Field(ge=1)]
    regrades: Annotated[int, Field(ge=1)] | None = None
    """The attempt whose work was graded again; null where the agent ran. The agent's part is that attempt's, unchanged."""
    status: Annotated[Status, Field(strict=False)]
    reason: str | None
    """Why, for every status but resolved."""
    stop_reason: Annotated[StopReason, Field(strict=False)]
    limit: str | None
    """The limit that stopped the agent, by name, where one did."""
    started_at: UtcTime
    observed: dict[str, str]
    """Digests seen at launch: workspace, MCP file, invocation, provider, environment."""
    toolchain: dict[str, str]
    sandbox: SandboxRecord
    startup: StartupRecord | None
    grade: GradeRecord | None
    usage: tuple[Usage, ...]
    wire: WireRecord | None = None
    tool_calls: int | None
    context_tool_calls: int | None
    """Calls to the arm's MCP servers; null where the stream was lost."""
    files_modified: tuple[RelPath, ...] | None
    turns: tuple[Sha256, ...] | None = None
    """SHA-256 of each turn's prompt in the order in which they were sent; null for a prompt of one turn."""
    files_read: tuple[RelPath, ...] | None = None
    """Files that the agent's own reading tools read, by its own stream; null where that cannot tell. What a shell command
    read is in no list."""
    times: Times
    truncated: bool
    """Whether any log or list was cut at its cap."""
    redactions: int
    files: dict[str, Sha256]
    """Name → SHA-256 of what lies beside the receipt."""
    journal_prev: Sha256
    """Hash of the journal line before this receipt's."""

    def to_bytes(self) -> bytes:
        """Canonical JSON, one line; a field that a later version adds is not in the receipts of earlier ones."""
        return canonical_json(self.model_dump(mode="json", by_alias=True, exclude_unset=True)) + b"\n"


def rounded(seconds: float | None) -> float | None:
    """Milliseconds are enough; the rest is noise in a record."""
    return None if seconds is None else round(seconds, 3)


__all__ = [
    "RECEIPT_FILE", "CellRecord", "GradeRecord", "Receipt", "SandboxRecord", "ServerRecord", "StartupRecord", "Times",
    "Usage", "WireRecord", "rounded",
]  # fmt: skip
