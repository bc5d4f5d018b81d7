"""Isolation by kernel namespaces, with bubblewrap: no engine, no image, about ten milliseconds a command.

Every command gets its own process, mount, network, IPC and host-name space; the whole tree dies with it. It sees the
system folders read-only, the declared mounts, and its workspace, HOME and TMPDIR at paths that are the same in every
rollout. Where we are root the command is another user of this machine, not a renamed root: bubblewrap run by root
with a user namespace of its own would still read and write files as root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath

from pairtrial.core.errors import SandboxError, SandboxUnavailableError
from pairtrial.sandbox import process
from pairtrial.sandbox.hosted import HostedSandbox
from pairtrial.sandbox.identity import AGENT, HOME, SHM_BYTES, TMP, WORKSPACE, write_identity
from pairtrial.sandbox.launch import Launch
from pairtrial.sandbox.namespaces import Namespaces, make_namespaces
from pairtrial.sandbox.network import FORWARDER, GATEWAY_PORT, RUN_FOLDER, Relay, forwarded
from pairtrial.sandbox.protocol import ExecResult, Isolation, SandboxSpec
from pairtrial.sandbox.wrapper import WRAP, read_status

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
SETTINGS = (
    "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/ssl",
    "/etc/ca-certificates", "/etc/pki", "/etc/mime.types", "/etc/java", "/etc/fonts",
)  # fmt: skip
OPEN_SETTINGS = ("/etc/resolv.conf", "/etc/hosts", "/etc/services", "/etc/gai.conf")
STATUS_FD, USERNS_FD, OPTIONS_FD = 9, 10, 11


def bubblewrap_path() -> str:
    """The program; raises `SandboxUnavailableError` where it is missing."""
    found = shutil.which("bwrap") if sys.platform == "linux" else None
    if found is None:
        raise SandboxUnavailableError(
            "the plan wants the sandbox 'bubblewrap', and bwrap is not on PATH",
            hint="install the package bubblewrap (Linux only), or amend the plan",
            slug="no-bubblewrap",
        )
    return found


@cache
def _options(program: str) -> str:
    import subprocess

    return subprocess.run([program, "--help"], capture_output=True, text=True, check=False).stdout


class BubblewrapSandbox(HostedSandbox):
    """Commands run in namespaces of their own."""

    isolation = Isolation.NAMESPACES
    workspace, home, tmp = WORKSPACE, HOME, TMP
    overhead_pids = 4
    overhead_bytes = 16 << 20
    pids_fallback = "rlimit of the user inside"

    def __init__(self, spec: SandboxSpec) -> None:
        super().__init__(spec, "bubblewrap")
        self.program = bubblewrap_path()
        self.as_root = os.geteuid() == 0
        self.owner = AGENT if self.as_root else None
        self._spaces = Namespaces()
        self._relay: Relay | None = None
        self._forwarding = False
        self._version = ""

    @property
    def facts(self) -> Mapping[str, str]:
        """What the receipt says."""
        nested = self.as_root or "--disable-userns" in _options(self.program)
        return {
            "sandbox": self.kind,
            "isolation": self.isolation.value,
            "paths": "the same in every rollout",
            "network": self.spec.network,
            "bubblewrap": self._version,
            "user": f"{AGENT} of the machine" if self.as_root else f"{AGENT} inside, our own user outside",
            "user_namespaces_inside": "refused" if nested else "possible",
            "seccomp": "none",
            **self._limit_facts,
        }

    # ---- life --------------------------------------------------------------------------------------------------
    async def prepare(self) -> None:
        """Make the folders and namespaces, and prove that a command can be started."""
        self._version = _version(self.program)
        self.make_folders()
        try:
            write_identity(self.control, AGENT)
            if self.as_root:
                self._spaces = make_namespaces(
                    user=AGENT,
                    net=self.spec.network == "gateway",
                    port=GATEWAY_PORT if self.spec.network == "gateway" else None,
                )
            self.make_group(always=False)
            await _prove(self.program, self.as_root)
        except BaseException:
            await self.destroy()
            raise

    async def destroy(self) -> None:
        """Kill, then remove everything."""
        if self._relay is not None:
            self._relay.close()
            self._relay = None
        await super().destroy()
        self._spaces.close()

    async def serve_gateway(self, *, host_port: int | None = None, unix_socket: Path | None = None) -> str:
        """Answer on a fixed loopback port inside with what a server of the host says."""
        if self.spec.network != "gateway":
            raise SandboxError(f"the network of this sandbox is {self.spec.network!r}, not 'gateway'", slug="gateway")
        if self._relay is not None:
            raise SandboxError("the gateway is served already", slug="gateway")
        if self._spaces.listener is not None:
            self._relay = Relay.to(self._spaces.listener.dup(), host_port=host_port, unix_socket=unix_socket)
        else:
            self._relay = Relay.at(self.control / "g", host_port=host_port, unix_socket=unix_socket)
            shutil.copyfile(FORWARDER, self.control / "forward.py")
            self._forwarding = True
        return f"http://127.0.0.1:{GATEWAY_PORT}"

    # ---- commands ----------------------------------------------------------------------------------------------
    def _launch(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Launch:
        status = self.control / f"s-{os.urandom(6).hex()}"
        number = os.open(status, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        wrapper = os.fdopen(number, "wb")

        box = os.memfd_create("box")  # not on the command line: process 1 inside would show the host's paths
        options = os.fdopen(box, "wb")
        options.write(b"".join(os.fsencode(word) + b"\0" for word in self._box()))
        options.flush()
        os.lseek(box, 0, os.SEEK_SET)

        def end(result: ExecResult) -> ExecResult:
            wrapper.close()
            options.close()
            return read_status(result, status, self.program)

        passed = [(number, STATUS_FD), (box, OPTIONS_FD)]
        if self._spaces.user is not None:
            passed.append((self._spaces.user, USERNS_FD))
        command = ["/bin/sh", "-c", WRAP, "sh", cwd or WORKSPACE, *(forwarded(argv) if self._forwarding else argv)]
        return Launch(
            (self.program, "--args", str(OPTIONS_FD), "--", *self._descend(), *command),
            env,
            netns=self._spaces.net,
            pass_fds=tuple(passed),
            spared=("bwrap",),
            on_end=end,
        )

    def _descend(self) -> list[str]:
        """What runs inside before the command: limits by user, and the step down from root."""
        steps: list[str] = []
        if self.spec.limits.pids is not None and self.group is None:
            limit = self.spec.limits.pids + self.overhead_pids
            steps += ["/usr/bin/prlimit", f"--nproc={limit}:{limit}", "--"]
        if self.as_root:
            steps += ["/usr/bin/setpriv", f"--reuid={AGENT}", f"--regid={AGENT}", "--clear-groups"]
            steps += ["--inh-caps=-all", "--"]
        return steps

    def _box(self) -> Iterator[str]:
        yield from ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent")
        yield from ("--hostname", "sandbox")
        if self.as_root:
            yield from ("--userns", str(USERNS_FD), "--cap-drop", "ALL")
            yield from ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
        else:
            yield from ("--unshare-user", "--uid", str(AGENT), "--gid", str(AGENT), "--cap-drop", "ALL")
            if "--disable-userns" in _options(self.program):
                yield "--disable-userns"
        if self.spec.network != "open" and self._spaces.net is None:
            yield "--unshare-net"
        yield from _once(self._places())
        yield from ("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/")

    def _places(self) -> Iterator[tuple[str, ...]]:
        yield from self._system()
        for name, target in (("w", WORKSPACE), ("h", HOME), ("t", TMP)):
            yield from _place(str(self.root / name), target, writable=True)
        for mount in sorted(self.spec.mounts, key=lambda mount: mount.target.count("/")):
            source = str(mount.source.absolute())
            if not mount.writable and mount.target == source and source.startswith("/usr/"):
                continue  # seen already
            yield from _place(source, mount.target, writable=mount.writable)

    def _system(self) -> Iterator[tuple[str, ...]]:
        for place in SYSTEM:
            path = Path(place)
            if path.is_symlink():
                yield ("--symlink", str(path.readlink()), place)
            elif path.exists():
                yield from _place(place, place)
        for place in SETTINGS + (OPEN_SETTINGS if self.spec.network == "open" else ()):
            if Path(place).exists():
                yield from _place(place, place)
        for name in ("passwd", "group", "nsswitch.conf", "hosts"):
            if name != "hosts" or self.spec.network != "open":
                yield from _place(str(self.control / name), f"/etc/{name}")
        yield ("--proc", "/proc", "--dev", "/dev")
        yield ("--perms", "1777", "--size", str(SHM_BYTES), "--tmpfs", "/dev/shm")  # noqa: S108 - a path inside
        if self._forwarding:
            yield from _place(str(self.control / "g"), f"{RUN_FOLDER}/g")
            yield from _place(str(self.control / "forward.py"), f"{RUN_FOLDER}/forward.py")


def _once(groups: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """All words, groups that stand twice once."""
    for group in dict.fromkeys(groups):
        yield from group


def _place(source: str, target: str, *, writable: bool = False) -> Iterator[tuple[str, ...]]:
    """Bind, with folders above it that everybody may pass through (bubblewrap makes them private to root)."""
    for parent in reversed(PurePosixPath(target).parents[:-1]):
        yield ("--perms", "0755", "--dir", str(parent))
    yield ("--bind" if writable else "--ro-bind", source, target)


@cache
def _version(program: str) -> str:
    import subprocess

    return subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout.strip()


_proven: set[tuple[str, bool]] = set()


async def _prove(program: str, as_root: bool) -> None:
    """Start one command, once a process of ours: some kernels and containers refuse what bubblewrap needs."""
    if (program, as_root) in _proven:
        return
    missing = [name for name in ("--perms", "--size") if name not in _options(program)]
    if as_root and "--userns " not in _options(program):
        missing.append("--userns")
    if as_root and not Path("/usr/bin/setpriv").exists():
        missing.append("/usr/bin/setpriv")
    tried = None
    if not missing:
        spaces = ["--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
        own = [] if as_root else ["--unshare-user"]
        tried = await process.run([program, *own, *spaces, "/bin/true"], env={}, timeout_s=30)
    if tried is None or not tried.ok:
        with contextlib.suppress(AttributeError):
            missing += [tried.stderr.decode("utf-8", "replace").strip()]  # type: ignore[union-attr]
        raise SandboxUnavailableError(
            f"bubblewrap cannot be used here: {', '.join(missing)}",
            hint="needs bubblewrap 0.8 or newer, util-linux, and user namespaces for our user; see `pairtrial doctor`",
            slug="bubblewrap-refused",
        )
    _proven.add((program, as_root))
