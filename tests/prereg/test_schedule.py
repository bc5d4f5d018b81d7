"""The schedule: the same bytes everywhere, balanced, and stable when a task is added."""

from __future__ import annotations

import hashlib
from itertools import pairwise

from factories import make_plan

from pairtrial.prereg.schedule import agent_seed, position_counts, schedule, schedule_digest


def key(seed: str, purpose: str, item: str) -> str:
    return hashlib.sha256(f"{seed}\n{purpose}\n{item}".encode()).hexdigest()


def test_blocks_stand_in_the_order_of_their_hashes() -> None:
    plan = make_plan(repetitions=2, analysis={"primary": "sign-flip-exact", "family": ["treat"]})
    expected = sorted(
        (f"{t}/r{r}" for t in ("t1", "t2", "t3") for r in (1, 2)), key=lambda x: key("s", "block-order", x)
    )
    assert [f"{block.task}/r{block.repetition}" for block in schedule(plan)] == expected


def test_six_blocks_of_three_arms_are_a_whole_williams_design() -> None:
    tasks = {"pack": "pack", "ids": [f"t{i}" for i in range(6)]}
    blocks = schedule(make_plan(tasks=tasks))
    assert position_counts(blocks) == {"aa": [2, 2, 2], "control": [2, 2, 2], "treat": [2, 2, 2]}
    follows = [(a.arm, b.arm) for block in blocks for a, b in pairwise(block.cells)]
    assert {pair: follows.count(pair) for pair in follows} == dict.fromkeys(
        [(a, b) for a in ("aa", "control", "treat") for b in ("aa", "control", "treat") if a != b], 2
    )


def test_the_same_plan_gives_the_same_schedule_and_another_seed_another() -> None:
    assert schedule_digest(schedule(make_plan())) == schedule_digest(schedule(make_plan()))
    assert schedule_digest(schedule(make_plan())) != schedule_digest(schedule(make_plan(seed="other")))


def test_adding_a_task_keeps_the_order_of_the_others() -> None:
    few = {"pack": "pack", "ids": [f"t{i}" for i in range(8)]}
    more = {"pack": "pack", "ids": [f"t{i}" for i in range(9)]}
    before = [block.task for block in schedule(make_plan(tasks=few))]
    after = [block.task for block in schedule(make_plan(tasks=more)) if block.task != "t8"]
    assert before == after


def test_every_cell_has_a_seed_of_its_own() -> None:
    cells = [cell for block in schedule(make_plan()) for cell in block.cells]
    assert len({cell.seed for cell in cells}) == len(cells) == 9
    cell = next(cell for cell in cells if cell.id == "t1.control.r1")
    assert cell.seed == int(key("s", "agent-seed", "t1.control.r1")[:8], 16) >> 1 == agent_seed("s", cell.id)
