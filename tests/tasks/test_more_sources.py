"""Sources beside PyPI and folders: git commits and bundles, npm tarballs, Debian packages; and what a target adapts."""

from __future__ import annotations

import io
import json
import lzma
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import ValidationError

from pairtrial.core.canonical import sha256_hex, tree_digest
from pairtrial.core.errors import EnvironmentFault, TaskError
from pairtrial.tasks.adapted import Adapted
from pairtrial.tasks.debian import unpack_deb
from pairtrial.tasks.git_tree import GitTree
from pairtrial.tasks.model import DebianBinary, GitCommit, NpmTarball, TargetDocument, TaskDocument
from pairtrial.tasks.npm import download_npm
from pairtrial.tasks.registry import said

FILES = {"pkg/a.py": "one = 1\n", "run.sh": "#!/bin/sh\n", "pkg/empty": ""}


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits, attributes that would change a checkout, a link, an executable."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q", "--initial-branch=main")
    (root / "old.py").write_text("before\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    (root / "old.py").unlink()
    for name, text in FILES.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("pkg/a.py")
    (root / ".gitattributes").write_text("*.py text eol=crlf export-ignore\n* ident\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "second")
    return root


def materialise(document: GitCommit, folder: Path, tmp_path: Path) -> Path:
    target = tmp_path / "tree"
    source = GitTree(document, folder, "abacus")
    anyio.run(source.check)
    anyio.run(source.materialise, tmp_path / "cache", target)
    return target


def document(**values: Any) -> GitCommit:
    return GitCommit.model_validate({"kind": "git", **values})


def expected(tree: Path) -> None:
    found = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if not path.is_dir()}
    assert found == {*FILES, "link", ".gitattributes"}
    assert (tree / "pkg/a.py").read_bytes() == b"one = 1\n"
    assert (os.access(tree / "run.sh", os.X_OK), os.readlink(tree / "link")) == (True, "pkg/a.py")


def test_one_commit_of_a_repository_byte_for_byte(repository: Path, tmp_path: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    git(repository, "config", "uploadpack.allowAnySHA1InWant", "true")
    pinned = document(url=f"file://{repository}", commit=commit)
    expected(materialise(pinned, tmp_path, tmp_path))
    # The second time needs no repository, and what is kept holds no other commit.
    subprocess.run(["rm", "-r", str(repository)], check=True)
    anyio.run(GitTree(pinned, tmp_path, "abacus").materialise, tmp_path / "cache", tmp_path / "again")
    assert tree_digest(tmp_path / "again") == tree_digest(tmp_path / "tree")
    assert git(tmp_path / "cache/sources/git" / commit, "rev-list", "--all", "--count") == "0"


def test_a_bundle_beside_the_target(repository: Path, tmp_path: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    git(repository, "bundle", "create", "-q", str(tmp_path / "abacus.bundle"), "main")
    expected(materialise(document(bundle="abacus.bundle", commit=commit), tmp_path, tmp_path))


def test_a_commit_that_is_not_there(repository: Path, tmp_path: Path) -> None:
    git(repository, "bundle", "create", "-q", str(tmp_path / "abacus.bundle"), "main")
    with pytest.raises(TaskError, match=r"commit: 0123456789ab is not in abacus\.bundle"):
        materialise(document(bundle="abacus.bundle", commit="0123456789abcdef" * 2 + "01234567"), tmp_path, tmp_path)
    with pytest.raises(TaskError, match=r"source\.bundle: absent\.bundle: no such file"):
        materialise(document(bundle="absent.bundle", commit="a" * 40), tmp_path, tmp_path)
    with pytest.raises(EnvironmentFault, match="cannot be fetched"):
        materialise(document(url=f"file://{tmp_path}/nowhere", commit="a" * 40), tmp_path, tmp_path)


def test_a_submodule_is_refused(repository: Path, tmp_path: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{head},vendored")
    git(repository, "commit", "-qm", "third")
    git(repository, "config", "uploadpack.allowAnySHA1InWant", "true")
    with pytest.raises(TaskError, match="vendored is a submodule"):
        materialise(
            document(url=f"file://{repository}", commit=git(repository, "rev-parse", "HEAD")), tmp_path, tmp_path
        )


@pytest.mark.parametrize(
    "values",
    [
        {"commit": "a" * 40},
        {"commit": "a" * 40, "url": "https://example.invalid/x", "bundle": "x.bundle"},
        {"commit": "main", "url": "https://example.invalid/x"},
        {"commit": "a" * 40, "url": "ext::sh -c true"},
        {"commit": "a" * 40, "bundle": "../x.bundle"},
    ],
)
def test_what_does_not_pin_a_commit_is_refused(values: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        document(**values)


# ---- Debian ------------------------------------------------------------------------------------------------------------
def package(members: dict[str, bytes], compress: Any = lzma.compress, name: str = "data.tar.xz") -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as bundle:
        for path, content in members.items():
            info = tarfile.TarInfo(path)
            info.size = len(content)
            bundle.addfile(info, io.BytesIO(content))
    parts = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", name: compress(data.getvalue())}
    whole = b"!<arch>\n"
    for part, body in parts.items():
        head = f"{part:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(body):<10}`\n".encode()
        whole += head + body + b"\n" * (len(body) % 2)
    return whole


def zstd(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(data)


@pytest.mark.parametrize(("compress", "name"), [(lzma.compress, "data.tar.xz"), (zstd, "data.tar.zst")])
def test_a_folder_of_a_debian_package(tmp_path: Path, compress: Any, name: str) -> None:
    members = {"./usr/share/code/a/x.go": b"package a\n", "./usr/share/doc/y": b"y"}
    (tmp_path / "p.deb").write_bytes(package(members, compress, name))
    unpack_deb(tmp_path / "p.deb", tmp_path / "tree", name="p", folder="usr/share/code/a")
    assert [path.name for path in (tmp_path / "tree").iterdir()] == ["x.go"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.deb", "tree"]


@pytest.mark.parametrize(
    ("data", "said_"),
    [
        (b"no archive", "not a Debian package"),
        (package({"./usr/a": b"x"})[:-40], "damaged"),
        (package({"./usr/share/a": b"x"}), r"source\.folder: usr/lib: no such folder"),
        (package({"./usr/../../etc/x": b"x"}), "points outside"),
    ],
)
def test_a_debian_package_that_is_wrong(tmp_path: Path, data: bytes, said_: str) -> None:
    (tmp_path / "p.deb").write_bytes(data)
    with pytest.raises(TaskError, match=said_):
        unpack_deb(tmp_path / "p.deb", tmp_path / "tree", name="p", folder="usr/lib")
    assert [path.name for path in tmp_path.iterdir()] == ["p.deb"]


# ---- what the tools say ------------------------------------------------------------------------------------------------
def test_addresses_are_not_repeated() -> None:
    assert said("error at https://user:secret@host.invalid/x now") == "error at (address) now"


def test_names_that_are_options_are_refused() -> None:
    for name in ("--registry=x", "a b", "../x", "@x/../y"):
        with pytest.raises(ValidationError):
            NpmTarball(kind="npm", name=name, version="1.0.0", sha256="a" * 64)
    with pytest.raises(ValidationError):
        DebianBinary(kind="deb", name="x", version="-o=x", sha256="a" * 64, folder="usr/x")


@pytest.mark.registry
def test_a_tarball_from_the_configured_registry(tmp_path: Path) -> None:
    wanted = "27e23d8e5ad285541e13e4befc51d39739354abe1f71a348de08a1c88a54a124"
    pinned = NpmTarball(kind="npm", name="fraction.js", version="5.3.4", sha256=wanted)
    anyio.run(download_npm, pinned, tmp_path / "archive")
    assert sha256_hex((tmp_path / "archive").read_bytes()) == wanted
    (tmp_path / "again").mkdir()
    absent = pinned.model_copy(update={"version": "5.3.99999"})
    with pytest.raises(TaskError, match=r"has no fraction\.js@5\.3\.99999"):
        anyio.run(download_npm, absent, tmp_path / "again" / "archive")


# ---- adapting ------------------------------------------------------------------------------------------------------------
class _Fixed:
    async def check(self) -> None:
        return None

    async def fetch(self, cache: Path) -> None:
        return None

    async def materialise(self, cache: Path, target: Path) -> None:
        (target / "dist").mkdir(parents=True)
        (target / "dist/x.js").write_text("compiled\n")
        (target / "Cargo.toml").write_text("[dependencies.serde]\nversion = 1\n\n[features]\n")

    def digest(self) -> str:
        return "f" * 64


def target_document(**values: Any) -> TargetDocument:
    base = {
        "schema": "pairtrial.target.v1",
        "id": "x",
        "source": {"kind": "local", "path": "x", "tree": "0" * 64},
        "license": "MIT",
        "environment": {"kind": "rust"},
        "tests": {"framework": "cargo-test", "paths": ["tests"]},
        "baseline": "baseline.txt",
    }
    return TargetDocument.model_validate({**base, **values}, strict=False)


def test_a_target_leaves_out_and_adapts(tmp_path: Path) -> None:
    edit = {"file": "Cargo.toml", "line": 1, "column": 0, "old": "[dependencies.serde]\nversion = 1\n", "new": ""}
    source = Adapted(_Fixed(), target_document(remove={"dist": "compiled"}, adapt=[edit]), "x")
    anyio.run(source.materialise, tmp_path / "cache", tmp_path / "tree")
    assert [path.name for path in (tmp_path / "tree").iterdir()] == ["Cargo.toml"]
    assert (tmp_path / "tree/Cargo.toml").read_text() == "\n[features]\n"
    assert source.digest() != _Fixed().digest()
    with pytest.raises(TaskError, match="remove: absent: no such file"):
        absent = Adapted(_Fixed(), target_document(remove={"absent": "why"}), "x")
        anyio.run(absent.materialise, tmp_path / "cache", tmp_path / "other")


def test_documents_that_do_not_use_new_keys_have_no_trace_of_them() -> None:
    assert {"remove", "adapt"}.isdisjoint(target_document().model_dump(mode="json"))
    task = {
        "schema": "pairtrial.task.v1",
        "id": "x",
        "title": "x",
        "target": "x",
        "category": "call",
        "prompt": "p.md",
        "defect": [{"file": "a", "line": 1, "column": 0, "old": "a", "new": "b"}],
        "fail_to_pass": ["t"],
    }
    plain = TaskDocument.model_validate(task, strict=False)
    cut = TaskDocument.model_validate({**task, "cut": [{"file": "a", "first": 1, "last": 2}]}, strict=False)
    assert "cut" not in plain.model_dump(mode="json")
    assert cut.model_dump(mode="json")["cut"] == [{"file": "a", "first": 1, "last": 2}]
    assert json.loads(json.dumps(plain.model_dump(mode="json")))["hide"] == []
