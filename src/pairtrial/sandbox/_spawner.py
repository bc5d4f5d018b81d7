"""The program that starts every command, in a small interpreter of its own.

It is run as a script and imports nothing of ours. One spawner serves one harness process. Each command gets a
*keeper*, forked from the spawner, and the keeper forks the command. The keeper is the subreaper of all that the
command starts, so a descendant that calls setsid or forks twice still ends up below it and dies with the command.
When the harness vanishes, also by SIGKILL, the control socket closes and the keeper kills its tree.

Forking here and not in the harness: the harness has threads and much memory, and a death signal would be tied to
whichever of its threads forked.
"""

# pathlib would double the start-up time of this program.
# ruff: noqa: PTH123, PTH208

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import gc
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

LINUX = sys.platform == "linux"
PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWNET = 0x40000000
CLONE_NEWUSER = 0x10000000
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGUSR1)
libc = ctypes.CDLL(None, use_errno=True)


def parents() -> dict[int, tuple[int, str]]:
    """Parent and name of every live process that can be seen; zombies are left out."""
    return parents_by_proc() if LINUX else parents_by_ps()


def parents_by_proc() -> dict[int, tuple[int, str]]:
    found: dict[int, tuple[int, str]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as handle:
                text = handle.read()
        except OSError:
            continue
        name = text[text.index(b"(") + 1 : text.rindex(b")")]
        fields = text[text.rindex(b")") + 2 :].split()
        if fields[0] not in (b"Z", b"X"):
            found[int(entry)] = (int(fields[1]), name.decode("utf-8", "replace"))
    return found


def parents_by_ps() -> dict[int, tuple[int, str]]:
    found: dict[int, tuple[int, str]] = {}
    listing = subprocess.run(["/bin/ps", "-axo", "pid=,ppid=,stat=,comm="], capture_output=True, check=False).stdout
    for line in listing.decode("utf-8", "replace").splitlines():
        pid, parent, state, name = line.split(None, 3)
        if not state.startswith("Z"):
            found[int(pid)] = (int(parent), name.rpartition("/")[2])
    return found


def descendants(root: int) -> dict[int, str]:
    """Live processes below ``root``."""
    table = parents()
    below: dict[int, list[int]] = {}
    for pid, (parent, _) in table.items():
        below.setdefault(parent, []).append(pid)
    found: dict[int, str] = {}
    todo = [root]
    while todo:
        for pid in below.get(todo.pop(), ()):
            if pid not in found:
                found[pid] = table[pid][1]
                todo.append(pid)
    return found


def signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


class Keeper:
    """Parent and subreaper of one command."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.main = 0
        self.group = 0
        self.ended = False
        self.doomed: list[str] | None = None
        self.spared: list[str] = []

    def say(self, **message: Any) -> None:
        with contextlib.suppress(OSError):
            self.control.sendall(json.dumps(message).encode() + b"\n")

    def members(self) -> dict[int, str]:
        """Everything to be killed."""
        return descendants(os.getpid())

    def reap(self) -> bool:
        """Collect dead children, report the command's end; True while a child is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.main and not self.ended:
                self.ended = True
                names = self.doomed
                if self.spared:  # a namespace dies by itself; that takes less than a look at all processes
                    self.let_die()
                if names is None:
                    names = sorted(self.members().values()) if self.children_left() else []
                self.say(ended=status, survivors=names[:64], maxrss=usage.ru_maxrss)

    def let_die(self) -> None:
        for _ in range(40):
            if not self.children_left():
                return
            time.sleep(0.0005)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)

    def children_left(self) -> bool:
        if not hasattr(os, "waitid"):
            return True
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True

    def destroy_tree(self) -> bool:
        """Kill until nothing is left. Stops the tree first: a fork bomb outruns one kill at a time."""
        if not self.ended:
            self.doomed = sorted(name for pid, name in self.members().items() if pid != self.main)
        seen: set[int] = set()
        for _ in range(100):
            fresh = [pid for pid in self.members() if pid not in seen]
            if not fresh:
                break
            signal_all(fresh, signal.SIGSTOP)
            seen.update(fresh)
        give_up = time.monotonic() + 20
        while time.monotonic() < give_up:
            left = list(self.members())
            signal_all(left, signal.SIGKILL)
            if not LINUX and self.group:
                with contextlib.suppress(OSError):
                    os.killpg(self.group, signal.SIGKILL)
            if not self.reap() and not left:
                return True
            time.sleep(0.002)
        return False

    def watch(self, wake: int) -> None:
        """Serve until the command ended or the harness asks for its end or is gone."""
        kill_at: float | None = None
        while self.reap() and not self.ended:
            patience = None if kill_at is None else max(0.0, kill_at - time.monotonic())
            ready, _, _ = select.select([self.control.fileno(), wake], [], [], patience)
            if wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake, 4096)
            if self.control.fileno() in ready:
                words = self.control.recv(4096)
                if not words:
                    break
                if b"K" in words:
                    break
                if words.startswith(b"T") and kill_at is None:
                    told = [pid for pid, name in self.members().items() if name not in self.spared]
                    signal_all(told, signal.SIGTERM)
                    kill_at = time.monotonic() + float(words[1:].split(b"\n")[0])
            if kill_at is not None and time.monotonic() >= kill_at:
                break
        clean = True
        if not self.ended or self.children_left():
            clean = self.destroy_tree()
        self.say(clean=clean)


