"""How fast is a work tree copied? Compares strategies on a tree of small files, each with its content verified.

    python benchmarks/workspace_copy.py [--files 500] [--rounds 20] FOLDER...

Give one folder on each file system that is of interest. Prints the median of the rounds in milliseconds.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pairtrial.core.canonical import tree_digest, walk_tree
from pairtrial.tasks.copying import copy_verified


def make_tree(root: Path, files: int) -> None:
    """Source files of 0.5 to 20 KiB in folders of 20, the same for every run."""
    chance = random.Random(7)
    for number in range(files):
        folder = root / f"package{number // 20:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"module{number:03d}.py").write_bytes(chance.randbytes(chance.randint(512, 20480)))


def by_copytree(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True)


def by_cp(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", "--reflink=auto", os.fspath(source), os.fspath(target)], check=True)


def _by_call(source: Path, target: Path, move: Callable[[int, int, int], int]) -> None:
    made: set[str] = set()
    target.mkdir()
    for entry in walk_tree(source):
        folder = entry.path.rpartition("/")[0]
        if folder not in made:
            (target / folder).mkdir(parents=True, exist_ok=True)
            made.add(folder)
        reader = os.open(entry.source, os.O_RDONLY)
        facts = os.fstat(reader)
        writer = os.open(f"{target}/{entry.path}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, facts.st_mode & 0o777)
        left = facts.st_size
        while left:
            left -= move(reader, writer, left)
        os.utime(writer, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        os.close(writer)
        os.close(reader)


def by_copy_file_range(source: Path, target: Path) -> None:
    _by_call(source, target, os.copy_file_range)


def by_sendfile(source: Path, target: Path) -> None:
    _by_call(source, target, lambda reader, writer, left: os.sendfile(writer, reader, None, left))


def verified(copy: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
    """Copy first, read the copy again for its digest."""

    def both(source: Path, target: Path) -> None:
        copy(source, target)
        tree_digest(target)

    return both


def hashing_on_the_way(source: Path, target: Path) -> None:
    copy_verified(source, target)


STRATEGIES: dict[str, Callable[[Path, Path], None]] = {
    "copytree": by_copytree,
    "cp -a --reflink=auto": by_cp,
    "copy_file_range": by_copy_file_range,
    "sendfile": by_sendfile,
    "copytree, then digest": verified(by_copytree),
    "cp, then digest": verified(by_cp),
    "copy_file_range, then digest": verified(by_copy_file_range),
    "copy_verified (read, hash, write)": hashing_on_the_way,
}


def measure(folder: Path, files: int, rounds: int) -> dict[str, float]:
    """Median milliseconds of each strategy, the strategies taking turns."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        source = Path(name) / "source"
        make_tree(source, files)
        times: dict[str, list[float]] = {strategy: [] for strategy in STRATEGIES}
        for _ in range(rounds):
            for strategy, copy in STRATEGIES.items():
                target = Path(name) / "target"
                began = time.perf_counter()
                copy(source, target)
                times[strategy].append(time.perf_counter() - began)
                shutil.rmtree(target)
        return {strategy: 1000 * statistics.median(values) for strategy, values in times.items()}


def main() -> None:
    """Print one table a folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    for folder in options.folders:
        print(f"{folder}: {options.files} files, median of {options.rounds}, milliseconds")
        for strategy, value in measure(folder, options.files, options.rounds).items():
            print(f"  {strategy:36} {value:8.1f}")


if __name__ == "__main__":
    main()
