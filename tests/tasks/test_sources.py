"""Fetching: only the pinned bytes, from the user's index, once; and nothing half-written."""

from __future__ import annotations

import hashlib
import io
import socket
import tarfile
from pathlib import Path
from typing import Any

import anyio
import pytest

from pairtrial.core.errors import EnvironmentFault, ExitCode, TaskError
from pairtrial.tasks import Target
from pairtrial.tasks.model import PypiSdist, TargetDocument
from pairtrial.tasks.pypi import download_sdist
from pairtrial.tasks.sources import source_for


def sdist(text: str = "x = 1\n") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as bundle:
        info = tarfile.TarInfo("bead-1.0/bead.py")
        info.size = len(text)
        bundle.addfile(info, io.BytesIO(text.encode()))
    return stream.getvalue()


def target_of(pack: Any, digest: str, version: str = "1.0") -> Target:
    target = pack.tasks[0].target
    source = PypiSdist(kind="pypi-sdist", name="bead", version=version, sha256=digest)
    document: TargetDocument = target.document.model_copy(update={"source": source})
    return Target(document, target.folder, target.lock, target.baseline)


def files_in(folder: Path) -> list[str]:
    return sorted(item.relative_to(folder).as_posix() for item in folder.rglob("*") if item.is_file())


def test_an_sdist_is_downloaded_once_and_unpacked(pack: Any, index: Any, cache: Path, tmp_path: Path) -> None:
    data = sdist()
    index.add("bead", {"bead-1.0-py3-none-any.whl": b"wheel", "bead-1.0.tar.gz": data, "bead-1.0.1.tar.gz": b"newer"})
    digest = hashlib.sha256(data).hexdigest()
    source = source_for(target_of(pack, digest))
    anyio.run(source.materialise, cache, tmp_path / "one")
    anyio.run(source.materialise, cache, tmp_path / "two")
    assert files_in(tmp_path / "one") == files_in(tmp_path / "two") == ["bead.py"]
    assert index.seen == ["/simple/bead/", "/files/bead-1.0.tar.gz"]
    assert files_in(cache / "sources") == [f"sha256/{digest}"]


def test_a_wrong_hash_names_both_and_leaves_nothing(pack: Any, index: Any, cache: Path) -> None:
    """The index also announces the hash of the false file; only the pin counts."""
    data = sdist("malice = 1\n")
    index.add("bead", {"bead-1.0.tar.gz": data})
    with pytest.raises(TaskError) as caught:
        anyio.run(source_for(target_of(pack, "a" * 64)).fetch, cache)
    assert caught.value.slug == "wrong-hash"
    assert "a" * 64 in caught.value.message
    assert hashlib.sha256(data).hexdigest() in caught.value.message
    assert files_in(cache / "sources") == []


@pytest.mark.parametrize(("project", "version"), [("bead", "2.0"), ("other", "1.0")])
def test_a_release_that_does_not_exist(pack: Any, index: Any, cache: Path, project: str, version: str) -> None:
    index.add(project, {"bead-1.0.tar.gz": sdist(), "bead-2.0-py3-none-any.whl": b""})
    with pytest.raises(TaskError) as caught:
        anyio.run(source_for(target_of(pack, "a" * 64, version)).fetch, cache)
    assert caught.value.slug == "no-such-release"


