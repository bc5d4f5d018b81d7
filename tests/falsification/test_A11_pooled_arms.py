"""A11: two arms that differ only in their MCP servers are two arms, and a result belongs to the arm whose file it had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import zstandard
from factories import make_lock, make_plan, receipts_for
from rollout_cases import write_provider

from pairtrial.core.canonical import sha256_hex
from pairtrial.core.status import Status
from pairtrial.prereg.lock import Lock
from pairtrial.providers.contract import mcp_template
from pairtrial.report.score import JournalFacts, score
from pairtrial.runs.receipt import Receipt
from pairtrial.runs.store import RunStore
from pairtrial.runs.verify import verify_run

ARMS = [
    {"name": "control", "kind": "control"},
    {"name": "shallow", "kind": "treatment", "provider": "shallow"},
    {"name": "deep", "kind": "treatment", "provider": "deep"},
    {"name": "aa", "kind": "replicate"},
]


def files_of(root: Path) -> dict[str, str]:
    """Arm → digest of its MCP file; the two treatments differ in one word of their server's environment."""
    table = {"control": sha256_hex(mcp_template(None)), "aa": sha256_hex(mcp_template(None))}
    for name in ("shallow", "deep"):
        server = {"command": "${PYTHON}", "args": ["x"], "env": {"DEPTH": name}, "tools": ["look"]}
        table[name] = sha256_hex(mcp_template(write_provider(root / name, {"servers": {"looker": server}}).config))
    return table


def registered(files: dict[str, str]) -> Lock:
    analysis: dict[str, Any] = {"primary": "mcnemar-exact", "family": ["shallow", "deep"]}
    identities = {f"arm.{name}.mcp-file": digest for name, digest in files.items()}
    return make_lock(make_plan(arms=ARMS, analysis=analysis), **identities)


def verified(root: Path, lock: Lock, observed: dict[str, dict[str, str]], files: dict[str, str]) -> list[str]:
    """What `verify` names when the receipts of some cells (by id) say something else."""

    def planted(receipt: Receipt) -> Receipt:
        plain = {"invocation": "1", "mcp-file": files[receipt.cell.arm]}
        return receipt.model_copy(update={"observed": observed.get(receipt.cell.id, plain)})

    with RunStore(root, lock) as store:
        for receipt in receipts_for(lock, {}):
            report = zstandard.ZstdCompressor().compress(receipt.status.value.encode())
            store.record(planted(receipt), {"report.zst": report})
        folder = store.folder
    return verify_run(folder, lambda receipt, raw: Status(raw.decode())).problems


def test_a11_every_arm_has_a_digest_of_its_own(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    assert files["control"] == files["aa"]
    assert len(set(files.values())) == 3
    assert verified(tmp_path, registered(files), {}, files) == []


@pytest.mark.parametrize(
    ("arm", "other"),
    [("deep", "shallow"), ("shallow", "deep"), ("deep", "control"), ("control", "deep"), ("aa", "deep")],
)
def test_a11_result_with_another_arms_servers_is_refused(tmp_path: Path, arm: str, other: str) -> None:
    files = files_of(tmp_path)
    planted = {f"t2.{arm}.r1": {"invocation": "1", "mcp-file": files[other]}}
    assert verified(tmp_path, registered(files), planted, files) == [
        f"t2.{arm}.r1/1: started with another MCP file than registered for {arm}"
    ]


def test_a11_result_that_does_not_say_which_servers_it_had_is_refused(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    assert verified(tmp_path, registered(files), {"t1.deep.r1": {"invocation": "1"}}, files) == [
        "t1.deep.r1/1: started with another MCP file than registered for deep"
    ]


def test_a11_arms_are_counted_each_for_itself(tmp_path: Path) -> None:
    """Pooled they would be 2 of 3."""
    lock = registered(files_of(tmp_path))
    outcomes = {f"t{number}.deep.r1": Status.RESOLVED for number in (1, 2, 3)}
    outcomes["t1.shallow.r1"] = Status.RESOLVED
    card = score(lock, receipts_for(lock, outcomes), JournalFacts({}, True))
    assert [(arm.arm, arm.graded, arm.resolved) for arm in card.arms] == [
        ("control", 3, 0), ("shallow", 3, 1), ("deep", 3, 3), ("aa", 3, 0),
    ]  # fmt: skip
    assert [(item.treatment, item.wins, item.losses) for item in card.comparisons if item.registered] == [
        ("shallow", 1, 0),
        ("deep", 3, 0),
    ]
