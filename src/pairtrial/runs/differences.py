"""Whether the rollouts of a run were started as registered: alike in every arm, but for declared differences.

Every receipt holds the digest of its command line, environment, standard input and settings, and the flags in which its
arm differs. Both are compared here with the lock and with each other, from the receipts alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pairtrial.prereg.lock import Lock
from pairtrial.runs.receipt import Receipt


def flags_name(arm: str) -> str:
    """Name in the lock of the flags in which an arm differs."""
    return f"arm.{arm}.flags"


@dataclass(slots=True)
class StartCheck:
    """Collects starts by block, receipt by receipt."""

    lock: Lock
    blocks: dict[tuple[str, int], dict[str, set[str]]] = field(default_factory=dict)
    """(task, repetition) → arm → digests of its invocations."""

    def take(self, receipt: Receipt) -> list[str]:
        """Remember a receipt; gives what is wrong with its flags."""
        digest, arm = receipt.observed.get("invocation"), receipt.cell.arm
        if digest is None:  # it never came to a start
            return []
        arms = self.blocks.setdefault((receipt.cell.task, receipt.cell.repetition), {})
        arms.setdefault(arm, set()).add(digest)
        name, problems, identities = f"{receipt.cell.id}/{receipt.attempt}", [], self.lock.identities
        seen, registered = receipt.observed.get("flags", ""), identities.get(flags_name(arm), "")
        if seen != registered:
            problems.append(
                f"{name}: started with other flags ({seen or 'none'}) than registered ({registered or 'none'})"
            )
        if receipt.observed.get("mcp-file") != identities.get(f"arm.{arm}.mcp-file", receipt.observed.get("mcp-file")):
            problems.append(f"{name}: started with another MCP file than registered for {arm}")
        return problems

    def problems(self) -> list[str]:
        """Blocks in which arms without a declared difference were started differently, or one with it was not."""
        found = []
        declared = {arm.name for arm in self.lock.plan.arms if self.lock.identities.get(flags_name(arm.name))}
        for (task, repetition), arms in sorted(self.blocks.items()):
            plain = {digest for arm, digests in arms.items() if arm not in declared for digest in digests}
            name = f"{task}, repetition {repetition}"
            if len(plain) > 1:
                found.append(f"{name}: arms without a declared difference were started differently")
            for arm in sorted(declared & arms.keys()):
                if len(arms[arm]) > 1:
                    found.append(f"{name}: the attempts of {arm} were started differently")
        return found
