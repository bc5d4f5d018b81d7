"""Telling a signal from an exit code where the namespace's own init reports both as 128 + n.

The command runs below a shell whose own stderr goes to a file of ours. A shell prints a message there ("Killed")
when its command died of a signal, and nothing when the command returned 137 by itself.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pairtrial.core.errors import SandboxError
from pairtrial.sandbox.protocol import ExecResult

STARTED = b"+"
WRAP = (
    'printf + >&9; cd -- "$1" || exit 127; shift; unset OLDPWD PWD; exec 8>&2 2>&9 9>&-; '
    'trap : TERM INT HUP QUIT; (exec "$@" 2>&8 8>&-); exit $?'
)
"""Shell script around a folder and a command; descriptor 9 is the status file.

A trapped signal (unlike an ignored one) is back to its default in the command, and the shell lives on to report how
the command ended. The subshell makes every shell print its message to the file and not to the command's stderr.
Deaths by SIGINT and SIGPIPE have no message and stay exit codes 130 and 141.
"""
STATUS_BYTES = 4096


def read_status(result: ExecResult, status: Path, program: str) -> ExecResult:
    """The result with code and signal told apart; raises `SandboxError` when the command was never reached."""
    try:
        with status.open("rb") as handle:
            text = handle.read(STATUS_BYTES)
        status.unlink()
    except OSError:
        return result
    if not text.startswith(STARTED):
        if result.exit_code is None or result.limit is not None:
            return result
        reason = result.stderr[-500:].decode("utf-8", "replace").strip()
        raise SandboxError(f"{Path(program).name} could not start the command: {reason}", slug="sandbox-setup")
    if result.exit_code is not None and 128 < result.exit_code <= 192 and len(text) > len(STARTED):
        return replace(result, exit_code=None, signal=result.exit_code - 128)
    return result


_INNER = 'unset OLDPWD PWD; trap : TERM INT HUP QUIT; (exec "$@" >&7 2>&8 7>&- 8>&-); printf " %s" "$?"'
WRAP_STREAM = (
    '_pt_n="$1"; unset $2; cd -- "$3" || exit 127; shift 3; unset OLDPWD PWD; exec 7>&1 8>&2; trap : TERM INT HUP QUIT; '
    f"_pt_m=$(exec /bin/sh -c '{_INNER}' sh \"$@\" 2>&1); "  # a shell of its own: bash is silent in a substitution
    'printf "\\000%s %s\\000" "$_pt_n" "$_pt_m" >&8; exit "${_pt_m##* }"'
)
"""The same where no descriptor can be passed: shell script around a mark, names of variables to drop, a
folder and a command. The shell's message
and the code come last on stderr, between NULs and behind the mark."""
TAIL_BYTES = 8192


def read_tail(tail: bytes, mark: bytes) -> tuple[int, str, int] | None:
    """Length of the end that the wrapper wrote, the shell's message, and the code; ``None`` when it is not there."""
    place = tail.rfind(b"\0" + mark + b" ")
    if place < 0 or not tail.endswith(b"\0"):
        return None
    text, _, code = tail[place + len(mark) + 2 : -1].rpartition(b" ")
    if not code.isdigit():
        return None
    return len(tail) - place, text.decode("utf-8", "replace").strip(), int(code)
