"""Unpacking archives that want to do harm; one test a trick."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pairtrial.core.errors import TaskError
from pairtrial.tasks.archive import UnpackLimits, unpack

Member = tuple[tarfile.TarInfo, bytes | None]


def regular(name: str, content: bytes = b"text", mode: int = 0o644) -> Member:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.mode = mode
    info.uid = info.gid = 4242
    info.uname = info.gname = "uploader"
    info.mtime = 1_700_000_000
    return info, content


def special(name: str, kind: bytes, link: str = "") -> Member:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = link
    return info, None


@pytest.fixture
def tar(tmp_path: Path) -> Callable[..., Path]:
    """Write a tar archive of members."""

    def write(*members: Member, mode: str = "w:gz") -> Path:
        path = tmp_path / "archive"
        with tarfile.open(path, mode) as bundle:  # type: ignore[call-overload]
            for info, content in members:
                bundle.addfile(info, None if content is None else io.BytesIO(content))
        return path

    return write


def refused(archive: Path, slug: str, limits: UnpackLimits | None = None) -> str:
    target = archive.parent / "out"
    with pytest.raises(TaskError) as caught:
        unpack(archive, target, name="thing 1.0", limits=limits)
    assert caught.value.slug == slug
    assert caught.value.message.startswith("thing 1.0: ")
    # Nothing may appear beside the folder that was asked for.
    assert sorted(item.name for item in archive.parent.iterdir()) == ["archive", "out"]
    return caught.value.message


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_the_top_folder_is_taken_off_and_the_owner_is_ours(tar: Callable[..., Path], mode: str, tmp_path: Path) -> None:
    archive = tar(
        regular("a-1/setup.py"),
        regular("a-1/bin/run", b"#!", 0o6755),
        special("a-1/empty", tarfile.DIRTYPE),
        special("a-1/link", tarfile.SYMTYPE, "bin/run"),
        special("a-1/hard", tarfile.LNKTYPE, "a-1/bin/run"),
        mode=mode,
    )
    unpack(archive, tmp_path / "out", name="a")
    out = tmp_path / "out"
    assert sorted(item.name for item in out.iterdir()) == ["bin", "empty", "hard", "link", "setup.py"]
    assert (out / "link").readlink() == Path("bin/run")
    facts = (out / "bin" / "run").stat()
    assert (facts.st_uid, facts.st_gid) == (os.getuid(), os.getgid())
    assert stat.S_IMODE(facts.st_mode) == 0o755
    assert stat.S_IMODE((out / "setup.py").stat().st_mode) == 0o644
    assert (out / "hard").read_bytes() == b"#!"
    assert (out / "hard").stat().st_nlink == 1


def test_history_and_compiled_code_are_left_out(tar: Callable[..., Path], tmp_path: Path) -> None:
    archive = tar(
        regular("a-1/a.py"),
        regular("a-1/__pycache__/a.cpython-311.pyc"),
        regular("a-1/old.pyc"),
        regular("a-1/.git/config"),
        regular("a-1/sub/.git"),
    )
    unpack(archive, tmp_path / "out", name="a")
    assert [item.name for item in (tmp_path / "out").rglob("*") if item.is_file()] == ["a.py"]


@pytest.mark.parametrize("name", ["/etc/evil", "../evil", "a-1/../../evil", "a-1/..\\evil", "a-1/sub/../x", "x" * 1200])
def test_a_path_that_points_outside(tar: Callable[..., Path], name: str) -> None:
    refused(tar(regular("a-1/ok"), regular(name)), "archive-escape")


@pytest.mark.parametrize("aim", ["/etc/passwd", "../outside", "../../outside", "sub/../../b-1/x", "../a-1/../b"])
def test_a_link_that_points_outside(tar: Callable[..., Path], aim: str) -> None:
    refused(tar(special("a-1", tarfile.DIRTYPE), special("a-1/link", tarfile.SYMTYPE, aim)), "archive-escape")


def test_a_file_written_through_a_link(tar: Callable[..., Path]) -> None:
    refused(
        tar(special("a-1/sub/link", tarfile.SYMTYPE, ".."), regular("a-1/sub/link/over", b"x")),
        "archive-duplicate",
    )


def test_a_link_through_a_link(tar: Callable[..., Path]) -> None:
    members = [
        special("a-1/d/e/f", tarfile.DIRTYPE),
        special("a-1/short", tarfile.SYMTYPE, "d/e/f"),
        special("a-1/long", tarfile.SYMTYPE, "short/../../.."),
    ]
    refused(tar(*members), "archive-escape")


def test_a_member_that_takes_the_place_of_a_link(tar: Callable[..., Path]) -> None:
    refused(tar(special("a-1/x", tarfile.SYMTYPE, "y"), regular("a-1/x")), "archive-duplicate")


def test_a_hard_link_to_a_file_of_the_machine(tar: Callable[..., Path]) -> None:
    refused(tar(special("a-1/x", tarfile.LNKTYPE, "etc/passwd")), "archive-escape")


@pytest.mark.parametrize("kind", [tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_a_device_or_pipe(tar: Callable[..., Path], kind: bytes) -> None:
    refused(tar(special("a-1/dev", kind)), "archive-escape")


def test_a_member_twice(tar: Callable[..., Path]) -> None:
    refused(tar(regular("a-1/x", b"1"), regular("a-1/x", b"2")), "archive-duplicate")


def test_a_file_that_is_also_a_folder(tar: Callable[..., Path]) -> None:
    refused(tar(regular("a-1/x", b"1"), regular("a-1/x/y", b"2")), "archive-duplicate")


@pytest.mark.parametrize(
    "members",
    [
        (regular("loose.py"),),
        (regular("a-1/x"), regular("b-1/x")),
        (),
    ],
)
def test_an_archive_without_one_top_folder(tar: Callable[..., Path], members: tuple[Member, ...]) -> None:
    refused(tar(*members), "archive-layout")


def test_a_tar_bomb_by_ratio(tar: Callable[..., Path]) -> None:
    limits = UnpackLimits(ratio=100, ratio_from=1 << 20)
    message = refused(tar(regular("a-1/zeros", bytes(8 << 20))), "archive-bomb", limits)
    assert "grows" in message


def test_a_tar_bomb_by_size(tar: Callable[..., Path]) -> None:
    limits = UnpackLimits(total_bytes=1 << 20, files=10)
    refused(tar(regular("a-1/a", os.urandom(700_000)), regular("a-1/b", os.urandom(700_000))), "archive-bomb", limits)


def test_a_tar_bomb_by_count(tar: Callable[..., Path]) -> None:
    members = [regular(f"a-1/{number}") for number in range(11)]
    refused(tar(*members), "archive-bomb", UnpackLimits(files=10))


def test_a_header_that_asks_for_gigabytes(tmp_path: Path) -> None:
    """An extended header of 8 GiB (of zeros, packed small) is read whole into memory by the library."""
    info = tarfile.TarInfo("a-1/x")
    info.type = tarfile.XHDTYPE
    info.size = 8 << 30
    import gzip

    archive = tmp_path / "archive"
    with gzip.open(archive, "wb", compresslevel=1) as handle:
        handle.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(64):
            handle.write(bytes(1 << 20))
    refused(archive, "archive-bomb", UnpackLimits(ratio=100, ratio_from=4 << 20))


@pytest.mark.parametrize("keep", [10, 60, 200])
def test_a_cut_archive(tar: Callable[..., Path], keep: int) -> None:
    archive = tar(regular("a-1/x", os.urandom(4000)))
    archive.write_bytes(archive.read_bytes()[:keep])
    refused(archive, "archive-damaged")


def test_no_archive_at_all(tmp_path: Path) -> None:
    (tmp_path / "archive").write_text("<html>not found</html>" * 100)
    refused(tmp_path / "archive", "archive-damaged")


def zipped(tmp_path: Path, *members: tuple[str, bytes, int]) -> Path:
    path = tmp_path / "archive"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content, mode in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            bundle.writestr(info, content)
    return path


def test_a_zip_is_unpacked_as_a_tar_is(tmp_path: Path) -> None:
    archive = zipped(
        tmp_path,
        ("a-1/", b"", stat.S_IFDIR | 0o755),
        ("a-1/x.py", b"x", stat.S_IFREG | 0o600),
        ("a-1/run", b"#!", stat.S_IFREG | 0o700),
        ("a-1/link", b"x.py", stat.S_IFLNK | 0o777),
        ("a-1/plain", b"p", 0),
    )
    unpack(archive, tmp_path / "out", name="a")
    out = tmp_path / "out"
    assert {item.name for item in out.iterdir()} == {"x.py", "run", "link", "plain"}
    assert stat.S_IMODE((out / "run").stat().st_mode) == 0o755
    assert stat.S_IMODE((out / "x.py").stat().st_mode) == 0o644
    assert (out / "link").readlink() == Path("x.py")


@pytest.mark.parametrize(
    ("member", "slug"),
    [
        (("../evil", b"x", 0), "archive-escape"),
        (("/evil", b"x", 0), "archive-escape"),
        (("a-1/link", b"../../etc", stat.S_IFLNK | 0o777), "archive-escape"),
        (("a-1/pipe", b"", stat.S_IFIFO | 0o600), "archive-escape"),
        (("a-1/zeros", bytes(8 << 20), 0), "archive-bomb"),
    ],
)
def test_a_zip_with_a_trick(tmp_path: Path, member: tuple[str, bytes, int], slug: str) -> None:
    refused(zipped(tmp_path, member), slug, UnpackLimits(ratio=100, ratio_from=1 << 20))


def test_a_zip_that_lies_about_its_size(tmp_path: Path) -> None:
    """The directory says 5 bytes, the stream holds 8 MiB: the bytes that come are what counts."""
    archive = zipped(tmp_path, ("a-1/zeros", bytes(8 << 20), 0))
    data = archive.read_bytes().replace((8 << 20).to_bytes(4, "little"), (5).to_bytes(4, "little"))
    archive.write_bytes(data)
    with pytest.raises(TaskError) as caught:
        unpack(archive, tmp_path / "out", name="a", limits=UnpackLimits(ratio=100, ratio_from=1 << 20))
    assert caught.value.slug in {"archive-bomb", "archive-damaged"}


def test_a_locked_zip(tmp_path: Path) -> None:
    archive = zipped(tmp_path, ("a-1/x", b"secret", 0))
    data = bytearray(archive.read_bytes())
    data[6] |= 1
    data[data.rindex(b"PK\x01\x02") + 8] |= 1
    archive.write_bytes(bytes(data))
    refused(archive, "archive-damaged")
