"""What differs between arms on the wire: the first request of each, compared byte by byte.

Every arm is set up exactly as a rollout is, and the agent runs until it has sent its first request, which the gateway
answers itself. So nothing is spent, and what is compared is what a real run would send.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field

from pairtrial.core.errors import PairtrialError
from pairtrial.core.model import Model, Sha256
from pairtrial.harness.agents import Expected
from pairtrial.harness.delivery import Arm
from pairtrial.harness.fitness import make_expected
from pairtrial.harness.gateway import Request
from pairtrial.harness.gateway.answers import STAND_IN
from pairtrial.harness.gateway.wire import tool_names, tools
from pairtrial.harness.rollout import Experiment, Probe, probe_attempt
from pairtrial.prereg.review import difference_lines
from pairtrial.prereg.schedule import Cell
from pairtrial.providers import Provider

DATE = re.compile(
    r"\b20\d\d-[01]\d-[0-3]\d\b"
    r"|\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? (?:[A-Z][a-z]+) \d{1,2},? 20\d\d\b"
)
UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")


class Difference(Model):
    """One place in which a treatment's first request differs from the control's."""

    where: str
    kind: Literal["tool", "text", "value"]
    detail: str
    explained: bool
    """Whether the arm's provider accounts for it, or a declared flag."""
    flag: bool = False
    """Whether it comes with the flags that the arm declares: it is there without the provider too."""


class ArmPurity(Model):
    """One arm."""

    arm: str
    request_bytes: int
    tools_bytes: int
    tools: tuple[str, ...]
    tax_bytes: int
    """Bytes that its first request has more than the control's."""
    deferred: bool | None = None
    """Whether the schemas of its servers' tools are left out of that request; null for an arm without servers."""
    flags_bytes: int | None = None
    """Of the tax, what the arm's declared flags cause without its provider; null for an arm that declares none."""
    declared: tuple[str, ...] = ()
    """The declared flags, in the plan's own words."""
    tokens: int | None = None
    """Tokens of the first request by the provider's own count, where it was asked."""
    tax_tokens: int | None = None
    differences: tuple[Difference, ...] = ()


class ProbeTax(Model):
    """What a server of a given size costs under given options; its tax is against a control under the same ones."""

    options: dict[str, bool | int | str]
    """The agent's options."""
    server_tools: int
    """Tools of the server; 0 is the control."""
    deferred: bool | None
    request_bytes: int
    tools_bytes: int
    tools: int
    """Tools that the request offers."""
    tax_bytes: int
    tokens: int | None = None
    tax_tokens: int | None = None