@pytest.fixture
def closed_port(monkeypatch: pytest.MonkeyPatch) -> int:
    """An index that nobody serves."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://user:geheim@127.0.0.1:{port}/simple")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    return port


def test_an_unreachable_registry_is_the_machines_fault(pack: Any, closed_port: int, cache: Path) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        anyio.run(source_for(target_of(pack, "a" * 64)).fetch, cache)
    assert caught.value.exit_code == ExitCode.ENVIRONMENT
    assert caught.value.slug == "registry-unreachable"
    assert caught.value.hint is not None
    assert f"http://127.0.0.1:{closed_port}/simple" in caught.value.message
    assert "geheim" not in str(caught.value)
    assert files_in(cache / "sources") == []


def test_what_is_in_the_cache_needs_no_registry(pack: Any, closed_port: int, cache: Path, tmp_path: Path) -> None:
    data = sdist()
    digest = hashlib.sha256(data).hexdigest()
    stored = cache / "sources" / "sha256" / digest
    stored.parent.mkdir(parents=True)
    stored.write_bytes(data)
    anyio.run(source_for(target_of(pack, digest)).materialise, cache, tmp_path / "out")
    assert files_in(tmp_path / "out") == ["bead.py"]


def test_a_damaged_cache_is_noticed_and_emptied(pack: Any, cache: Path, tmp_path: Path) -> None:
    digest = hashlib.sha256(sdist()).hexdigest()
    stored = cache / "sources" / "sha256" / digest
    stored.parent.mkdir(parents=True)
    stored.write_bytes(sdist("y = 2\n"))
    with pytest.raises(EnvironmentFault, match="damaged in the cache"):
        anyio.run(source_for(target_of(pack, digest)).materialise, cache, tmp_path / "out")
    assert not stored.exists()


def test_a_download_beyond_the_limit_is_cut(index: Any, tmp_path: Path) -> None:
    index.add("bead", {"bead-1.0.tar.gz": bytes(300_000)})
    document = PypiSdist(kind="pypi-sdist", name="bead", version="1.0", sha256="a" * 64)
    with pytest.raises(TaskError, match="larger than the limit"):
        download_sdist(document, tmp_path / "file", 100_000)
    assert not (tmp_path / "file").exists()


def test_of_two_archives_the_pinned_one_is_taken(index: Any, tmp_path: Path) -> None:
    index.add("bead", {"bead-1.0.tar.gz": b"tar", "bead-1.0.zip": b"zip"})
    document = PypiSdist(kind="pypi-sdist", name="bead", version="1.0", sha256=hashlib.sha256(b"zip").hexdigest())
    download_sdist(document, tmp_path / "file", 1000)
    assert (tmp_path / "file").read_bytes() == b"zip"


def test_a_local_folder_is_copied_without_caches(pack: Any, cache: Path, tmp_path: Path) -> None:
    target = pack.tasks[0].target
    for name in (".git/config", "src/__pycache__/abacus.pyc", ".venv/bin/python"):
        path = target.folder / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    anyio.run(source_for(target).materialise, cache, tmp_path / "out")
    assert files_in(tmp_path / "out") == [".gitignore", "README.md", "run.log", "src/abacus.py", "tests/test_abacus.py"]


def test_a_changed_local_folder_is_refused(pack: Any, cache: Path) -> None:
    target = pack.tasks[0].target
    (target.folder / "source" / "README.md").write_text("# Abacus!\n")
    with pytest.raises(TaskError) as caught:
        anyio.run(source_for(target).fetch, cache)
    assert caught.value.slug == "wrong-hash"
    assert target.source.tree in caught.value.message


def test_a_missing_local_folder_is_named(pack_folder: Any, cache: Path) -> None:
    pack_folder.target["source"]["path"] = "nowhere"
    pack_folder.target["source"]["tree"] = "0" * 64
    with pytest.raises(TaskError, match=r"source\.path: .*nowhere: no such folder"):
        anyio.run(source_for(pack_folder.load().tasks[0].target).check)


@pytest.mark.parametrize("aim", ["/etc/passwd", "../../../outside"])
def test_a_local_link_that_points_outside(pack_folder: Any, cache: Path, tmp_path: Path, aim: str) -> None:
    link = pack_folder.target_folder / "source" / "src" / "link"
    link.parent.mkdir(parents=True)
    link.symlink_to(aim)
    with pytest.raises(TaskError, match="a link that points outside"):
        anyio.run(source_for(pack_folder.load().tasks[0].target).materialise, cache, tmp_path / "out")
