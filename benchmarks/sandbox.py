"""What our sandboxes cost beside the same work by hand, in the same run.

    python benchmarks/sandbox.py [--kinds local,bubblewrap,docker] [--repeat 20] [--at-once 8] [--json]

One cycle is one rollout without an agent's thinking: a work tree of 500 files is copied, a box made, a small program
run in it that edits a file, the box destroyed; then a second box with a second copy in which a small test is run. By
hand that is `copytree` and a process (local), the same behind a full bwrap command line (bubblewrap), or the same by
direct calls of the docker SDK. Both do the same copying, run as the same user and have the same limits; cycles of
ours and by hand alternate, and the ratio is that of the medians. Without an engine a private one is started (root).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from pairtrial.sandbox import Limits, SandboxSpec, make_sandbox

ROOT = Path(__file__).resolve().parents[1]
FILES, FILE_BYTES = 500, 2800
ENV = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
AGENT = "import pathlib; p = pathlib.Path('d0/f0.py'); p.write_text(p.read_text() + '# edited\\n'); print('done')"
TESTS = "import pathlib, unittest; assert len(list(pathlib.Path().rglob('*.py'))) == 500; print('1 passed')"
PYTHON = "/usr/bin/python3"
GOALS = {"docker": 1.15, "bubblewrap": 1.2, "local": None}
IMAGE = "pairtrial/host:benchmark"
USER = 61000


def make_tree(folder: Path) -> Path:
    """A work tree of 500 files, 1.4 MB."""
    for number in range(FILES):
        path = folder / f"d{number % 25}" / f"f{number // 25}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {number}\n" + "x = 1\n" * (FILE_BYTES // 6))
    return folder


# ---- ours ----------------------------------------------------------------------------------------------------------
async def ours(kind: str, tree: Path, scratch: Path) -> None:
    """Two boxes, one after the other."""
    limits = Limits(wall_s=60) if kind == "local" else Limits(wall_s=60, memory_bytes=512 << 20, pids=64)
    image = IMAGE if kind == "docker" else None
    for code, said in ((AGENT, b"done\n"), (TESTS, b"1 passed\n")):
        spec = SandboxSpec(label="benchmark", scratch=scratch, limits=limits, image=image)
        sandbox = make_sandbox(kind, spec)
        await sandbox.prepare()
        await sandbox.put_tree(tree, sandbox.workspace)
        result = await sandbox.exec([PYTHON, "-c", code], env=ENV, timeout_s=60)
        if result.stdout != said:
            raise SystemExit(f"{kind}: {result}")
        await sandbox.destroy()


async def ours_at_once(kind: str, tree: Path, scratch: Path, count: int) -> None:
    """Several cycles side by side."""
    async with anyio.create_task_group() as group:
        for _ in range(count):
            group.start_soon(ours, kind, tree, scratch)


# ---- by hand -------------------------------------------------------------------------------------------------------
def copy(tree: Path, scratch: Path, *, owned: bool) -> Path:
    """A folder with workspace, home and tmp."""
    base = Path(tempfile.mkdtemp(dir=scratch))
    shutil.copytree(tree, base / "w", symlinks=True)
    for name in ("h", "t"):
        (base / name).mkdir()
    if owned and os.geteuid() == 0:
        for here, folders, files in os.walk(base):
            for name in (*folders, *files):
                os.chown(f"{here}/{name}", USER, USER)
    return base


def check(done: subprocess.CompletedProcess[bytes], said: bytes) -> None:
    if done.stdout != said:
        raise SystemExit(done)


def local_by_hand(tree: Path, scratch: Path) -> None:
    for code, said in ((AGENT, b"done\n"), (TESTS, b"1 passed\n")):
        base = copy(tree, scratch, owned=False)
        env = {**ENV, "HOME": str(base / "h"), "TMPDIR": str(base / "t")}
        check(subprocess.run([PYTHON, "-c", code], cwd=base / "w", env=env, capture_output=True, timeout=60), said)
        shutil.rmtree(base)


def bubblewrap_by_hand(tree: Path, scratch: Path) -> None:
    drop = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--inh-caps=-all"]
    for code, said in ((AGENT, b"done\n"), (TESTS, b"1 passed\n")):
        base = copy(tree, scratch, owned=True)
        base.chmod(0o755)
        box = ["bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--die-with-parent"]
        box += ["--new-session", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin"]
        box += ["--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"]
        box += ["--ro-bind", "/etc/alternatives", "/etc/alternatives", "--proc", "/proc", "--dev", "/dev"]
        for name, inside in (("w", "/workspace"), ("h", "/home/agent"), ("t", "/tmp")):
            box += ["--bind", str(base / name), inside]
        box += ["--setenv", "HOME", "/home/agent", "--setenv", "TMPDIR", "/tmp", "--chdir", "/workspace"]
        command = [*(drop if os.geteuid() == 0 else []), *box, "--", PYTHON, "-c", code]
        with limited() as join:
            done = subprocess.run(command, env=ENV, capture_output=True, timeout=60, preexec_fn=join)
        check(done, said)
        shutil.rmtree(base)


@contextlib.contextmanager
def limited() -> Iterator[Callable[[], None] | None]:
    """A control group with the limits of ours, where this machine has groups of version 1 that we may make.

    A new memory group costs a program its first pages anew, 13 ms for ``import unittest``: without it by hand and ours
    would not be the same work.
    """
    made = []
    for name, file, value in (("memory", "memory.limit_in_bytes", 512 << 20), ("pids", "pids.max", 64)):
        folder = Path("/sys/fs/cgroup") / name / f"pairtrial-by-hand-{time.monotonic_ns()}"
        try:
            folder.mkdir()
            (folder / file).write_text(str(value))
        except OSError:
            continue
        made.append(folder)

    def join() -> None:
        for folder in made:
            (folder / "cgroup.procs").write_text(str(os.getpid()))

    try:
        yield join if made else None
    finally:
        for folder in made:
            for _ in range(500):  # the first process of the box is gone a moment after its command
                with contextlib.suppress(OSError):
                    folder.rmdir()
                    break
                time.sleep(0.001)


def docker_by_hand(client: Any, tree: Path, scratch: Path) -> None:
    for code, said in ((AGENT, b"done\n"), (TESTS, b"1 passed\n")):
        base = copy(tree, scratch, owned=True)
        places = {"w": "/workspace", "h": "/home/agent", "t": "/tmp"}
        container = client.containers.run(
            IMAGE,
            ["sleep", "infinity"],
            detach=True,
            init=True,
            network_mode="none",
            mem_limit="512m",
            memswap_limit="512m",
            pids_limit=64,
            user=f"{USER}:{USER}",
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            read_only=True,
            working_dir="/workspace",
            volumes={str(base / name): {"bind": inside, "mode": "rw"} for name, inside in places.items()},
        )
        made = client.api.exec_create(container.id, [PYTHON, "-c", code], environment=ENV, workdir="/workspace")
        out = b"".join(piece or b"" for piece, _ in client.api.exec_start(made["Id"], stream=True, demux=True))
        if out != said or client.api.exec_inspect(made["Id"])["ExitCode"]:
            raise SystemExit(out)
        container.remove(force=True)
        shutil.rmtree(base)


def by_hand_at_once(one: Callable[[Path, Path], None], tree: Path, scratch: Path, count: int) -> None:
    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(one, tree, scratch) for _ in range(count)]:
            done.result()


# ---- measuring -----------------------------------------------------------------------------------------------------
def timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(kind: str, tree: Path, scratch: Path, repeat: int, at_once: int, client: Any) -> list[dict[str, Any]]:
    """Alternate ours and by hand; one row for one at a time, one for several."""
    hands: dict[str, Callable[[Path, Path], None]] = {
        "local": local_by_hand,
        "bubblewrap": bubblewrap_by_hand,
        "docker": partial(docker_by_hand, client),
    }
    rows = []
    for count in (1, at_once):
        mine = partial(anyio.run, ours_at_once, kind, tree, scratch, count)
        hand = partial(by_hand_at_once, hands[kind], tree, scratch, count)
        mine()
        hand()
        pairs = []
        for turn in range(max(3, repeat // count)):
            order = (mine, hand) if turn % 2 else (hand, mine)
            spent = {work: timed(work) for work in order}
            pairs.append((spent[mine] / count, spent[hand] / count))
        middle = [statistics.median(column) for column in zip(*pairs, strict=True)]
        best = [min(column) for column in zip(*pairs, strict=True)]
        rows.append(
            {
                "kind": kind,
                "at_once": count,
                "cycles": len(pairs) * count,
                "ours_ms": round(middle[0] * 1000, 1),
                "by_hand_ms": round(middle[1] * 1000, 1),
                "ratio": round(middle[0] / middle[1], 3),
                "ratio_of_best": round(best[0] / best[1], 3),
                "goal": GOALS[kind],
            }
        )
    return rows


@contextlib.contextmanager
def docker_client() -> Iterator[Any]:
    """A client of the engine named by DOCKER_HOST, or of a private one."""
    import docker

    build = [sys.executable, str(ROOT / "sandbox" / "images" / "host" / "build.py"), "--tag", IMAGE]
    root = None
    if "DOCKER_HOST" not in os.environ:
        root = Path(tempfile.mkdtemp(prefix="eng-"))
        own = ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"]
        places = [f"--data-root={root}/data", f"--exec-root={root}/run", f"--pidfile={root}/pid"]
        quiet = subprocess.DEVNULL
        engine = subprocess.Popen(
            ["dockerd", *places, f"--host=unix://{root}/sock", *own], stdin=quiet, stdout=quiet, stderr=quiet
        )
        os.environ["DOCKER_HOST"] = f"unix://{root}/sock"
        while not (root / "sock").exists():
            time.sleep(0.05)
        time.sleep(1)
    client = None
    try:
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        client = docker.from_env(timeout=120, max_pool_size=16)
        yield client
    finally:
        if client is not None:
            client.close()
        if root is not None:
            engine.terminate()
            engine.wait(60)
            subprocess.run(["umount", "-l", str(root / "data")], stderr=subprocess.DEVNULL, check=False)
            shutil.rmtree(root, ignore_errors=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default="local,bubblewrap,docker")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--scratch", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.scratch) as folder, contextlib.ExitStack() as stack:
        Path(folder).chmod(0o755)
        tree = make_tree(Path(folder) / "tree")
        scratch = Path(folder) / "scratch"
        scratch.mkdir()
        for kind in options.kinds.split(","):
            client = stack.enter_context(docker_client()) if kind == "docker" else None
            rows += measure(kind, tree, scratch, options.repeat, options.at_once, client)
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"{'sandbox':<11}{'at once':>8}{'cycles':>8}{'ours':>11}{'by hand':>11}{'ratio':>8}{'of best':>9}  goal")
    for row in rows:
        goal = "" if row["goal"] is None else f"≤ {row['goal']}"
        times = f"{row['ours_ms']:>8} ms{row['by_hand_ms']:>8} ms"
        ratios = f"{row['ratio']:>8}{row['ratio_of_best']:>9}"
        print(f"{row['kind']:<11}{row['at_once']:>8}{row['cycles']:>8}{times}{ratios}  {goal}")


if __name__ == "__main__":
    main()