class PurityRecord(Model):
    """The result; a plan can demand one that passed before it lets anything run."""

    schema_: Annotated[Literal["pairtrial.purity.v1"], Field(alias="schema")]
    plan_id: Sha256
    task: str
    replicates: int
    aa_bytes: int
    """Bytes in which the control differs from itself, over every replicate, after masking."""
    aa_places: tuple[str, ...]
    masked: tuple[str, ...]
    """What was replaced before comparing."""
    arms: tuple[ArmPurity, ...]
    probes: tuple[ProbeTax, ...] = ()
    """Servers of given sizes, for comparison; they decide nothing."""
    problems: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether the arms differ in their providers and declared flags alone, and do differ."""
        return not self.problems


@dataclass(frozen=True, slots=True)
class Shot:
    """The first request of one probe, raw and with volatile values masked."""

    arm: str
    request: Request
    masked: Any


async def probe_arm(experiment: Experiment, cell: Cell, *, bare: bool = False) -> Shot:
    """Run one arm to its first request; raises `PairtrialError` when it never sends one.

    ``bare`` leaves its provider away: what remains are the flags that the arm declares.
    """
    if bare:
        plan, adapter = experiment.plan, experiment.adapter
        expected = make_expected(plan, None, adapter, plan.agent_of(cell.arm))
        experiment = replace(experiment, arms={**experiment.arms, cell.arm: Arm(cell.arm, None, expected)})
    if experiment.route is None or experiment.gateway is None:
        raise PairtrialError("the agent asks no model: there is no request to compare", slug="no-wire")
    quiet = replace(experiment, route=replace(experiment.route, endpoint=STAND_IN, credential=None))
    probe = await probe_attempt(quiet, cell)
    if probe.ledger is None or probe.ledger.first is None or probe.void is not None:
        reason = probe.void[1] if probe.void else "it ended without asking the model"
        raise PairtrialError(f"arm {cell.arm!r} did not come to a valid first request: {reason}", slug="no-request")
    first = probe.ledger.first
    return Shot(cell.arm, first, mask(first.body, probe, experiment))


def mask(body: Any, probe: Probe, experiment: Experiment) -> Any:
    """The request with what belongs to one rollout replaced by words."""
    table = {value: f"<{name}>" for name, value in probe.paths.items()}
    volatile = experiment.adapter.volatile

    def visit(value: Any, path: str) -> Any:
        if path in volatile:
            return "<volatile>"
        if isinstance(value, str):
            for old in sorted(table, key=len, reverse=True):
                value = value.replace(old, table[old])
            return UUID.sub("<uuid>", DATE.sub("<date>", value))
        if isinstance(value, dict):
            return {key: visit(item, f"{path}.{key}" if path else key) for key, item in value.items()}
        if isinstance(value, list):
            return [visit(item, f"{path}[]") for item in value]
        return value

    return visit(body, "")


def compare(
    control: Sequence[Shot],
    others: Mapping[str, Sequence[Shot]],
    experiment: Experiment,
    bare: Mapping[str, Shot] = MappingProxyType({}),
) -> tuple[int, tuple[str, ...], tuple[ArmPurity, ...], tuple[str, ...]]:
    """A/A bytes and places, one entry an arm, and every problem.

    ``bare`` holds the arms that declare flags, without their providers.
    """
    base = control[0]
    replicas = [
        *control[1:],
        *(shot for name, shots in others.items() if _provider(experiment, name) is None for shot in shots),
    ]
    places: list[str] = []
    aa_bytes = 0
    for shot in replicas:
        found = differences(base.masked, shot.masked)
        places += [f"{shot.arm}: {where}" for where, _, _ in found]
        aa_bytes += sum(max(len(_text(one)), len(_text(two))) for _, one, two in found)
    problems = [f"the control differs from itself: {place}" for place in places]
    arms = [_arm(base, base, None, experiment)]
    for name, shots in others.items():
        entry = _arm(base, shots[0], bare.get(name), experiment)
        arms.append(entry)
        if _provider(experiment, name) is not None:
            problems += _arm_problems(name, entry, shots)
    return aa_bytes, tuple(places), tuple(arms), tuple(problems)


def _arm_problems(name: str, entry: ArmPurity, shots: Sequence[Shot]) -> list[str]:
    """What is not right with a treatment's first requests."""
    problems = [f"{name}: {item.where}: {item.detail}" for item in entry.differences if not item.explained]
    if all(item.flag for item in entry.differences):
        problems.append(f"{name}: does not differ from the control on the wire: the treatment does not arrive")
    for shot in shots[1:]:
        again = differences(shots[0].masked, shot.masked)
        problems += [f"{name}: differs from itself: {where}" for where, _, _ in again]
    return problems


def _provider(experiment: Experiment, arm: str) -> Provider | None:
    return experiment.arms[arm].provider


def _arm(base: Shot, shot: Shot, bare: Shot | None, experiment: Experiment) -> ArmPurity:
    """One arm against the control; with declared flags, the provider is judged against what they give without it."""
    provider, declared = _provider(experiment, shot.arm), _declared(experiment, shot.arm)
    flags = [] if bare is None else differences(base.masked, bare.masked)
    found = differences((bare or base).masked, shot.masked)
    request, tools_bytes, names = measure(shot)
    return ArmPurity(
        arm=shot.arm,
        request_bytes=request,
        tools_bytes=tools_bytes,
        tools=names,
        tax_bytes=request - measure(base)[0],
        deferred=deferred(experiment.arms[shot.arm].expected, shot),
        flags_bytes=None if bare is None else measure(bare)[0] - measure(base)[0],
        declared=declared,
        differences=(
            *(_of_flag(item, bool(declared)) for item in flags),
            *(explain(item, provider, experiment, shot.arm) for item in found),
        ),
    )


def _declared(experiment: Experiment, arm: str) -> tuple[str, ...]:
    return tuple(line for item in experiment.plan.arms if item.name == arm for line in difference_lines(item))


def _of_flag(item: tuple[str, Any, Any], declared: bool) -> Difference:
    where, before, after = item
    detail = f"{len(_text(before))} characters became {len(_text(after))}, with the declared flags alone"
    return Difference(where=where, kind="value", detail=detail, explained=declared, flag=True)


def measure(shot: Shot) -> tuple[int, int, tuple[str, ...]]:
    """Bytes of a first request, bytes of its tool schemas, and the names of these tools."""
    return _bytes(shot.masked), _bytes(tools(shot.request)), tool_names(shot.request)


def deferred(expected: Expected, shot: Shot) -> bool | None:
    """Whether a first request names the servers' tools without offering them; None where there are no servers."""
    if not expected.tool_names:
        return None
    return expected.tool_names.keys().isdisjoint(tool_names(shot.request))


