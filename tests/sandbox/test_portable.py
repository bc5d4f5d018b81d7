"""The paths that only other systems take, as far as they can be walked here."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from pairtrial.core.errors import SandboxError
from pairtrial.sandbox import _spawner
from pairtrial.sandbox.namespaces import make_namespaces

ELSEWHERE = """
import sys
sys.platform = "darwin"
import pairtrial.sandbox, pairtrial.sandbox.bubblewrap, pairtrial.sandbox.docker, pairtrial.sandbox.survey
from pairtrial.sandbox import SandboxSpec, make_sandbox, disk, local
from pairtrial.core.errors import SandboxUnavailableError
from pathlib import Path
assert not disk.may_mount() and disk.unmount_below(Path("/")) is None and local.kill_stragglers(Path("/")) == ()
try:
    make_sandbox("bubblewrap", SandboxSpec(label="x", scratch=Path("/nowhere")))
except SandboxUnavailableError:
    print("refused")
"""


def test_every_module_can_be_imported_elsewhere_and_bubblewrap_is_refused() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", ELSEWHERE], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("refused\n", "")


def test_processes_by_ps_are_those_by_proc() -> None:
    child = subprocess.Popen(["sleep", "30"])
    try:
        while _spawner.parents_by_proc()[child.pid][1] != "sleep":
            time.sleep(0.01)
        for found in (_spawner.parents_by_ps(), _spawner.parents_by_proc()):
            assert found[child.pid] == (os.getpid(), "sleep")
            assert 1 in found
        child.kill()
        time.sleep(0.1)  # a zombie now: nobody has waited for it
        assert child.pid not in _spawner.parents_by_ps()
        assert child.pid not in _spawner.parents_by_proc()
    finally:
        child.kill()
        child.wait()


def test_namespaces_that_cannot_be_made_are_said() -> None:
    read, write = os.pipe()
    try:
        with pytest.raises(SandboxError, match="setns"):
            make_namespaces(enter_net=read, port=8080)  # no network namespace
    finally:
        os.close(read)
        os.close(write)


def test_a_namespace_has_two_users_and_a_listener_that_only_it_sees() -> None:
    if os.geteuid():
        pytest.skip("needs root")
    made = make_namespaces(user=61000, net=True, port=8080)
    assert made.user is not None and made.net is not None and made.listener is not None
    assert made.listener.getsockname() == ("127.0.0.1", 8080)
    script = "cat /proc/self/uid_map; cat /proc/net/tcp | grep -c ':1F90'; unshare -U true 2>/dev/null || echo none"
    command = ["nsenter", f"--user=/proc/self/fd/{made.user}", f"--net=/proc/self/fd/{made.net}", "sh", "-c", script]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, pass_fds=(made.user, made.net))
    assert shown.stdout.split() == ["0", "0", "1", "61000", "61000", "1", "1", "none"]
    made.close()
    assert repr(made) == "Namespaces(user=None, net=None, listener=None)"
