"""``python -m pairtrial.harness.tinker``: prompt on standard input, events on standard output."""

import os
import sys

# The working folder is the code under repair, and PYTHONPATH belongs to the task: nothing of ours, and nothing that the
# MCP SDK needs, may be imported from there. This must come before every other import.
# ruff: noqa: PTH118, PTH120
_TASK = {os.path.realpath(p) for p in (os.curdir, *os.environ.get("PYTHONPATH", "").split(os.pathsep)) if p}
_OWN = os.path.realpath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
sys.path[:] = [p for p in sys.path if os.path.realpath(p or os.curdir) not in _TASK - {_OWN}]

from pathlib import Path  # noqa: E402 - see above

from pairtrial.harness.tinker.config import parse_options  # noqa: E402
from pairtrial.harness.tinker.lifetime import end_on_signal  # noqa: E402
from pairtrial.harness.tinker.loop import Rollout, report_crash  # noqa: E402
from pairtrial.harness.tinker.stream import Stream  # noqa: E402


def main() -> int:
    """Run one rollout; 0 unless it crashed."""
    options = parse_options(sys.argv[1:])
    stream = Stream(sys.stdout.buffer, options.model)
    rollout = Rollout(options, stream, lambda: sys.stdin.buffer.read().decode("utf-8", "replace"), Path.cwd())
    end_on_signal(rollout.tree.restore)
    try:
        rollout.run()
    except BrokenPipeError:
        return 1  # nobody reads the stream any more
    except Exception as fault:  # the stream must end with a result, whatever went wrong
        report_crash(stream, fault)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
