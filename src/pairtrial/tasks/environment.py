"""The environment that a target's tests run in: a virtual environment made from the lock, never holding the target.

It lies in the cache under the digest of what goes into it and is built under another name and renamed, so what is there
is whole. Files are copied, not linked to the cache of ``uv``: whatever an agent does to them stays here. Bytecode is
compiled once, with hashes instead of times, so a copy of the environment is as fast and as equal as the original.
"""

from __future__ import annotations

import email.parser
import functools
import json
import os
import platform
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
from packaging.utils import canonicalize_name

from pairtrial.core.canonical import digest_json, sha256_hex, tree_digest
from pairtrial.core.disk import write_atomic
from pairtrial.core.errors import EnvironmentFault, TaskError
from pairtrial.sandbox import Mount
from pairtrial.tasks.locking import kept, publish
from pairtrial.tasks.model import Toolchain
from pairtrial.tasks.pack import Target
from pairtrial.tasks.toolchains import Tools, check_offline, find_tools, install_modules, link_programs
from pairtrial.tasks.virtualenv import (
    install_arguments,
    installed,
    interpreter,
    run_uv,
    said_by,
    site_packages,
    venv_arguments,
)

RECORD = "pairtrial-environment.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Environment:
    """A built environment."""

    root: Path
    """Where it lies on this machine."""
    digest: str
    """Of Python, platform and installed set: equal where tests mean the same."""
    toolchain: Mapping[str, Any]
    """``python``, ``implementation``, ``platform``, ``uv``, ``packages`` and their digest ``installed``."""
    tree: str
    """Tree digest of everything in it, to notice that somebody wrote into it."""
    places: tuple[Path, ...] = ()
    """Installations outside of the system folders that its programs belong to; a sandbox must show them."""

    @property
    def bin(self) -> Path:
        """Folder that goes first on ``PATH``."""
        return self.root / "bin"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.root / "bin" / "python"

    @property
    def base(self) -> Path:
        """Installation that the interpreter belongs to; a sandbox must show it."""
        return Path(sys.base_prefix)


FOREIGN = ("lib/python3*/site-packages", "lib64/python3*/site-packages", "lib/python3*/dist-packages",
           "local/lib/python3*/dist-packages")  # fmt: skip
"""Where packages of other programs lie in the installation of an interpreter."""


def mounts_of(environment: Environment, folder: Path, *further: Path) -> tuple[Mount, ...]:
    """What a sandbox shows of this machine: the environment, its interpreter, and ``further`` folders.

    Packages that were installed beside the interpreter belong to nobody's environment, and a target may be among them:
    an empty one, made in ``folder``, lies over them.
    """
    folders = dict.fromkeys((environment.root, environment.base, *environment.places, *further))
    empty = folder / "empty"
    empty.mkdir(parents=True, exist_ok=True)
    base = environment.base.resolve()
    foreign = {place.resolve() for pattern in FOREIGN for place in base.glob(pattern) if place.is_dir()}
    return (
        *(Mount(source=folder, target=str(folder)) for folder in folders),
        *(Mount(source=empty, target=str(place)) for place in sorted(foreign) if place.is_relative_to(base)),
    )


async def build_environment(target: Target, cache: Path, tree: Path | None) -> Environment:
    """The environment of ``target``, from the cache or built now.

    ``tree`` is the unpacked target, whose ``PKG-INFO`` says what it requires; only read when ``metadata`` is on.
    """
    metadata = _metadata(target, tree)
    kind = target.document.environment.kind
    ingredients = {
        "format": _FORMAT,
        "lock": sha256_hex(target.lock.encode()),
        "metadata": metadata,
        "python": sys.version,
        "interpreter": interpreter(),
        "platform": sysconfig.get_platform(),
    }
    tools = Tools()
    if kind is not Toolchain.PYTHON:
        tools = await find_tools(kind, cache)
        programs = {name: os.fspath(path) for name, path in tools.programs.items()}
        ingredients |= {"kind": kind.value, "tools": dict(tools.versions), "programs": programs}
        if tree is not None:
            await check_offline(target, tree)
    final = cache / "environments" / digest_json(ingredients)[:32]
    return await kept(cache, "environment", final, _load, partial(_build, target, metadata, tools, cache))


async def verify_environment(environment: Environment) -> None:
    """`EnvironmentFault` when a file of the environment is no longer what was installed; reads all of it."""
    found = await anyio.to_thread.run_sync(_tree, environment.root)
    if found != environment.tree:
        raise EnvironmentFault(
            f"{environment.root}: files of the environment have changed since it was built",
            hint="remove the folder; it is built again",
            slug="environment-changed",
        )


def _tree(root: Path) -> str:
    return tree_digest(root, exclude=(RECORD,))


@functools.lru_cache(maxsize=256)
def _tree_once(root: Path, stamp: int) -> str:
    """The digest as it was when this process first looked; 30 ms that a pack's tasks share."""
    return _tree(root)


