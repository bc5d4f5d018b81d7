"""A mount below one of the sandbox's own folders, as when a cache lies under /tmp, survives the emptying before a grading."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pairtrial.grading.observe import _empty
from pairtrial.sandbox import Mount, Sandbox

pytestmark = pytest.mark.anyio


async def test_what_leads_to_a_mount_is_named_and_kept(
    new_sandbox: Callable[..., Awaitable[Sandbox]], tmp_path: Path, kind: str, env: dict[str, str]
) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "word").write_text("still here")
    target = "/tmp/cache/deep" if kind != "local" else str(tmp_path / "cache")
    sandbox = await new_sandbox(mounts=(Mount(tmp_path / "cache", target),))
    assert sandbox.mount_points(sandbox.tmp) == (frozenset({"cache"}) if kind != "local" else frozenset())
    assert sandbox.mount_points(sandbox.workspace) == frozenset()
    await sandbox.put_file(f"{sandbox.tmp}/left", b"by the agent")
    _empty(sandbox.host_path(sandbox.tmp), sandbox.mount_points(sandbox.tmp))
    seen = await sandbox.exec(["cat", f"{target}/word"], env=env, timeout_s=20)
    assert (seen.exit_code, seen.stdout) == (0, b"still here")
    assert (await sandbox.exec(["cat", f"{sandbox.tmp}/left"], env=env, timeout_s=20)).exit_code == 1
