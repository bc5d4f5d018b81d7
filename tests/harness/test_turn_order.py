"""Turns run in their registered order: a session that swaps them makes the rollout void, and the journal tells."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rollout_cases import HEAD, FakeAdapter, Laboratory, make_laboratory

from pairtrial.core.canonical import sha256_hex
from pairtrial.core.status import Status
from pairtrial.harness.agents import Expected, Invocation
from pairtrial.harness.agents.base import NEXT_TURN, Place, split_turns
from pairtrial.harness.agents.session import NOTHING, Reply, encode_line
from pairtrial.harness.batch import Batch
from pairtrial.harness.events import Other, parse_line
from pairtrial.harness.turns import turn_identities
from pairtrial.prereg.plan import AgentSpec
from pairtrial.prereg.schedule import schedule
from pairtrial.runs.journal import parse_journal
from pairtrial.runs.store import RunStore
from pairtrial.sandbox import ExecResult

pytestmark = pytest.mark.anyio
AGENT = HEAD + (
    "start()\nfor n, line in enumerate(sys.stdin, 1):\n    fix()\n    if n == 3: done(); break\n    say(type='next')\n"
)
TEMPLATE = "{{ task }}\n\n{{ test_command }}\n" + f"{NEXT_TURN}\nTwo.\n{NEXT_TURN}\nThree.\n"


class TurnSession:
    """Sends a turn a line, in a planted order; ``honest`` is whether it says which one it sends."""

    def __init__(self, turns: tuple[str, ...], order: tuple[int, ...], honest: bool) -> None:
        self._turns = [turns[number] if number < len(turns) else "Foreign.\n" for number in order]
        self._honest = honest

    def _next(self) -> Reply:
        if not self._turns:
            return Reply(close=True)
        turn = self._turns.pop(0)
        return Reply(send=(encode_line({"text": turn}),), turn=turn if self._honest else None)

    def open(self) -> Reply:
        return self._next()

    def take(self, line: bytes) -> Reply:
        event = parse_line(line)
        if isinstance(event, Other):
            return replace(self._next(), events=(Other(type="native.turn-ended", data={"type": "native.turn-ended"}),))
        return Reply((event,))

    def finish(self, ended: ExecResult) -> Reply:
        return NOTHING


class TurnAdapter(FakeAdapter):
    multi_turn = True

    def __init__(self, order: tuple[int, ...], honest: bool) -> None:
        super().__init__(AGENT)
        self.order, self.honest = order, honest

    def session(self, agent: AgentSpec, invocation: Invocation, expected: Expected, place: Place) -> TurnSession:
        return TurnSession(split_turns(invocation.stdin.decode()), self.order, self.honest)


def laboratory(root: Path, order: tuple[int, ...], honest: bool = True) -> Laboratory:
    lab = make_laboratory(root, AGENT)
    adapter = TurnAdapter(order, honest)
    return replace(lab, experiment=replace(lab.experiment, adapter=adapter, prompt=TEMPLATE))


def registered(lab: Laboratory) -> tuple[str, ...]:
    experiment = lab.experiment
    prompt = experiment.invocation(lab.prepared.task, experiment.plan.agent).stdin.decode()
    assert split_turns(prompt)[1:] == ("Two.\n", "Three.\n")
    return tuple(sha256_hex(turn.encode()) for turn in split_turns(prompt))


@pytest.mark.parametrize("honest", [True, False])
async def test_turns_in_order_are_graded_and_stand_in_the_journal(tmp_path: Path, honest: bool) -> None:
    lab = laboratory(tmp_path, (0, 1, 2), honest)
    with RunStore(tmp_path / "runs", lab.experiment.lock) as store:
        await Batch(lab.experiment, schedule(lab.experiment.plan), store, workers=1).run()
        receipts = [receipt for _, receipt in store.attempts()]
    assert {(receipt.status, receipt.turns) for receipt in receipts} == {(Status.RESOLVED, registered(lab))}
    (path,) = (tmp_path / "runs").glob("*/*/journal.jsonl")
    lines, _ = parse_journal(path.read_bytes(), "j")
    sent = [line.fields for line in lines if line.event == "turn"]
    first = schedule(lab.experiment.plan)[0].cells[0].id
    assert [(item["attempt"], item["turn"], item["sha256"]) for item in sent if item["cell"] == first] == [
        (1, number, digest) for number, digest in enumerate(registered(lab), start=1)
    ]
    assert len(sent) == 9


@pytest.mark.parametrize("honest", [True, False])
@pytest.mark.parametrize(
    ("order", "words"),
    [
        ((1, 0, 2), "turn 2 was sent in place 1"),
        ((0, 2, 1), "turn 3 was sent in place 2"),
        ((0, 0, 1), "turn 1 was sent twice"),
    ],
)
async def test_a_session_that_swaps_turns_is_void_and_not_graded(
    tmp_path: Path, order: tuple[int, ...], words: str, honest: bool
) -> None:
    receipt, files = await laboratory(tmp_path, order, honest).attempt()
    assert (receipt.status, receipt.reason) == (
        Status.INVALID_ENVIRONMENT,
        f"the turns did not run in their order: {words}",
    )
    assert receipt.grade is None
    assert "work.patch" not in files


async def test_a_foreign_turn_is_void(tmp_path: Path) -> None:
    receipt, _ = await laboratory(tmp_path, (0, 7, 1)).attempt()
    assert receipt.status is Status.INVALID_ENVIRONMENT
    assert "place 2 holds a turn that is not registered" in (receipt.reason or "")


def test_the_order_is_registered_only_for_prompts_of_several_turns() -> None:
    found = turn_identities({"one": "Do it.\n", "two": f"A\n{NEXT_TURN}\nB\n"})
    assert found == {"task.two.turns": f"{sha256_hex(b'A' + bytes([10]))} {sha256_hex(b'B' + bytes([10]))}"}
    assert json.dumps(found)