def _load(final: Path) -> Environment | None:
    """What is in the cache, when it is what was built; a crash of the machine may have left less."""
    try:
        record = json.loads((final / RECORD).read_bytes())
        stamp = (final / RECORD).stat().st_mtime_ns
        if not (final / "bin" / "python").exists() or _tree_once(final, stamp) != record["tree"]:
            return None
        places = tuple(Path(place) for place in record.get("places", ()))
        return Environment(final, record["digest"], record["toolchain"], record["tree"], places)
    except (OSError, ValueError, KeyError, TypeError):
        return None


async def _build(
    target: Target, metadata: str | None, tools: Tools, cache: Path, building: Path, final: Path
) -> Environment:
    root = building / "environment"
    await _uv(target, "venv", venv_arguments(root))
    further: dict[str, Any] = {}
    if target.document.environment.kind is Toolchain.PYTHON:
        await _install(target, building, root, metadata)
    else:
        further = {"tools": dict(tools.versions), "places": [os.fspath(place) for place in tools.places]}
        link_programs(tools, root)
    if target.document.environment.kind is Toolchain.NODE:
        further["modules"] = await install_modules(target, root, cache)
    version = await _uv_version(target)
    record = await anyio.to_thread.run_sync(_record, root, version, further)
    write_atomic(root / RECORD, json.dumps(record, indent=1, sort_keys=True).encode())
    await anyio.to_thread.run_sync(publish, root, final)
    built = _load(final)
    if built is None:
        raise EnvironmentFault(f"{final}: the environment that was built cannot be read", slug="environment-failed")
    return built


async def _install(target: Target, building: Path, root: Path, metadata: str | None) -> None:
    lock = building / "requirements.lock"
    lock.write_text(target.lock, encoding="utf-8")
    await _uv(target, "install", install_arguments(root, lock))
    if metadata is not None and target.name is not None:
        await anyio.to_thread.run_sync(_write_metadata, site_packages(root), target, metadata)
    await _uv(target, "check", ["pip", "check", "--python", os.fspath(root / "bin" / "python")])


def _metadata(target: Target, tree: Path | None) -> str | None:
    """Text of our own ``METADATA``: name, version and what the target requires, nothing else of theirs."""
    if not target.document.environment.metadata or target.name is None:
        return None
    lines = ["Metadata-Version: 2.1", f"Name: {target.name}", f"Version: {target.version}"]
    information = tree / "PKG-INFO" if tree is not None else None
    if information is not None and information.is_file():
        fields = email.parser.BytesParser().parsebytes(information.read_bytes(), headersonly=True)
        for requirement in fields.get_all("Requires-Dist", []):
            if "extra" not in requirement.partition(";")[2]:
                lines.append(f"Requires-Dist: {' '.join(str(requirement).split())}")
    return "\n".join(lines) + "\n"


def _write_metadata(site: Path, target: Target, metadata: str) -> None:
    name = canonicalize_name(str(target.name)).replace("-", "_")
    folder = site / f"{name}-{target.version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(metadata, encoding="utf-8")
    # uv reads this file when it checks the set; the values are those of any pure Python package.
    wheel = "Wheel-Version: 1.0\nGenerator: pairtrial\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    (folder / "WHEEL").write_text(wheel, encoding="utf-8")
    (folder / "INSTALLER").write_text("pairtrial\n", encoding="utf-8")
    (folder / "RECORD").write_text("", encoding="utf-8")


def _record(root: Path, uv: str, further: Mapping[str, Any]) -> dict[str, Any]:
    packages = installed(root)
    identity = {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": sysconfig.get_platform(),
        "packages": packages,
        "installed": digest_json(packages),
        **{name: value for name, value in further.items() if name != "places"},
    }
    record = {"digest": digest_json(identity), "toolchain": {**identity, "uv": uv}, "tree": _tree(root)}
    return {**record, "places": further["places"]} if further.get("places") else record


async def _uv_version(target: Target) -> str:
    return (await _uv(target, "version", ["--version"])).split()[1]


async def _uv(target: Target, step: str, arguments: Sequence[str]) -> str:
    done = await run_uv(arguments)
    if done.exit_code == 0:
        return done.stdout.decode(errors="replace")
    raise _uv_fault(target, step, done.stderr.decode(errors="replace"), said_by(done))


def _uv_fault(target: Target, step: str, text: str, said: str) -> EnvironmentFault | TaskError:
    where = target.folder / str(target.document.environment.lock)
    if step == "check":
        return TaskError(
            f"{where}: incomplete: {said}",
            hint="compile the lock again so that it holds every transitive requirement",
            slug="incomplete-lock",
        )
    if step == "install" and "hash" in text.lower() and "mismatch" in text.lower():
        return TaskError(f"{where}: {said}", hint="the index delivers other files than were pinned", slug="wrong-hash")
    if step == "install" and any(
        word in text for word in ("no version", "no usable wheels", "no wheels", "unsatisfiable")
    ):
        return TaskError(f"{where}: cannot be installed: {said}", hint="compile the lock again", slug="bad-lock")
    return EnvironmentFault(
        f"{target.id}: uv {step} failed: {said}",
        hint="check the network and the index that uv or pip is configured with",
        slug="environment-failed",
    )
