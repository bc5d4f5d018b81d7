"""What a hostile command reaches in each kind of sandbox, tried one by one on this machine.

    python sandbox/evidence/reach.py [--kinds local,bubblewrap,docker] [--image pairtrial/host:1] [--write]

``--write`` renews ``reach.json`` and ``reach.md`` beside this file; a test compares them with what is found.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import anyio

from pairtrial.sandbox import Limits, Mount, Sandbox, SandboxSpec, make_sandbox

HERE = Path(__file__).resolve().parent
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
CONNECT = "import socket; socket.create_connection(('{0}', {1}), 2)"
ATTACKS = {
    "connect to a service of the host on loopback": f'python3 -c "{CONNECT.format("127.0.0.1", "$PORT")}"',
    "find a route to another network": (
        "python3 -c \"import socket; socket.socket(type=socket.SOCK_DGRAM).connect(('192.0.2.1', 9))\""
    ),
    "read a file of the harness": "cat $SECRET_FILE",
    "read /etc/shadow": "cat /etc/shadow",
    "read the environment of a process of the host": "grep -sq $SECRET /proc/*/environ",
    "read the notes of another rollout": "cat $OTHER/notes",
    "list the neighbours of a mounted folder": "test $(ls $SHARED | wc -l) -gt 1",
    "change a mounted folder": "touch $SHARED/mine/x",
    "write to the system": "touch /usr/x && rm /usr/x",
    "write to a folder of the host's root": "mkdir /pairtrial-probe && rmdir /pairtrial-probe",
    "use a capability": "grep -q 'CapEff:.*[1-9a-f]' /proc/self/status",
    "make a user namespace": 'unshare -r true || python3 -c "import os; os._exit(0 if $UNSHARE == 0 else 1)"',
    "see the block devices": "ls /dev/vd* /dev/sd* /dev/nvme* 2>/dev/null | grep .",
    "leave a process behind": "setsid sleep 654321 & sleep 0.2",
    "fill the disk beyond the limit": "head -c 60000000 /dev/zero > big",
    "take more memory than the limit": "python3 -S -c 'bytearray(400 << 20)'",
    "start more processes than the limit": (
        'python3 -S -c "import os, time; [os.fork() or (time.sleep(9), os._exit(0)) for _ in range(200)]"'
    ),
}
"""What is tried → a shell command that returns 0 when it succeeds."""
UNSHARE = "__import__('ctypes').CDLL(None).unshare(0x10000000)"


async def probe(kind: str, image: str | None, base: Path, port: int, secret: str) -> dict[str, bool]:
    """Which attacks succeed in one kind of sandbox."""
    shared = base / "shared"
    for name in ("mine", "other"):
        (shared / name).mkdir(parents=True, exist_ok=True)
    (base / "secret").write_text(secret)
    limits = Limits(wall_s=60, memory_bytes=200 << 20, pids=64, disk_bytes=40 << 20)
    mounts = (Mount(shared / "mine", str(shared / "mine")),)
    spec = SandboxSpec(label="probe", scratch=base / "scratch", mounts=mounts, image=image, limits=limits)
    other, sandbox = make_sandbox(kind, spec), make_sandbox(kind, spec)
    try:
        for one in (other, sandbox):
            await one.prepare()
        await other.put_file(f"{other.home}/notes", b"x")
        table = {
            "PORT": str(port), "SECRET": secret, "SECRET_FILE": str(base / "secret"), "SHARED": str(shared),
            "OTHER": str(other.host_path(other.home)), "UNSHARE": UNSHARE,
        }  # fmt: skip
        return {name: await _succeeds(sandbox, name, command, table) for name, command in ATTACKS.items()}
    finally:
        for one in (sandbox, other):
            await one.destroy()


async def _succeeds(sandbox: Sandbox, name: str, command: str, table: dict[str, str]) -> bool:
    for word in sorted(table, key=len, reverse=True):
        command = command.replace(f"${word}", table[word])
    result = await sandbox.exec(["sh", "-c", command], env=ENV, timeout_s=40)
    if name == "leave a process behind":
        return (
            subprocess.run(["/usr/bin/pgrep", "-f", "sleep 654321"], capture_output=True, check=False).returncode == 0
        )
    return result.ok


def probe_all(kinds: list[str], image: str) -> dict[str, dict[str, bool]]:
    """Attack → kind → whether it succeeds."""
    found: dict[str, dict[str, bool]] = {name: {} for name in ATTACKS}
    secret = "pairtrial-probe-" + os.urandom(8).hex()
    holder = subprocess.Popen(["/bin/sleep", "600"], env={"PROBE": secret})
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, tempfile.TemporaryDirectory(prefix="reach-") as base:
            port = server.getsockname()[1]
            for kind in kinds:
                given = image if kind == "docker" else None
                result = anyio.run(partial(probe, kind, given, Path(base) / kind, port, secret))
                for name, success in result.items():
                    found[name][kind] = success
    finally:
        holder.kill()
        holder.wait()
    return found


def table(found: dict[str, dict[str, bool]], kinds: list[str]) -> str:
    """The same as a Markdown table."""
    lines = ["| a command tries to … | " + " | ".join(kinds) + " |", "| --- |" + " --- |" * len(kinds)]
    for name, row in found.items():
        lines.append(f"| {name} | " + " | ".join("**succeeds**" if row[kind] else "stopped" for kind in kinds) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Try, print, and write where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default="local,bubblewrap,docker")
    parser.add_argument("--image", default="pairtrial/host:1")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    found = probe_all(kinds, options.image)
    sys.stdout.write(table(found, kinds))
    if options.write:
        (HERE / "reach.json").write_text(json.dumps(found, indent=1) + "\n")
        (HERE / "reach.md").write_text(table(found, kinds))


if __name__ == "__main__":
    main()