def enter(request: dict[str, Any], extra: list[int]) -> None:
    """Put the calling process where the command shall live; runs in the command's process before exec."""
    for folder in request["cgroups"]:
        with open(folder + "/cgroup.procs", "w") as handle:
            handle.write("0")
    if request["netns"] is not None and libc.setns(extra[request["netns"]], CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns: " + os.strerror(ctypes.get_errno()))
    if request["rlimits"]:
        import resource

        for number, value in request["rlimits"]:
            soft, hard = resource.getrlimit(number)
            top = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(number, (top if soft == resource.RLIM_INFINITY else min(top, soft), top))
    if request["user"] is not None:
        os.setgroups([])
        os.setresgid(request["user"], request["user"], request["user"])
        os.setresuid(request["user"], request["user"], request["user"])


def become(request: dict[str, Any], fds: list[int], failure: int) -> None:
    """Turn the calling process into the command; never returns."""
    try:
        os.setsid()
        for name in (*IGNORED, signal.SIGCHLD):
            signal.signal(name, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        enter(request, fds[4:])
        keep = {failure}
        for source, target in ((fds[0], 0), (fds[1], 1), (fds[2], 2)):
            os.dup2(source, target)
        for index, target in request["pass"]:
            os.dup2(fds[4 + index], target)
            keep.add(target)
        low = 3
        for number in sorted(keep):
            if low < number:  # an empty range that ends at 0 closes everything (CPython 3.11)
                os.closerange(low, number)
            low = number + 1
        os.closerange(low, max(4096, max(fds) + 64))
        if request["cwd"] is not None:
            os.chdir(request["cwd"])
        os.umask(0o022)
        os.execvpe(request["argv"][0], request["argv"], request["env"])  # noqa: S606 - that is this program's job
    except BaseException as fault:  # whatever went wrong, the process must end here and say why
        code = (fault.errno or 0) if isinstance(fault, OSError) else 0
        os.write(failure, json.dumps([code, str(fault)]).encode())
    os._exit(126)


def keep(request: dict[str, Any], fds: list[int]) -> None:
    """Life of a keeper, from its fork to its end."""
    keeper = Keeper(socket.socket(fileno=fds[3]))
    keeper.spared = request["spared"]
    keeper.say(keeper=os.getpid())
    os.setsid()
    for name in IGNORED:
        signal.signal(name, signal.SIG_IGN)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    if LINUX:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    failed_read, failed_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        become(request, fds, lift([failed_write], 150)[0])
    keeper.main = keeper.group = pid
    os.close(failed_write)
    for number in (*fds[:3], *fds[4:]):
        os.close(number)
    failure = b""
    while piece := os.read(failed_read, 4096):
        failure += piece
    os.close(failed_read)
    if failure:
        os.waitpid(pid, 0)
        keeper.say(failed=json.loads(failure))
        return
    keeper.say(started=pid)
    keeper.watch(wake_read)


def loopback_up() -> None:
    """Bring up the loopback interface of the network namespace that the caller is in."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: UP, RUNNING


def inhabit(request: dict[str, Any], control: socket.socket, netns: list[int], mapped: int, unshared: int) -> None:
    """Make or enter namespaces, and send descriptors of them; runs in a process of its own."""
    made = (CLONE_NEWUSER if request["user"] is not None else 0) | (CLONE_NEWNET if request["net"] else 0)
    if netns and libc.setns(netns[0], CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns: " + os.strerror(ctypes.get_errno()))
    if made and libc.unshare(made):
        raise OSError(ctypes.get_errno(), "unshare: " + os.strerror(ctypes.get_errno()))
    os.write(unshared, b"1")
    os.read(mapped, 1)
    found = []
    if request["user"] is not None:
        found.append(os.open("/proc/self/ns/user", os.O_RDONLY))
        with open("/proc/sys/user/max_user_namespaces", "w") as handle:
            handle.write("0")
    if request["net"]:
        found.append(os.open("/proc/self/ns/net", os.O_RDONLY))
        loopback_up()
    if request["port"] is not None:
        listener = socket.create_server(("127.0.0.1", request["port"]))
        found.append(listener.detach())
    socket.send_fds(control, [b"{}"], found)


def namespaces(request: dict[str, Any], fds: list[int]) -> None:
    """Serve a request for namespaces: user (with two users: root and the one named), network, a listener in it."""
    control = socket.socket(fileno=fds[0])
    mapped_read, mapped_write = os.pipe()
    unshared_read, unshared_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(mapped_write)
        try:
            inhabit(request, control, fds[1:], mapped_read, unshared_write)
        except OSError as fault:
            control.sendall(json.dumps({"error": str(fault)}).encode())
        os._exit(0)
    os.close(unshared_write)
    if os.read(unshared_read, 1) and request["user"] is not None:
        user = request["user"]
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{pid}/{name}", "w") as handle:
                handle.write(f"0 0 1\n{user} {user} 1\n")
    os.close(mapped_write)


def receive(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """One request and the descriptors that came with it."""
    head, fds, _, _ = socket.recv_fds(channel, 4, 64)
    if not head:
        return None
    while len(head) < 4:
        head += channel.recv(4 - len(head))
    size = int.from_bytes(head, "big")
    pieces = bytearray()
    while len(pieces) < size:
        piece = channel.recv(min(1 << 16, size - len(pieces)))
        if not piece:
            return None
        pieces += piece
    return json.loads(bytes(pieces)), list(fds)


def lift(fds: list[int], lowest: int = 100) -> list[int]:
    """Move descriptors out of the way of the numbers that a command may get (3 to 99)."""
    lifted = []
    for number in fds:
        lifted.append(fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, lowest))
        os.close(number)
    return lifted


def serve(channel: socket.socket, fork: Callable[[], int] = os.fork) -> None:
    """Fork one keeper a request until the harness is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for name in IGNORED:
        signal.signal(name, signal.SIG_IGN)
    while True:
        got = receive(channel)
        if got is None:
            return
        request, fds = got
        fds = lift(fds)
        try:
            pid = fork()
        except OSError as fault:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fds[min(3, len(fds) - 1)])) as control:
                control.sendall(json.dumps({"failed": [fault.errno or errno.EAGAIN, str(fault)]}).encode() + b"\n")
            pid = -1
        if pid == 0:
            channel.close()
            try:
                (namespaces if request.get("namespaces") else keep)(request, fds)
            finally:
                os._exit(0)
        for number in fds:
            os.close(number)


if __name__ == "__main__":
    gc.disable()  # a collection after a fork would copy every page
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
