"""What exactly is estimated, in the terms of ICH E9(R1): population, treatments, outcome, intercurrent events, summary.

Every event that can come between the start of a rollout and its grade has a registered strategy. There is one lawful
strategy for each here; writing it into the plan makes its author say it, and every report repeats it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import StringConstraints

from pairtrial.core.model import Model

Sentence = Annotated[str, StringConstraints(min_length=10, max_length=600, strip_whitespace=True)]
TreatmentPolicy = Literal["treatment-policy"]
"""The work is graded as it was left, whatever happened (intention to treat)."""
BlockExcluded = Literal["block-excluded"]
"""The cell and its whole block are left out in every arm, counted and listed."""


class IntercurrentEvents(Model):
    """Event → strategy."""

    timeout: TreatmentPolicy
    turn_limit: TreatmentPolicy
    spend_limit: TreatmentPolicy
    crash: TreatmentPolicy
    """The agent itself crashed."""
    invalid_start: BlockExcluded
    """The startup assertion failed: the arm was not delivered."""
    infrastructure_loss: BlockExcluded
    """The machine, not the agent, lost the rollout or its grade."""
    budget_stop: Literal["completed-blocks"]
    """Blind to outcomes: what was complete when the money ended is analysed."""


class Estimand(Model):
    """The registered estimand; outcome and summary measure follow from the plan."""

    population: Sentence
    """Which tasks the result speaks about, and which it does not."""
    intercurrent: IntercurrentEvents


EVENT_WORDS = {
    "treatment-policy": "graded as it was left",
    "block-excluded": "left out with its block in every arm",
    "completed-blocks": "complete blocks are analysed",
}


def describe_estimand(
    estimand: Estimand, *, control: str, treatments: tuple[str, ...], repetitions: int, flagged: tuple[str, ...] = ()
) -> list[str]:
    """The estimand in plain words, one line a part; ``flagged`` are the treatments that declare a second difference."""
    events = estimand.intercurrent.model_dump()
    strategies = "; ".join(f"{name.replace('_', ' ')}: {EVENT_WORDS[value]}" for name, value in events.items())
    runs = "one run" if repetitions == 1 else f"the mean of {repetitions} runs"
    also = f", {', '.join(flagged)} in declared settings of the agent too" if flagged else ""
    return [
        f"Population: {estimand.population}",
        f"Treatments: {', '.join(treatments)} against {control}; arms differ in one file{also}.",
        f"Outcome: a task is resolved when every fail_to_pass and every pass_to_pass test passes; {runs} a task and arm.",
        f"Intercurrent events: {strategies}.",
        "Summary measure: difference between arms in the share of tasks resolved, mean over tasks.",
    ]
