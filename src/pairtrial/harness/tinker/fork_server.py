"""Runs the prompt's example against candidate edits that exist in memory only.

A program of its own, standard library only, started by the task's own ``python`` with the workspace as working
folder: ``python fork_server.py``, JSON Lines on standard input and output. The first line in is the configuration
(`Config`); the first line out says how the example ends on the tree as it is. Then each request
``{"file", "start", "end", "new", "function"}`` gets ``{"outcome"}``: ``pass``, ``fail`` or ``killed``.

For each edited file a *holder* process runs the example up to the point where it imports that file, and stays there;
every candidate is a fork of the holder that goes on with the edited source. So what is imported before the file is
imported once, and a candidate sees exactly what it would see in a fresh interpreter. A file that the example never
imports cannot change its outcome: the holder reports that, and no candidate of the file is run.
"""

# pathlib is not imported: it takes time, and it would be loaded before the example loads it.
# ruff: noqa: PTH109, PTH118, PTH123

from __future__ import annotations

import contextlib
import gc
import json
import linecache
import os
import resource
import select
import signal
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:  # the task's Python may be older than ours, and importing typing costs time
    from collections.abc import Sequence
    from typing import Any, NoReturn, TypedDict

    from pairtrial.harness.tinker import importing, splice
    from pairtrial.harness.tinker.splice import Place

    class Request(TypedDict):
        """One candidate: replace the bytes ``start:end`` of a file."""

        file: str
        start: int
        end: int
        new: str
        function: Place | None
        """The function in whose body the edit lies, if it lies in one."""

    class Config(TypedDict):
        """First line of standard input."""

        example: str
        preload: list[str]
        """Modules to import beforehand; those that lie in the workspace are left out here."""
        sources: list[str]
        """Files of the workspace to compile beforehand."""
        wall_s: float
        cpu_s: int
        memory_bytes: int

else:  # from the folder of this file; the names must not stay where the workspace's modules are looked up
    import importing
    import splice

    del sys.modules["importing"], sys.modules["splice"]

PASS = 93
"""Exit status of a passing example; one that calls ``exit(0)`` before its assertion has not passed."""
MAX_WRITTEN_BYTES = 64 << 20
GRACE_S = 2.0


class Late(Exception):
    """Something took longer than every limit of its own allows."""


def send(handle: int, value: object) -> None:
    """Write one JSON line."""
    data = json.dumps(value).encode("ascii") + b"\n"
    while data:
        data = data[os.write(handle, data) :]


