"""The same without root: another user of this machine runs the sandboxes, in a mount space where it can read us."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

NOBODY = 65534
SOURCE = Path(__file__).resolve().parents[2] / "src"
SCRIPT = """
import anyio, http.server, json, sys, threading
from pathlib import Path
from pairtrial.sandbox import Limits, SandboxSpec, make_sandbox

class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "5"); self.end_headers(); self.wfile.write(b"hello")
    def log_message(self, *_): pass

async def main(scratch):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    # without a control group nothing would keep a limit of processes in local, so it would be refused
    limits = Limits(wall_s=60, memory_bytes=300 << 20, pids=40 if sys.argv[2] == "bubblewrap" else None, disk_bytes=20 << 20)
    spec = SandboxSpec(label="x", scratch=scratch, network=sys.argv[3], limits=limits)
    sandbox = make_sandbox(sys.argv[2], spec)
    await sandbox.prepare()
    env = {"PATH": "/usr/bin:/bin"}
    found = {"facts": dict(sandbox.facts)}
    if sys.argv[3] == "gateway":
        found["url"] = await sandbox.serve_gateway(host_port=server.server_port)
        code = f"import urllib.request as u; print(u.urlopen('{found['url']}').read().decode())"
        found["said"] = [(await sandbox.exec(["/usr/bin/python3", "-c", code], env=env, timeout_s=30)).stdout.decode()
                         for _ in range(2)]
    async def run(*argv):
        result = await sandbox.exec(argv, env=env, timeout_s=30)
        return [result.exit_code, result.signal, result.limit, result.stdout.decode(), result.stderr.decode()]
    found["id"] = await run("sh", "-c", "id -u; unshare -r true && echo nested; touch f; cat /etc/shadow; touch /usr/x")
    found["owner"] = sandbox.host_path(sandbox.workspace + "/f").stat().st_uid
    found["kill"] = await run("sh", "-c", "kill -9 $$")
    found["own"] = await run("sh", "-c", "exit 137")
    found["memory"] = await run("/usr/bin/python3", "-c", "x = bytearray(500 << 20)")
    found["disk"] = await run("/usr/bin/python3", "-c", "import time\\nfor n in range(30):\\n"
        "  open(f'b{n}', 'wb').write(bytes(2 << 20))\\n  time.sleep(0.1)")
    await sandbox.destroy()
    server.shutdown(); server.server_close()
    found["left"] = [path.name for path in scratch.iterdir()]
    print(json.dumps(found))

anyio.run(main, Path(sys.argv[1]))
"""


@pytest.fixture
def scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="nobody-"))
    os.chown(folder, NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


def as_nobody(scratch: Path, *arguments: str) -> dict[str, Any]:
    """Run the script as another user who sees our interpreter and our source at their usual places."""
    prefixes = sorted({sys.prefix, sys.base_prefix, str(SOURCE)})
    stage = scratch.with_name(scratch.name + "-stage")
    lines = [f"mkdir {stage} && mount -t tmpfs none {stage}"]
    for number, prefix in enumerate(prefixes):
        lines.append(f"mkdir {stage}/{number} && mount --bind {prefix} {stage}/{number}")
    for top in sorted({"/" + prefix.split("/")[1] for prefix in prefixes} - {"/usr", "/tmp", "/opt"}):
        lines.append(f"mount -t tmpfs -o mode=755 none {top}")
    for number, prefix in enumerate(prefixes):
        lines.append(f"mkdir -p {prefix} && mount --bind {stage}/{number} {prefix}")
    lines.append('exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all -- "$@"')
    command = [sys.executable, "-c", SCRIPT, str(scratch), *arguments]
    try:
        done = subprocess.run(
            ["unshare", "-m", "sh", "-ec", "\n".join(lines), "sh", *command],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(SOURCE)},
            timeout=100,
        )
    finally:
        if stage.exists():
            stage.rmdir()
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def needs_root() -> None:
    if os.geteuid():
        pytest.skip("needs root, to become somebody else")


@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize("network", ["none", "gateway"])
def test_bubblewrap_for_an_ordinary_user(scratch: Path, network: str, require: Callable[..., None]) -> None:
    require("bubblewrap")
    found = as_nobody(scratch, "bubblewrap", network)
    assert found["id"][0] != 0 and found["id"][3] == "61000\n"
    assert "Read-only" in found["id"][4] and "cat: /etc/shadow" in found["id"][4]
    assert found["owner"] == NOBODY
    assert found["kill"][:2] == [None, 9] and found["own"][:2] == [137, None]
    assert found["memory"][0] == 1 and "MemoryError" in found["memory"][4]
    assert found["disk"][2] == "disk"
    assert found["left"] == []
    assert "rlimit" in found["facts"]["limit_memory"]
    assert found["facts"]["user_namespaces_inside"] == "refused"
    if network == "gateway":
        assert found["url"] == "http://127.0.0.1:8080" and found["said"] == ["hello\n", "hello\n"]


@pytest.mark.usefixtures("needs_root")
def test_local_for_an_ordinary_user(scratch: Path) -> None:
    found = as_nobody(scratch, "local", "gateway")
    assert found["id"][3].startswith("65534\n")
    assert found["kill"][:2] == [None, 9] and found["own"][:2] == [137, None]
    assert found["memory"][0] == 1 and found["disk"][2] == "disk"
    assert found["said"] == ["hello\n", "hello\n"] and found["left"] == []
