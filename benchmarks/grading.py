"""What grading costs beside running the bare test command, in the same run, by turns.

    python benchmarks/grading.py [--repeat 5]                 two suites of our own: about 1 s and about 10 s
    python benchmarks/grading.py --pack tasks/core --task ID  a real task

A suite is a few hundred small tests that keep the processor busy. "Bare" is the target's own command in a fresh copy of
the tree; "graded" is everything: the copy and its check, the work, the canaries, supervisor, report and verdict. Exit
code 1 when the ratio of the medians is above its goal; on a busy machine the ratio of the fastest runs says more.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio

from pairtrial.core.disk import copy_tree, remove_tree
from pairtrial.core.status import Status
from pairtrial.grading import Grade, capture, grade
from pairtrial.grading.observe import link_modules
from pairtrial.sandbox import Limits, SandboxSpec, make_sandbox
from pairtrial.tasks import Prepared, load_pack, prepare, task_env, test_command, unbroken_tree

sys.path.insert(0, os.fspath(Path(__file__).resolve().parents[1] / "tests" / "support"))

GOALS = ((1.0, 1.3), (10.0, 1.05))
"""(seconds of the bare suite, highest ratio)."""
BUSY = """\
import time
import pytest
from calc import add, mul


@pytest.mark.parametrize("number", range({count}))
def test_busy(number):
    end = time.process_time() + {each}
    while time.process_time() < end:
        pass
    assert mul(number, 1) == number


def test_add():
    assert add(1, 2) == 3
"""


def synthetic(root: Path, seconds: float) -> tuple[Prepared, bytes]:
    """A prepared task whose bare suite takes about ``seconds``, and the patch that mends it."""
    from grading_cases import FILES, FIXED, make_case

    count = 200
    each = max(0.0, seconds - 0.4) / count
    files = {**FILES, "tests/test_calc.py": BUSY.format(count=count, each=each)}
    ids = [f"tests/test_calc.py::test_busy[{number}]" for number in range(count)]
    case = make_case(root, files, pass_to_pass=ids)
    return case.prepared, case.work({"calc.py": FIXED}).patch


async def real(pack: Path, task_id: str, cache: Path, root: Path) -> tuple[Prepared, bytes]:
    """A task of a pack, and the patch that mends it."""
    task = load_pack(pack).task(task_id)
    prepared = await prepare(task, cache)
    await unbroken_tree(task, cache, root / "unbroken")
    return prepared, capture(prepared.defective, root / "unbroken").patch


def bare(prepared: Prepared, root: Path) -> float:
    """Seconds of the target's own command in a fresh copy."""
    workspace = root / "bare"
    copy_tree(prepared.defective, workspace)
    link_modules(prepared, os.fspath(prepared.environment.root), workspace)
    (workspace / ".tmp").mkdir()
    env = {**task_env(prepared.task, prepared, os.fspath(workspace)), "HOME": os.fspath(workspace / ".tmp")}
    command = test_command(prepared.task)
    path = os.pathsep.join([os.fspath(prepared.environment.bin), env.get("PATH", os.defpath)])
    program = shutil.which(command[0], path=path) or command[0]
    began = time.perf_counter()
    subprocess.run([program, *command[1:]], cwd=workspace, env=env, capture_output=True)
    took = time.perf_counter() - began
    remove_tree(workspace)
    return took


async def graded(prepared: Prepared, patch: bytes, root: Path) -> tuple[float, Grade]:
    """Seconds of a whole grading in a sandbox of its own."""
    began = time.perf_counter()
    sandbox = make_sandbox(
        "local", SandboxSpec(label="benchmark", scratch=root / "scratch", limits=Limits(wall_s=600.0))
    )
    await sandbox.prepare()
    try:
        found = await grade(prepared, patch, sandbox)
    finally:
        await sandbox.destroy()
    return time.perf_counter() - began, found


async def compare(name: str, prepared: Prepared, patch: bytes, root: Path, repeat: int) -> tuple[float, float]:
    """Median seconds of both, measured by turns."""
    alone: list[float] = []
    whole: list[float] = []
    for _ in range(repeat):
        alone.append(bare(prepared, root))
        took, found = await graded(prepared, patch, root)
        if found.status is not Status.RESOLVED:
            raise SystemExit(f"{name}: {found.status}: {found.reason}")
        whole.append(took)
    first, second = statistics.median(alone), statistics.median(whole)
    quick, quick_whole = min(alone), min(whole)
    print(
        f"{name:28} median: bare {first:6.3f} s, graded {second:6.3f} s, ratio {second / first:5.3f}; "
        f"fastest: {quick:6.3f} s, {quick_whole:6.3f} s, ratio {quick_whole / quick:5.3f} (+{quick_whole - quick:.3f} s)"
    )
    return first, second


async def main(arguments: argparse.Namespace) -> int:
    """Measure, print, compare with the goals."""
    late = 0
    shm = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None) as folder:
        root = Path(folder)
        if arguments.task:
            prepared, patch = await real(arguments.pack, arguments.task, arguments.cache, root)
            await compare(arguments.task, prepared, patch, root, arguments.repeat)
            return 0
        for seconds, goal in GOALS:
            place = root / f"{seconds:g}"
            place.mkdir()
            prepared, patch = synthetic(place, seconds)
            first, second = await compare(
                f"suite of {seconds:g} s (goal {goal})", prepared, patch, place, arguments.repeat
            )
            late += second / first > goal
    return 1 if late else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--pack", type=Path, default=Path("tasks/core"))
    parser.add_argument("--task", default="")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "pairtrial-benchmark")
    sys.exit(anyio.run(main, parser.parse_args()))
