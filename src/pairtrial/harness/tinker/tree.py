"""The only module that writes to the workspace: a candidate for a run of the visible tests, and the edit that is kept."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pairtrial.harness.tinker.candidates import Candidate
from pairtrial.harness.tinker.evaluate import child_environment, task_python

TESTS_TIMEOUT_S = 120.0


class Tree:
    """The workspace. Between calls it holds the original files, or the one edit that was kept."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lent: tuple[Path, bytes] | None = None

    def keep(self, candidate: Candidate, data: bytes) -> None:
        """Write the edit for good."""
        (self._root / candidate.path).write_bytes(candidate.apply(data))

    def restore(self) -> None:
        """Put back the file that a run of the tests has on loan; also called when the program is told to end."""
        if self._lent is not None:
            place, data = self._lent
            place.write_bytes(data)
            self._lent = None

    def passes(self, candidate: Candidate, data: bytes, command: Sequence[str]) -> bool:
        """Whether the visible tests pass with the edit made. The tree is as before afterwards."""
        before = self._listing()
        with self._on_loan(candidate, data):
            passed = run_tests(command, self._root)
        for path in sorted(self._listing() - before, reverse=True):
            with suppress(OSError):
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        return passed

    @contextmanager
    def _on_loan(self, candidate: Candidate, data: bytes) -> Iterator[None]:
        place = self._root / candidate.path
        self._lent = (place, data)
        try:
            place.write_bytes(candidate.apply(data))
            yield
        finally:
            self.restore()

    def _listing(self) -> set[Path]:
        found: set[Path] = set()
        for folder, folders, names in os.walk(self._root):
            if ".git" in folders and Path(folder) == self._root:
                folders.remove(".git")
            found.update(Path(folder, name) for name in (*folders, *names))
        return found


def run_tests(command: Sequence[str], root: Path) -> bool:
    """Whether the command of the visible tests exits with 0. Nothing of its process group outlives it."""
    argv = list(command)
    if argv[0] in {"python", "python3"}:
        argv[0] = task_python()
    if "pytest" in command[:3]:
        argv += ["-x", "-q"]  # one failure settles it
    try:
        process = subprocess.Popen(
            argv,
            cwd=root,
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return False
    try:
        return process.wait(timeout=TESTS_TIMEOUT_S) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