def _bytes(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def differences(one: Any, two: Any, where: str = "") -> list[tuple[str, Any, Any]]:
    """Places in which two JSON values differ: path, value there, value here (None: absent). Tools go by name."""
    if type(one) is type(two) and isinstance(one, dict):
        found = []
        for key in sorted(set(one) | set(two)):
            found += differences(one.get(key), two.get(key), f"{where}.{key}" if where else key)
        return found
    if isinstance(one, list) and isinstance(two, list):
        found = []
        for key, left, right in _paired(one, two, where):
            found += differences(left, right, f"{where}[{key}]")
        return found
    if one == two:
        return []
    return [(where or "(body)", one, two)]


def _paired(one: list[Any], two: list[Any], where: str) -> Iterator[tuple[str, Any, Any]]:
    """Elements that belong together: tools by name, anything else aligned, so that an insertion shifts nothing."""
    if where.split(".")[-1] in ("tools", "functionDeclarations"):
        left, right = _by_name(one), _by_name(two)
        for key in [*left, *(key for key in right if key not in left)]:
            yield key, left.get(key), right.get(key)
        return
    texts = [[json.dumps(item, sort_keys=True) for item in items] for items in (one, two)]
    matcher = difflib.SequenceMatcher(None, texts[0], texts[1], autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            continue
        # What was inserted stands before what was changed: agents put context in front of the prompt.
        extra = max(0, (d - c) - (b - a))
        for number in range(c, c + extra):
            yield str(number), None, two[number]
        for left_at, right_at in zip_longest(range(a, b), range(c + extra, d)):
            before = one[left_at] if left_at is not None else None
            after = two[right_at] if right_at is not None else None
            yield str(left_at if right_at is None else right_at), before, after


def _by_name(items: list[Any]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for number, item in enumerate(items):
        function = item.get("function", item) if isinstance(item, dict) else {}
        name = function.get("name") if isinstance(function, dict) else None
        table[str(name) if name else f"#{number}"] = item
    return table


def explain(item: tuple[str, Any, Any], provider: Provider | None, experiment: Experiment, arm: str) -> Difference:
    """Whether a provider accounts for a difference."""
    where, before, after = item
    marks = _marks(provider, experiment, arm)
    tool = re.search(r"tools\[([^\]]+)\](?:\.\w+\[([^\]]+)\])?$", where)
    if tool is not None and before is None:
        name = tool[2] or tool[1]
        known = name in marks or any(name.startswith(mark) or mark.startswith(name) for mark in marks)
        return Difference(where=where, kind="tool", detail=f"offers {name}", explained=known)
    if isinstance(before, str) and isinstance(after, str):
        hunks = [*_hunks(before, after)]
        explained = all(gone == "" and any(mark in come for mark in marks) for gone, come in hunks)
        detail = "; ".join(f"-{gone[:80]!r} +{come[:120]!r}" for gone, come in hunks)[:600]
        return Difference(where=where, kind="text", detail=detail, explained=explained)
    explained = before is None and any(mark in _text(after) for mark in marks)
    detail = f"{_text(before)[:120]!r} became {_text(after)[:120]!r}"
    return Difference(where=where, kind="value", detail=detail, explained=explained)


def _marks(provider: Provider | None, experiment: Experiment, arm: str) -> set[str]:
    """Words by which a difference is recognised as the provider's: its servers, tools, and lines of its files."""
    if provider is None:
        return set()
    expected = experiment.arms[arm].expected
    marks = {*expected.tool_names, *expected.servers, *expected.optional_tools}
    for data in provider.context.values():
        marks |= {line.strip() for line in data.decode("utf-8", "replace").splitlines() if len(line.strip()) > 3}
    return marks


def _hunks(before: str, after: str) -> Iterable[tuple[str, str]]:
    left, right = before.splitlines(keepends=True), after.splitlines(keepends=True)
    for kind, a, b, c, d in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        gone, come = "".join(left[a:b]), "".join(right[c:d])
        # A line that only grew is an insertion, not a change of what stood there.
        if gone and come and gone.rstrip("\n") and gone.rstrip("\n") in come:
            gone, come = "", come.replace(gone.rstrip("\n"), "", 1)
        yield gone, come


def purity_record(
    plan_id: str,
    task: str,
    control: Sequence[Shot],
    others: Mapping[str, Sequence[Shot]],
    experiment: Experiment,
    bare: Mapping[str, Shot] = MappingProxyType({}),
) -> PurityRecord:
    """Everything together."""
    aa_bytes, places, arms, problems = compare(control, others, experiment, bare)
    masked = ("workspace, HOME and TMPDIR paths", "dates", "UUIDs", *sorted(experiment.adapter.volatile))
    return PurityRecord(
        schema_="pairtrial.purity.v1",
        plan_id=plan_id,
        task=task,
        replicates=len(control),
        aa_bytes=aa_bytes,
        aa_places=places,
        masked=masked,
        arms=arms,
        problems=problems,
    )
