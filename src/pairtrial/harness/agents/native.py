"""What the adapters of agents with a format of their own share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pairtrial.core.canonical import digest_json
from pairtrial.harness.agents.base import Adapter, Baseline
from pairtrial.harness.agents.programs import find_program, own_code
from pairtrial.prereg.plan import AgentSpec


class NativeAdapter(Adapter):
    """An agent that is a program of its own, pinned by digest, and whose tools are known by their names on the wire."""

    own_files: tuple[str, ...] = ()
    """Files beside this module that decide how it is driven."""
    options: Mapping[str, tuple[bool | str, ...]] = {"context_files": (False, True), "target_context": ("keep",)}
    wire_tools = True
    counts_turns = False

    def problems(self, agent: AgentSpec) -> list[str]:
        """Options that do not exist, values that do not fit."""
        found = []
        for name, value in agent.options.items():
            if name not in self.options:
                known = ", ".join(self.options)
                found.append(f"agent.options.{name}: {self.manifest.id} has {known}; correct or remove it")
            elif not any(value is item or (isinstance(value, str) and value == item) for item in self.options[name]):
                words = ", ".join(str(item).lower() for item in self.options[name])
                found.append(f"agent.options.{name}: {value!r} is none of {words}")
        return found

    def program_digest(self, agent: AgentSpec) -> str:
        """The program, and the code that drives it."""
        program = find_program(self.manifest, agent.version).digest
        return digest_json({"program": program, **own_code(*self.own_files, "native.py")})

    def folders(self, agent: AgentSpec) -> tuple[Path, ...]:
        """The program's folder, and its interpreter's."""
        program = find_program(self.manifest, agent.version)
        if program.interpreter is None:
            return (program.folder,)
        return (program.folder, program.interpreter.resolve().parent.parent)

    def baseline(self, agent: AgentSpec) -> Baseline:
        """What this version starts with."""
        reads = agent.options.get("context_files") is True
        table = self.manifest.baselines
        return (table.get(f"{agent.version}/context") if reads else None) or table[agent.version]

    def own_tools(self, agent: AgentSpec, *, servers: bool) -> tuple[str, ...]:
        """By version."""
        baseline = self.baseline(agent)
        return (*baseline.tools, *(baseline.with_servers if servers else ()))


def count(value: object) -> int | None:
    """A figure of usage, or None for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def toml(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> str:
    """TOML of nested tables of strings, numbers, booleans and lists, keys in the given order."""
    lines = [f"{_key(name)} = {_value(value)}" for name, value in table.items() if not isinstance(value, Mapping)]
    text = (f"[{'.'.join(_key(part) for part in path)}]\n" if path and lines else "") + "".join(f"{x}\n" for x in lines)
    for name, value in table.items():
        if isinstance(value, Mapping):
            text += toml(value, (*path, name)) if value else f"[{'.'.join(_key(part) for part in (*path, name))}]\n"
    return text


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    # JSON strings, numbers and booleans are TOML, but for DEL, which no setting of ours holds.
    return json.dumps(value, ensure_ascii=True)
