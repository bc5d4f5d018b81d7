"""Parent of the test process: holds the report out of its reach and says how it ended.

Runs inside the grading sandbox by ``python -I -S -c``; only the standard library. It reads one JSON document from
stdin, starts the runner with a pipe for the report and a pipe for its secret, and writes frames to stdout:

``R<length>\\n<bytes>``  report bytes, as they came
``O<length>\\n<bytes>``  start and end of what the runner printed
``E<length>\\n<json>``   how it ended
``S<hex>\\n``            seal over everything before, keyed by a secret that the runner never had

What the runner prints goes to a pipe of its own and is never read as a result.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import selectors
import signal
import subprocess
import sys
from typing import Any

PIECE = 1 << 16
SETTLE_S = 0.2
"""After the runner's end: how long its last bytes may take when an orphan still holds the pipe."""


def hide() -> None:
    """Make this process unreadable to others of the same user (``/proc/PID/fd``, ``/proc/PID/mem``, ptrace)."""
    with contextlib.suppress(Exception):  # no ctypes or no Linux: the seal and the fresh sandbox still stand
        import ctypes

        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)


class Frames:
    """Sealed frames on stdout."""

    def __init__(self, key: bytes) -> None:
        self._out = os.dup(1)
        self._seal = hashlib.blake2b(key=key, digest_size=32)
        os.dup2(2, 1)

    def send(self, kind: bytes, data: bytes) -> None:
        frame = b"%s%d\n" % (kind, len(data)) + data
        self._seal.update(frame)
        self._write(frame)

    def close(self) -> None:
        self._write(b"S%s\n" % self._seal.hexdigest().encode())

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._out, view) :]


class Output:
    """The first and last bytes of what was printed, however much it was."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.head = bytearray()
        self.tail = bytearray()
        self.total = 0

    def feed(self, piece: bytes) -> None:
        self.total += len(piece)
        room = self.keep - len(self.head)
        if room > 0:
            self.head += piece[:room]
            piece = piece[room:]
        self.tail += piece
        if len(self.tail) > 4 * self.keep:
            del self.tail[: -self.keep]

    def text(self) -> bytes:
        tail = bytes(self.tail[-self.keep :])
        dropped = self.total - len(self.head) - len(tail)
        return bytes(self.head) + (b"\n[... %d bytes left out ...]\n" % dropped if dropped > 0 else b"") + tail


def run(config: dict[str, Any], frames: Frames) -> None:
    """Start the runner, pass on its report, say how it ended."""
    report_read, report_write = os.pipe()
    gift_read, gift_write = os.pipe()

    def filled(text: str) -> str:
        return text.replace("{report}", str(report_write)).replace("{gift}", str(gift_read))

    process = subprocess.Popen(
        [filled(item) for item in config["argv"]],
        env={**os.environ, **{name: filled(value) for name, value in config["env"].items()}},
        cwd=config["cwd"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(report_write, gift_read),
        start_new_session=True,
    )
    os.close(report_write)
    os.close(gift_read)
    output = Output(config["keep"])
    sent, truncated = pump(process, report_read, gift_write, config, frames, output)
    code = process.wait()
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    frames.send(b"O", output.text())
    end = {"exit": code if code >= 0 else None, "signal": -code if code < 0 else None, "printed": output.total}
    frames.send(b"E", json.dumps({**end, "report": sent, "truncated": truncated}).encode())
    frames.close()


def pump(
    process: subprocess.Popen[bytes],
    report: int,
    gift: int,
    config: dict[str, Any],
    frames: Frames,
    output: Output,
) -> tuple[int, bool]:
    """Serve the three pipes until the runner is gone; gives report bytes passed on and whether some were dropped."""
    printed = process.stdout.fileno()  # type: ignore[union-attr]
    present = memoryview(config["gift"].encode())
    selector = selectors.DefaultSelector()
    for number in (report, printed, gift):
        os.set_blocking(number, False)
    selector.register(report, selectors.EVENT_READ, "report")
    selector.register(printed, selectors.EVENT_READ, "printed")
    selector.register(gift, selectors.EVENT_WRITE, "gift")
    watch = os.pidfd_open(process.pid)
    selector.register(watch, selectors.EVENT_READ, "end")
    sent, truncated, ended = 0, False, False
    while {"report", "printed"} & {key.data for key in selector.get_map().values()}:
        ready = selector.select(SETTLE_S if ended else None)
        if ended and not ready:
            break
        for key, _ in ready:
            if key.data == "end":
                ended = True
                selector.unregister(watch)
            elif key.data == "gift":
                try:
                    present = present[os.write(gift, present[:PIECE]) :]
                except BlockingIOError:
                    continue
                except OSError:
                    present = present[:0]
                if not present:
                    selector.unregister(gift)
                    os.close(gift)
            else:
                try:
                    piece = os.read(key.fd, PIECE)
                except BlockingIOError:
                    continue
                if not piece:
                    selector.unregister(key.fd)
                elif key.data == "printed":
                    output.feed(piece)
                elif sent + len(piece) > config["cap"]:
                    truncated = True
                else:
                    sent += len(piece)
                    frames.send(b"R", piece)
    return sent, truncated


def main() -> None:
    """Entry point."""
    hide()
    config = json.loads(sys.stdin.buffer.read())
    run(config, Frames(bytes.fromhex(config["seal"])))


if __name__ == "__main__":
    main()
