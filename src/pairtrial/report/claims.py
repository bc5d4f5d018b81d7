"""Which sentence the evidence authorises: evidence gates first, then what test, floor and margin said."""

from __future__ import annotations

from pairtrial.prereg.plan import Plan
from pairtrial.prereg.review import difference_lines
from pairtrial.prereg.wording import ClaimKind
from pairtrial.report.scorecard import Claim, Comparison, Scorecard


def evidence_gates(plan: Plan, card: Scorecard, item: Comparison) -> list[str]:
    """Reasons why the numbers may be described but carry no claim; empty when all gates say yes."""
    gates = []
    if card.embedded:
        gates.append("no language model took part")
    if plan.stage == "feasibility":
        gates.append("feasibility stage")
    if not card.complete:
        left = sum(counts.not_run for counts in card.arms)
        gates.append(f"{left} cells have not been run")
    share = card.blocks_complete / card.blocks_planned if card.blocks_planned else 0.0
    if card.complete and share < plan.analysis.min_complete_blocks:
        gates.append(f"only {card.blocks_complete} of {card.blocks_planned} blocks are complete")
    if not card.replicates:
        gates.append("no replicate arm was registered")
    for replicate in card.replicates:
        if replicate.rate is not None and replicate.rate > replicate.limit:
            gates.append(
                f"{replicate.arm} disagrees with the control in {replicate.rate:.0%} of blocks, "
                f"registered limit {replicate.limit:.0%}"
            )
    p = card.invalidation_p.get(item.treatment)
    if p is not None and p <= plan.analysis.alpha:
        gates.append(f"{item.treatment} and {item.control} lost rollouts unequally (p = {p:.3g})")
    return gates


def authorise(plan: Plan, card: Scorecard, item: Comparison) -> Claim:
    """The claim for one registered comparison, in the plan's own words."""
    gates = evidence_gates(plan, card, item)
    if item.tasks == 0:
        kind, gates = ClaimKind.INVALID, [*gates, "no block is complete"]
    elif gates:
        kind = ClaimKind.DESCRIPTIVE
    else:
        kind = item.effect
    fields = _fields(plan, card, item, gates)
    kept_back = kind is ClaimKind.DESCRIPTIVE

    def sentence(of: ClaimKind) -> str:
        return plan.wording.template(of).format(**fields) + _second_differences(plan, item.treatment)

    return Claim(
        treatment=item.treatment,
        kind=kind,
        sentence=sentence(kind),
        test_sentence=sentence(item.effect) if kept_back else None,
        gates=tuple(gates),
    )


def _second_differences(plan: Plan, treatment: str) -> str:
    """What else the treatment had: no wording of a plan can leave it out."""
    arm = next(arm for arm in plan.treatments if arm.name == treatment)
    return "".join(f" {line[0].upper()}{line[1:]}." for line in difference_lines(arm))


def _fields(plan: Plan, card: Scorecard, item: Comparison, gates: list[str]) -> dict[str, str]:
    first = item.intervals[0] if item.intervals else None
    margin = plan.analysis.equivalence_margin
    control, treatment = card.arm(item.control), card.arm(item.treatment)
    return {
        "treatment": item.treatment,
        "control": item.control,
        "tasks": str(item.tasks),
        "wins": str(item.wins),
        "losses": str(item.losses),
        "ties": str(item.ties),
        "discordant": str(item.discordant),
        "floor": str(item.floor),
        "delta_pp": points(item.delta),
        "low_pp": points(first.low if first else None),
        "high_pp": points(first.high if first else None),
        "p": p_text(item.p_holm),
        "alpha": f"{plan.analysis.alpha:g}",
        "margin_pp": "not registered" if margin is None else f"{100 * margin:.1f}",
        "direction": "more" if (item.delta or 0) > 0 else "fewer",
        "reason": "; ".join(gates) or "none",
        "control_rate": rate(control.resolved, control.graded),
        "treatment_rate": rate(treatment.resolved, treatment.graded),
    }


def points(value: float | None) -> str:
    """A proportion in percentage points, signed, one decimal, with a true minus sign."""
    if value is None:
        return "not defined"
    text = f"{100 * value:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", "−")


def p_text(p: float | None) -> str:
    """Three decimals, or a bound below."""
    if p is None:
        return "not defined"
    return "< 0.001" if p < 0.0005 else f"{p:.3f}"


def rate(part: int, whole: int) -> str:
    """``7 of 20 (35 %)``; never a bare percentage without its denominator."""
    return f"{part} of {whole}" + (f" ({100 * part / whole:.0f} %)" if whole else "")