class Lines:
    """Reads JSON lines from a file descriptor."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.held = b""

    def read(self, timeout: float | None = None) -> Any:
        """The next value, None at the end; Late when none comes in time."""
        while b"\n" not in self.held:
            if timeout is not None and not select.select([self.handle], [], [], timeout)[0]:
                raise Late
            chunk = os.read(self.handle, 1 << 16)
            if not chunk:
                return None
            self.held += chunk
        line, _, self.held = self.held.partition(b"\n")
        return json.loads(line)


def become_candidate(config: Config, handles: Sequence[int]) -> None:
    """What a fork does first: a group of its own, no way back to the pipes, limits that no code can survive."""
    os.setpgid(0, 0)
    for handle in handles:
        os.close(handle)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, config["wall_s"])
    for kind, value in (
        (resource.RLIMIT_CPU, config["cpu_s"]),
        (resource.RLIMIT_AS, config["memory_bytes"]),
        (resource.RLIMIT_FSIZE, MAX_WRITTEN_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(ValueError, OSError):  # this system has no such limit, or a lower one
            resource.setrlimit(kind, (value, value))


def run_example(text: str) -> bool:
    """Run the example as a program; True when it came to its end."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv = ["<example>"]
    linecache.cache["<example>"] = (len(text), None, text.splitlines(True), "<example>")
    try:
        exec(compile(text, "<example>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - that is its job
    except BaseException:  # an exit, an interrupt and an error are all a failing example
        return False
    return True


def kill_group(pid: int, kind: int = signal.SIGKILL) -> None:
    """Signal a process group that may be gone."""
    with contextlib.suppress(OSError):
        os.killpg(pid, kind)


class Children:
    """The processes below this one: one candidate at a time, and holders."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.candidate: int | None = None
        self.holders: list[int] = []

    def end(self, *_: object) -> NoReturn:
        """End this process and all below it; also the handler of SIGTERM."""
        if self.candidate is not None:
            kill_group(self.candidate)
        for pid in self.holders:
            kill_group(pid, signal.SIGTERM)
        os._exit(0)

    def wait(self, pid: int) -> str:
        """Outcome of a candidate that was just forked; afterwards nothing of its group is alive."""
        self.candidate = pid
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # either side may be the first
        signal.signal(signal.SIGALRM, _raise_late)
        signal.setitimer(signal.ITIMER_REAL, self.config["wall_s"] + GRACE_S)
        status = -1
        try:
            status = os.waitpid(pid, 0)[1]
            signal.setitimer(signal.ITIMER_REAL, 0)
            kill_group(pid)
        except Late:
            kill_group(pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self.candidate = None
        if status < 0 or os.WIFSIGNALED(status):
            return "killed"
        return "pass" if os.WEXITSTATUS(status) == PASS else "fail"


def _raise_late(*_: object) -> NoReturn:
    raise Late


class Holder:
    """A process that waits where the example imports one file."""

    def __init__(self, config: Config, source: bytes, code: types.CodeType | None, requests: int, answers: int) -> None:
        self.config = config
        self.source = source
        self.unedited = code
        self.requests = requests
        self.answers = answers
        self.edited: types.CodeType | None = None
        """Code of the edited file; set in candidates only."""

    def run(self, finder: importing.Finder) -> NoReturn:
        """Run the example; the holder ends in `hold`, a candidate comes back here with its outcome."""
        finder.hold = self.hold
        sys.meta_path.insert(0, finder)
        passed = run_example(self.config["example"])
        if self.edited is None:
            send(self.answers, {"held": False, "outcome": "pass" if passed else "fail"})
            os._exit(0)
        os._exit(PASS if passed else 1)

    def hold(self, origin: str) -> types.CodeType:
        """Fork a candidate for each request. Returns in candidates only."""
        if self.edited is not None:
            return self.edited  # imported a second time, under another name
        children = Children(self.config)
        signal.signal(signal.SIGTERM, children.end)
        send(self.answers, {"held": True})
        lines = Lines(self.requests)
        gc.collect()
        gc.freeze()
        while True:
            request = lines.read()
            if request is None:
                os._exit(0)
            pid = os.fork()
            if pid == 0:
                become_candidate(self.config, (self.requests, self.answers))
                self.edited = self.edit(request, origin)
                return self.edited
            send(self.answers, {"outcome": children.wait(pid)})

    def edit(self, request: Request, origin: str) -> types.CodeType:
        """Code of the file with the edit made."""
        start, end, new, function = request["start"], request["end"], request["new"].encode(), request["function"]
        edited = self.source[:start] + new + self.source[end:]
        code = None
        if function is not None and self.unedited is not None:
            code = splice.spliced(self.unedited, edited, function, len(new) - (end - start))
        return code or compile(edited, origin, "exec", dont_inherit=True)


class Server:
    """Starts a holder for each file when its first candidate comes, and passes requests on."""

    def __init__(self, config: Config, root: str, handles: tuple[int, int]) -> None:
        self.config = config
        self.root = root
        self.handles = handles
        self.codes = importing.compile_all(config["sources"], root)
        self.holders: dict[str, tuple[int, Lines]] = {}
        self.fixed: dict[str, str] = {}
        self.children = Children(config)
        signal.signal(signal.SIGTERM, self.children.end)

    def unedited(self) -> str:
        """Outcome of the example on the tree as it is."""
        pid = os.fork()
        if pid == 0:
            become_candidate(self.config, self.handles)
            sys.meta_path.insert(0, importing.Finder(self.codes))
            os._exit(PASS if run_example(self.config["example"]) else 1)
        return self.children.wait(pid)

    def outcome(self, request: Request) -> str:
        """Outcome of one candidate."""
        file = request["file"]
        if file not in self.holders and file not in self.fixed:
            self.start(file)
        if file in self.fixed:
            return self.fixed[file]
        requests, answers = self.holders[file]
        try:
            send(requests, request)
            answer = answers.read(self.config["wall_s"] + 3 * GRACE_S)
        except (Late, OSError):
            answer = None
        return str(answer["outcome"]) if answer else "killed"

    def start(self, file: str) -> None:
        """Start the holder of a file; a file that the example does not import gets a fixed outcome instead."""
        place = os.path.join(self.root, file)
        with open(place, "rb") as handle:
            source = handle.read()
        to_holder, from_holder = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            others = [number for requests, answers in self.holders.values() for number in (requests, answers.handle)]
            for number in (*self.handles, *others, to_holder[1], from_holder[0]):
                os.close(number)
            place = os.path.realpath(place)
            holder = Holder(self.config, source, self.codes.get(place), to_holder[0], from_holder[1])
            holder.run(importing.Finder(self.codes, place))
        self.children.holders.append(pid)
        os.close(to_holder[0])
        os.close(from_holder[1])
        answers = Lines(from_holder[0])
        try:
            first = answers.read(self.config["wall_s"])
        except Late:
            first = None
        if first and first["held"]:
            self.holders[file] = (to_holder[1], answers)
            return
        kill_group(pid)
        os.waitpid(pid, 0)
        self.children.holders.remove(pid)
        os.close(to_holder[1])
        os.close(from_holder[0])
        self.fixed[file] = first["outcome"] if first else "killed"


def main() -> None:
    """Serve until standard input ends."""
    root = os.getcwd()
    sys.path[0] = root  # what `python -m` would have there, instead of the folder of this file
    handles = (os.dup(0), os.dup(1))
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    lines = Lines(handles[0])
    config = lines.read()
    if config is None:
        return
    importing.preload(config["preload"], root)
    server = Server(config, root, handles)
    send(handles[1], {"outcome": server.unedited()})
    while True:
        request = lines.read()
        if request is None:
            server.children.end()
        send(handles[1], {"outcome": server.outcome(request)})


if __name__ == "__main__":
    main()
