"""The commands that run in one container, and how they are ended: one, all, or what one of them left behind."""

from __future__ import annotations

import contextlib
import signal
from typing import Literal

import anyio
import anyio.to_thread

from pairtrial.core.errors import SandboxError
from pairtrial.sandbox.attached import AttachedProcess
from pairtrial.sandbox.container import KEEPER, Inmates
from pairtrial.sandbox.engine import Engine, speaking


class Custody:
    """Knows which commands run in a container; made when it has been started."""

    def __init__(self, engine: Engine, container: str) -> None:
        self.engine = engine
        self.container = container
        self.running: dict[str, AttachedProcess] = {}
        """Commands by the engine's id of them."""
        self.gateway = False
        """A server of the host is served inside; a fresh start of the container would lose it."""
        self._restarted_for: set[str] = set()
        self.inmates = self._look_inside()

    def _look_inside(self) -> Inmates:
        with speaking("looking at a container"):
            state = self.engine.api.inspect_container(self.container)["State"]
        if not state["Running"]:
            raise SandboxError(f"the container ended at once: {state.get('Error') or state}", slug="container-lost")
        return Inmates(int(state["Pid"]))

    def admit(self, exec_id: str, process: AttachedProcess) -> None:
        """A command has been started."""
        self.running = {name: one for name, one in self.running.items() if not one.ended} | {exec_id: process}

    def _others(self, exec_id: str) -> bool:
        return any(name != exec_id and not one.ended for name, one in self.running.items())

    async def _root_of(self, exec_id: str) -> int | None:
        """Process id of a command when others run beside it; ``None`` when everything in the container is its."""
        if not self._others(exec_id):
            return None
        with speaking("looking at a command"):
            found = await anyio.to_thread.run_sync(self.engine.api.exec_inspect, exec_id)
        return int(found.get("Pid") or 0)

    async def signal(self, exec_id: str, word: Literal["TERM", "KILL"]) -> None:
        """Send a signal to everything that a command started; KILL does what it takes."""
        root = await self._root_of(exec_id)
        if word == "TERM":
            pids = self.inmates.commands() if root is None else self.inmates.below(root)
            self.inmates.tell(pids, signal.SIGTERM)
        elif self.inmates.visible and await anyio.to_thread.run_sync(self.inmates.end, root):
            return
        elif exec_id not in self._restarted_for:
            self._restarted_for.add(exec_id)
            await anyio.to_thread.run_sync(self._restart)

    async def clear(self, exec_id: str) -> tuple[str, ...]:
        """Kill what outlived a command; gives the names."""
        if not self.inmates.visible:
            return await anyio.to_thread.run_sync(self._clear_blindly, exec_id)
        root = await self._root_of(exec_id)
        if root is not None:
            await anyio.to_thread.run_sync(self.inmates.end, root)
            return ()
        left = [self.inmates.name(pid) for pid in self.inmates.commands()]
        if left and not await anyio.to_thread.run_sync(self.inmates.end):
            await anyio.to_thread.run_sync(self._restart)
        return tuple(sorted(left))

    def _clear_blindly(self, exec_id: str) -> tuple[str, ...]:
        """The same where we cannot signal processes: the engine says who is left, and a fresh start ends them."""
        if self._others(exec_id):
            return ()  # cannot be told from the others' processes; those end with the last command
        with speaking("listing processes"):
            shown = self.engine.api.top(self.container, "-eo pid,uid,comm")["Processes"] or []
        left = sorted(row[2] for row in shown if row[1] != str(KEEPER))
        if left:
            self._restart()
        return tuple(left)

    def _restart(self) -> None:
        """The last means against processes that we cannot kill: the container with all in it, then a fresh start."""
        with speaking("restarting a container"):
            self.engine.api.kill(self.container)
            if self.gateway:
                raise SandboxError("the container had to be ended, and the gateway with it", slug="container-lost")
            self.engine.api.wait(self.container)
            self.engine.api.start(self.container)
        self.inmates = self._look_inside()

    def why_gone(self, exec_id: str) -> tuple[str, bool]:
        """A command ended without its wrapper's last words: killed from inside, or its container or engine is gone.

        Gives a note for the record and whether it was for memory; raises `SandboxError` when the sandbox is lost.
        """
        with speaking("a command ended without a word"):
            state = self.engine.api.inspect_container(self.container)["State"]
            found = self.engine.api.exec_inspect(exec_id) if state["Running"] else {}
        if state["Running"]:
            if found.get("ExitCode") in (126, 127):
                raise SandboxError("the container could not start the command", slug="sandbox-setup")
            return "the wrapper of this command was killed from inside", False
        if state.get("OOMKilled"):
            return "the container ended for memory", True
        raise SandboxError(
            f"the container ended from outside (exit {state.get('ExitCode')}, {state.get('FinishedAt')})",
            slug="container-lost",
        )

    async def kill_all(self) -> None:
        """End every command."""
        for process in tuple(self.running.values()):
            await process.kill()
        self.running.clear()
        if self.inmates.visible:
            await anyio.to_thread.run_sync(self.inmates.end)

    async def wait_all(self) -> None:
        """Let go of the commands of a container that is gone."""
        for process in tuple(self.running.values()):
            with contextlib.suppress(SandboxError):
                await process.wait()
        self.running.clear()
