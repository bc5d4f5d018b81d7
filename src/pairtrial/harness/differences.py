"""What an arm is started with besides its provider: the flags of its declared differences, exactly those and no other.

An arm without differences is started with the plan's agent to the byte. For one that declares some, both starts are
made and compared word by word; what comes out stands in the lock, in every receipt of the arm, and is compared again by
`verify`. It holds no path of a machine, so it is the same text everywhere.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pairtrial.core.status import Status
from pairtrial.harness.agents import AgentAdapter
from pairtrial.harness.delivery import DeliveryError
from pairtrial.prereg.lock import Lock
from pairtrial.prereg.plan import Plan
from pairtrial.runs.differences import flags_name


def flags_of(adapter: AgentAdapter, plan: Plan, arm: str) -> str:
    """How the start of an arm differs from that of an arm without differences; empty when it does not."""
    plain, own = plan.agent, plan.agent_of(arm)
    if own == plain:
        return ""
    one, two = adapter.invocation(plain, ""), adapter.invocation(own, "")
    found = [
        *_words("argument", _arguments(one.argv), _arguments(two.argv)),
        *_entries("variable", one.env, two.env),
        *(["standard input differs"] if one.stdin != two.stdin else []),
        *_entries("file", one.files, two.files),
        *_settings(adapter.render_mcp(plain, {}), adapter.render_mcp(own, {})),
    ]
    return "; ".join(found)


def flag_identities(adapter: AgentAdapter, plan: Plan) -> dict[str, str]:
    """For the lock: arms that declare differences only, so that other locks stay as they are."""
    return {flags_name(arm.name): flags_of(adapter, plan, arm.name) for arm in plan.arms if arm.differences}


def registered_flags(adapter: AgentAdapter, lock: Lock, arm: str) -> dict[str, str]:
    """What the receipt of a rollout says about the arm's flags; `DeliveryError` where the lock says something else."""
    today, frozen = flags_of(adapter, lock.plan, arm), lock.identities.get(flags_name(arm), "")
    if today != frozen:
        raise DeliveryError(
            Status.INVALID_ENVIRONMENT,
            f"arm {arm!r} would start with other flags ({today or 'none'}) than registered ({frozen or 'none'})",
        )
    return {"flags": today} if today else {}


def _words(kind: str, one: Sequence[str], two: Sequence[str]) -> Iterator[str]:
    for action, a, b, c, d in difflib.SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        if action != "equal":
            yield from (f"without {kind} {word}" for word in one[a:b])
            yield from (f"with {kind} {word}" for word in two[c:d])


def _arguments(argv: Sequence[str]) -> list[str]:
    """Each flag together with the word behind it: a bare value says nothing."""
    found: list[str] = []
    open_flag = False
    for word in argv:
        if open_flag and not word.startswith("-"):
            found[-1] += f" {word or repr('')}"
            open_flag = False
        else:
            found.append(word)
            open_flag = word.startswith("-")
    return found


def _entries(kind: str, one: Mapping[str, Any], two: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*one, *two}):
        if one.get(name) != two.get(name):
            for sign, table in (("without", one), ("with", two)):
                if name in table:
                    yield f"{sign} {kind} {name}={table[name]}"


def _settings(one: bytes, two: bytes) -> Iterator[str]:
    """The settings beside the servers: JSON by place, anything else by line."""
    if one == two:
        return
    try:
        yield from _entries("setting", dict(_places(json.loads(one))), dict(_places(json.loads(two))))
    except ValueError:
        yield from _words("setting", one.decode().splitlines(), two.decode().splitlines())


def _places(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _places(item, f"{path}.{key}" if path else key)
    else:
        yield path, json.dumps(value)
