"""The last words of a wrapped command, and what comes of words that are missing or forged."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pairtrial.core.errors import SandboxError
from pairtrial.sandbox import ExecResult
from pairtrial.sandbox.wrapper import WRAP, WRAP_STREAM, read_status, read_tail

MARK = "0123abc"


def result(code: int | None, stderr: bytes = b"") -> ExecResult:
    return ExecResult(code, None, b"", stderr, False, False, None, False, 0.1)


def wrapped(shell: str, folder: Path, *argv: str) -> tuple[int, bytes, str]:
    status = folder / "status"
    with status.open("wb") as handle:
        script = f"exec 9>&1 1>&2; {WRAP}"  # the test has no descriptor 9 to give
        done = subprocess.run(
            [shell, "-c", script, "sh", str(folder), *argv], stdout=handle, stderr=subprocess.PIPE, check=False
        )
    return done.returncode, done.stderr, status.read_text()


def streamed(shell: str, folder: Path, *argv: str) -> tuple[int, bytes, bytes]:
    command = [shell, "-c", WRAP_STREAM.replace("/bin/sh", shell), "sh", MARK, "GONE ALSO_GONE", str(folder), *argv]
    done = subprocess.run(command, capture_output=True, check=False, env={"PATH": "/usr/bin:/bin", "GONE": "1"})
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(params=["dash", "bash"])
def shell(request: pytest.FixtureRequest, require: object) -> str:
    require(request.param)  # type: ignore[operator]
    return str(request.param)


def test_a_signal_leaves_a_message_in_the_status_file_and_none_on_stderr(shell: str, tmp_path: Path) -> None:
    code, stderr, status = wrapped(shell, tmp_path, "sh", "-c", "echo mine >&2; kill -9 $$")
    assert code == 137 and stderr == b"mine\n"
    assert status.startswith("+") and "Killed" in status
    (tmp_path / "status").write_text(status)
    read = read_status(result(code), tmp_path / "status", "x")
    assert (read.exit_code, read.signal) == (None, 9)
    assert not (tmp_path / "status").exists()


def test_an_own_code_of_137_leaves_none(shell: str, tmp_path: Path) -> None:
    code, _, status = wrapped(shell, tmp_path, "sh", "-c", "exit 137")
    assert (code, status) == (137, "+")
    assert read_status(result(code), tmp_path / "status", "x").exit_code == 137


def test_a_command_that_was_never_reached_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "status").touch()
    with pytest.raises(SandboxError, match="could not start the command: no namespaces"):
        read_status(result(1, b"no namespaces"), tmp_path / "status", "/usr/bin/bwrap")


@pytest.mark.parametrize(
    ("script", "code", "message"),
    [
        ("exit 0", 0, ""),
        ("exit 137", 137, ""),
        ("kill -9 $$", 137, "Killed"),
        ("kill -11 $$", 139, "Segmentation fault"),
    ],
)
def test_last_words_on_stderr(shell: str, tmp_path: Path, script: str, code: int, message: str) -> None:
    ended, stdout, stderr = streamed(shell, tmp_path, "sh", "-c", f"echo o; echo e >&2; {script}")
    assert ended == code and stdout == b"o\n"
    words = read_tail(stderr, MARK.encode())
    assert words is not None
    assert stderr[: -words[0]] == b"e\n" and words[2] == code and message in words[1]
    assert bool(words[1]) == bool(message)


def test_variables_of_the_image_are_dropped(shell: str, tmp_path: Path) -> None:
    _, stdout, _ = streamed(shell, tmp_path, "env")
    names = {line.partition(b"=")[0] for line in stdout.splitlines()}
    assert b"GONE" not in names and names <= {b"PATH", b"_", b"SHLVL"}


@pytest.mark.parametrize(
    "tail",
    [b"", b"plain", b"\0other 0\0", b"\0" + MARK.encode() + b" 0", b"\0" + MARK.encode() + b" x\0", b"\0\0\0"],
)
def test_words_that_are_not_the_wrappers(tail: bytes) -> None:
    assert read_tail(tail, MARK.encode()) is None
