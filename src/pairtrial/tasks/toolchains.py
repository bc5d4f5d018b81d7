"""What an environment gets beside its Python: node with packages, go, or cargo.

The Python in it runs our own programs only. Compilers are the machine's own; their versions are part of the digest.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import anyio.to_thread

from pairtrial.core.errors import EnvironmentFault, TaskError
from pairtrial.tasks.model import Toolchain
from pairtrial.tasks.npm_lock import root_manifest
from pairtrial.tasks.pack import Target
from pairtrial.tasks.registry import call, said


@dataclass(frozen=True, slots=True)
class Tools:
    """Programs of the machine that an environment uses."""

    versions: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, Path] = field(default_factory=dict)
    """Name on ``PATH`` → the real program, where it lies outside of the system folders."""
    places: tuple[Path, ...] = ()
    """Installations that a sandbox must show."""


async def find_tools(kind: Toolchain, folder: Path) -> Tools:
    """The machine's tools for a kind of environment; `EnvironmentFault` where they are missing."""
    if kind is Toolchain.NODE:
        return await _node(folder)
    if kind is Toolchain.GO:
        version = await _ask(["go", "env", "GOVERSION"], folder, "Go targets", "install go")
        root = Path(await _ask(["go", "env", "GOROOT"], folder, "Go targets", "install go"))
        return _outside({"go": version}, {"go": root / "bin" / "go", "gofmt": root / "bin" / "gofmt"}, root)
    if kind is Toolchain.RUST:
        hint = "install Rust with cargo"
        version = await _ask(["rustc", "--version"], folder, "Rust targets", hint)
        root = Path(await _ask(["rustc", "--print", "sysroot"], folder, "Rust targets", hint))
        programs = {name: root / "bin" / name for name in ("cargo", "rustc", "rustdoc")}
        return _outside({"rustc": version}, programs, root)
    return Tools()


async def _node(folder: Path) -> Tools:
    program = "process.stdout.write(JSON.stringify([process.version, process.execPath]))"
    answer = await _ask(["node", "-e", program], folder, "JavaScript targets", "install Node.js 20 or later")
    version, path = json.loads(answer)
    real = Path(path).resolve()
    return _outside({"node": version}, {"node": real}, real.parent.parent)


def _outside(versions: Mapping[str, str], programs: Mapping[str, Path], root: Path) -> Tools:
    if root.resolve().is_relative_to("/usr"):
        return Tools(versions)
    return Tools(versions, {name: path for name, path in programs.items() if path.exists()}, (root,))


async def _ask(argv: list[str], folder: Path, wants: str, hint: str) -> str:
    code, out, complaint = await call(argv, folder, wants=wants, hint=hint)
    if code != 0:
        raise EnvironmentFault(f"{argv[0]} does not work: {said(complaint)}", hint=hint, slug="missing-tool")
    return out.strip()


def link_programs(tools: Tools, root: Path) -> None:
    """Put programs from outside of the system folders on the environment's ``PATH``."""
    for name, path in tools.programs.items():
        (root / "bin" / name).symlink_to(path)


async def install_modules(target: Target, root: Path, cache: Path) -> list[str]:
    """Install what the lock pins to ``root/node_modules``; gives name and version of everything installed.

    Tarballs are kept in our cache, so a second build needs no network. No script of a package runs.
    """
    folder = root / "npm"
    folder.mkdir()
    lock = target.folder / str(target.document.environment.lock)
    (folder / "package.json").write_text(root_manifest(target.lock), encoding="utf-8")
    (folder / "package-lock.json").write_text(target.lock, encoding="utf-8")
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--cache", os.fspath(cache / "npm")]
    code, _, complaint = await call(["npm", "ci", "--prefer-offline", *quiet], folder, wants=target.id,
                                    hint="install Node.js with npm")  # fmt: skip
    if code != 0:
        text = said(complaint)
        if "EUSAGE" in complaint or "EINTEGRITY" in complaint or "ETARGET" in complaint:
            raise TaskError(f"{lock}: {text}", hint="make the lock again", slug="bad-lock")
        raise EnvironmentFault(f"{target.id}: npm ci failed: {text}", hint="check `npm config get registry`",
                               slug="environment-failed")  # fmt: skip
    code, out, complaint = await call(["npm", "ls", "--all", "--json"], folder, wants=target.id, hint="")
    if code != 0:
        raise TaskError(f"{lock}: incomplete: {said(complaint or out)}", hint="make the lock again",
                        slug="incomplete-lock")  # fmt: skip
    return await anyio.to_thread.run_sync(_move, folder, root)


def _move(folder: Path, root: Path) -> list[str]:
    modules = folder / "node_modules"
    modules.mkdir(exist_ok=True)
    record = modules / ".package-lock.json"
    found = json.loads(record.read_bytes())["packages"] if record.exists() else {}
    record.unlink(missing_ok=True)
    modules.rename(root / "node_modules")
    shutil.rmtree(folder)
    return sorted(f"{place.rpartition('node_modules/')[2]}@{item['version']}" for place, item in found.items())


async def check_offline(target: Target, tree: Path) -> None:
    """`TaskError` where a Go or Rust target needs something that does not lie in its tree."""
    kind = target.document.environment.kind
    if kind is Toolchain.GO:
        needed = _go_requirements(tree / "go.mod")
        if needed and not (tree / "vendor").is_dir():
            raise TaskError(
                f"{target.id}: go.mod requires {', '.join(needed[:3])}, which no lock pins",
                hint="vendor what the tests need, or drop it with `adapt`",
                slug="incomplete-lock",
            )
    elif kind is Toolchain.RUST:
        command = ["cargo", "metadata", "--offline", "--format-version", "1"]
        scratch = tree.parent / "cargo-check"
        await anyio.to_thread.run_sync(shutil.copytree, tree, scratch)
        try:
            code, out, complaint = await call(command, scratch, wants=target.id, hint="install Rust with cargo")
            outside = [] if code else [item["name"] for item in json.loads(out)["packages"] if item["source"]]
        finally:
            await anyio.to_thread.run_sync(shutil.rmtree, scratch)
        if code != 0 or outside:
            what = f"needs {', '.join(outside[:3])}" if outside else said(complaint)
            raise TaskError(
                f"{target.id}: Cargo.toml: {what}, which no lock pins",
                hint="drop the dependency with `adapt`, or vendor it in the tree",
                slug="incomplete-lock",
            )


def _go_requirements(manifest: Path) -> list[str]:
    if not manifest.is_file():
        return []
    found, inside = [], False
    for line in manifest.read_text("utf-8", "replace").splitlines():
        words = line.partition("//")[0].split()
        if words[:2] == ["require", "("]:
            inside = True
        elif words[:1] == [")"]:
            inside = False
        elif words and (inside or words[0] == "require"):
            found.append(words[0] if inside else words[1])
    return found
