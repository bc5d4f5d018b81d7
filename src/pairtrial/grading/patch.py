"""Git-format patches, written and read without git.

A workspace that an agent had in its hands must not decide how its own diff is made: not through ``.git/config``,
attributes, filters, hooks, an index with forged times or an environment variable. So no git process runs here. The
format is git's own (``--binary --full-index --no-renames -U0``), and git is the oracle in the tests. No context lines:
a patch quotes no more of the target than what was changed.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pairtrial.core.errors import GradeError

FILE, EXECUTABLE, LINK = 0o100644, 0o100755, 0o120000
MODES = frozenset({FILE, EXECUTABLE, LINK})
NO_BLOB = "0" * 40
PATCH_LIMIT = 128 << 20
"""A patch, or what it unpacks to, larger than this is refused."""
_BINARY_PROBE = 8000
_LARGE_MIDDLE = 1 << 22
"""Where (old lines × new lines) is larger, one hunk replaces the lot: valid, not minimal, and quick."""


class Blob(NamedTuple):
    """A file or link at one path."""

    mode: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Section:
    """What a patch does to one path."""

    path: bytes
    old_mode: int | None
    """None where the path is added."""
    new_mode: int | None
    """None where the path is deleted."""
    old_blob: str | None = None
    """Object id that must be there; None where only the mode changes."""
    new_blob: str | None = None
    hunks: tuple[tuple[int, tuple[bytes, ...], tuple[bytes, ...]], ...] = ()
    """(first old line counted from 0, removed lines, added lines)."""
    literal: bytes | None = None
    """The whole new content, for binary files."""


def blob_id(data: bytes) -> str:
    """Git's object id of a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def bad_patch(why: str) -> GradeError:
    """The error of a patch that is not one, or that does not fit."""
    return GradeError(f"work patch: {why}", slug="bad-patch")


# ---------------------------------------------------------------------------------------------------------- writing


def write_patch(changes: Iterable[tuple[bytes, Blob | None, Blob | None]]) -> bytes:
    """The patch for (path, before, after) in the order given; a change of type is a deletion and an addition."""
    parts: list[bytes] = []
    for path, before, after in changes:
        if before is not None and after is not None and (before.mode == LINK) != (after.mode == LINK):
            parts.append(_section(path, before, None))
            parts.append(_section(path, None, after))
        else:
            parts.append(_section(path, before, after))
    return b"".join(parts)


def _section(path: bytes, before: Blob | None, after: Blob | None) -> bytes:
    old_name, new_name = _quote(b"a/" + path), _quote(b"b/" + path)
    lines = [b"diff --git %s %s\n" % (old_name, new_name)]
    if before is None and after is not None:
        lines.append(b"new file mode %06o\n" % after.mode)
    elif before is not None and after is None:
        lines.append(b"deleted file mode %06o\n" % before.mode)
    elif before is not None and after is not None and before.mode != after.mode:
        lines.append(b"old mode %06o\nnew mode %06o\n" % (before.mode, after.mode))
    old, new = before.data if before else b"", after.data if after else b""
    if before is not None and after is not None and old == new:
        return b"".join(lines)
    old_id = blob_id(old) if before else NO_BLOB
    new_id = blob_id(new) if after else NO_BLOB
    same_mode = before is not None and after is not None and before.mode == after.mode
    suffix = b" %06o" % before.mode if same_mode and before else b""
    lines.append(b"index %s..%s%s\n" % (old_id.encode(), new_id.encode(), suffix))
    if _is_binary(old) or _is_binary(new):
        lines += [b"GIT binary patch\n", _literal(new), b"\n", _literal(old), b"\n"]
    elif old != new:
        lines.append(b"--- %s\n" % (_label(old_name) if before else b"/dev/null"))
        lines.append(b"+++ %s\n" % (_label(new_name) if after else b"/dev/null"))
        lines += _hunks(split_lines(old), split_lines(new))
    return b"".join(lines)


def _is_binary(data: bytes) -> bool:
    return b"\0" in data[:_BINARY_PROBE]


def _label(name: bytes) -> bytes:
    """Git ends a name that holds a space with a tab, so that readers find its end."""
    return name + b"\t" if b" " in name and not name.startswith(b'"') else name


_ESCAPES = {7: b"a", 8: b"b", 9: b"t", 10: b"n", 11: b"v", 12: b"f", 13: b"r", 34: b'"', 92: b"\\"}


def _quote(name: bytes) -> bytes:
    if all(32 <= byte < 127 and byte not in (34, 92) for byte in name):
        return name
    out = bytearray(b'"')
    for byte in name:
        if byte in _ESCAPES:
            out += b"\\" + _ESCAPES[byte]
        elif 32 <= byte < 127:
            out.append(byte)
        else:
            out += b"\\%03o" % byte
    return bytes(out) + b'"'


def split_lines(data: bytes) -> list[bytes]:
    """Lines with their ``\\n``; nothing else ends a line (CR is content)."""
    lines = data.split(b"\n")
    tail = lines.pop()
    kept = [line + b"\n" for line in lines]
    return [*kept, tail] if tail else kept


def _hunks(old: Sequence[bytes], new: Sequence[bytes]) -> Iterator[bytes]:
    for start, removed, start_new, added in _differences(old, new):
        # A count of 0 points at the line before, as in git.
        left = b"%d,%d" % (start + bool(removed), len(removed))
        right = b"%d,%d" % (start_new + bool(added), len(added))
        yield b"@@ -%s +%s @@\n" % (left, right)
        for sign, lines in ((b"-", removed), (b"+", added)):
            for line in lines:
                yield sign + line
                if not line.endswith(b"\n"):
                    yield b"\n\\ No newline at end of file\n"


def _differences(
    old: Sequence[bytes], new: Sequence[bytes]
) -> Iterator[tuple[int, Sequence[bytes], int, Sequence[bytes]]]:
    head, shorter = 0, min(len(old), len(new))
    while head < shorter and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shorter - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    left, right = old[head : len(old) - tail], new[head : len(new) - tail]
    if len(left) * len(right) > _LARGE_MIDDLE:
        yield head, left, head, right
        return
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal":
            yield head + i1, left[i1:i2], head + j1, right[j1:j2]


def _literal(data: bytes) -> bytes:
    packed = zlib.compress(data)
    lines = [b"literal %d\n" % len(data)]
    for start in range(0, len(packed), 52):
        piece = packed[start : start + 52]
        length = len(piece)
        letter = bytes([64 + length if length <= 26 else 70 + length])
        lines.append(letter + base64.b85encode(piece, pad=True) + b"\n")
    return b"".join(lines)


# ---------------------------------------------------------------------------------------------------------- reading

_HEADER = re.compile(rb'diff --git ("(?:[^"\\]|\\.)*"|.*?) ("(?:[^"\\]|\\.)*"|.*)\n\Z', re.DOTALL)
_INDEX = re.compile(rb"index ([0-9a-f]{40})\.\.([0-9a-f]{40})(?: ([0-7]{6}))?\n\Z")
_HUNK = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@[^\n]*\n\Z")
_MODE = re.compile(rb"(old mode|new mode|new file mode|deleted file mode) ([0-7]{6})\n\Z")
_UNESCAPES = {value: key for key, value in _ESCAPES.items()}


def read_patch(patch: bytes) -> tuple[Section, ...]:
    """The sections of a patch; raises `GradeError` for anything that `write_patch` would not write."""
    if len(patch) > PATCH_LIMIT:
        raise bad_patch(f"larger than {PATCH_LIMIT >> 20} MiB")
    lines = split_lines(patch)
    sections: list[Section] = []
    at = 0
    while at < len(lines):
        section, at = _read_section(lines, at)
        sections.append(section)
    return tuple(sections)


def _read_section(lines: Sequence[bytes], at: int) -> tuple[Section, int]:
    start = lines[at]
    if not start.startswith(b"diff --git "):
        raise bad_patch(f"line {at + 1} is not the start of a file")
    path = _path_of(start[len(b"diff --git ") : -1], at)
    at += 1
    modes: dict[bytes, int] = {}
    while at < len(lines) and (match := _MODE.match(lines[at])):
        modes[match[1]] = int(match[2], 8)
        at += 1
    old_mode = modes.get(b"old mode", modes.get(b"deleted file mode"))
    new_mode = modes.get(b"new mode", modes.get(b"new file mode"))
    if at >= len(lines) or not (index := _INDEX.match(lines[at])):
        return _checked(Section(path, old_mode, new_mode)), at
    at += 1
    if index[3]:
        old_mode = new_mode = int(index[3], 8)
    old_blob = None if index[1].decode() == NO_BLOB else index[1].decode()
    new_blob = None if index[2].decode() == NO_BLOB else index[2].decode()
    literal, hunks = None, []
    if at < len(lines) and lines[at] == b"GIT binary patch\n":
        literal, at = _read_literal(lines, at + 1)
        _, at = _read_literal(lines, at)
    elif at < len(lines) and lines[at].startswith(b"--- "):
        at += 2
        while at < len(lines) and (match := _HUNK.match(lines[at])):
            hunk, at = _read_hunk(lines, at + 1, match)
            hunks.append(hunk)
    return _checked(Section(path, old_mode, new_mode, old_blob, new_blob, tuple(hunks), literal)), at


def _checked(section: Section) -> Section:
    for mode in (section.old_mode, section.new_mode):
        if mode is not None and mode not in MODES:
            raise bad_patch(f"{section.path!r}: mode {mode:06o} is not accepted")
    if section.old_mode is None and section.new_mode is None:
        raise bad_patch(f"{section.path!r}: neither mode nor content")
    parts = section.path.split(b"/")
    if any(part in (b"", b".", b"..") or part.lower() == b".git" for part in parts) or b"\0" in section.path:
        raise bad_patch(f"{section.path!r}: not a path below the workspace")
    return section


def _path_of(names: bytes, at: int) -> bytes:
    """Both names are the same but for ``a/`` and ``b/``, so the middle of an unquoted pair is where they part."""
    if names.startswith(b'"'):
        match = _HEADER.match(b"diff --git " + names + b"\n")
        if match is None:
            raise bad_patch(f"line {at + 1}: names cannot be read")
        left, right = _unquote(match[1]), _unquote(match[2])
    else:
        middle = len(names) // 2
        left, right = names[:middle], names[middle + 1 :]
    if not left.startswith(b"a/") or not right.startswith(b"b/") or left[2:] != right[2:]:
        raise bad_patch(f"line {at + 1}: names differ or cannot be read")
    return left[2:]


def _unquote(name: bytes) -> bytes:
    if not name.startswith(b'"'):
        return name

    def plain(match: re.Match[bytes]) -> bytes:
        code = match[1]
        return bytes([int(code, 8)]) if code.isdigit() else bytes([_UNESCAPES[code]])

    try:
        return re.sub(rb'\\([0-3][0-7]{2}|[abtnvfr"\\])', plain, name[1:-1])
    except (KeyError, ValueError):
        raise bad_patch(f"name {name!r} cannot be read") from None


def _read_literal(lines: Sequence[bytes], at: int) -> tuple[bytes, int]:
    match = re.match(rb"literal (\d{1,10})\n\Z", lines[at]) if at < len(lines) else None
    if match is None:
        raise bad_patch(f"line {at + 1}: not a binary literal")
    size = int(match[1])
    if size > PATCH_LIMIT:
        raise bad_patch(f"line {at + 1}: a file larger than {PATCH_LIMIT >> 20} MiB")
    at += 1
    packed = bytearray()
    while at < len(lines) and lines[at] != b"\n":
        letter, body = lines[at][0], lines[at][1:-1]
        length = letter - 64 if letter <= 90 else letter - 70
        try:
            packed += base64.b85decode(body)[:length]
        except ValueError:
            raise bad_patch(f"line {at + 1}: not base 85") from None
        at += 1
    try:
        # One byte more than promised: a stream that grows beyond its size is cut there and refused.
        data = zlib.decompressobj().decompress(bytes(packed), size + 1)
    except zlib.error:
        raise bad_patch(f"line {at + 1}: damaged binary literal") from None
    if len(data) != size:
        raise bad_patch(f"line {at + 1}: binary literal of another size")
    return data, at + 1


def _read_hunk(
    lines: Sequence[bytes], at: int, match: re.Match[bytes]
) -> tuple[tuple[int, tuple[bytes, ...], tuple[bytes, ...]], int]:
    first, old_count = int(match[1]), int(match[2] or 1)
    new_count = int(match[4] or 1)
    removed, at = _signed(lines, at, b"-", old_count)
    added, at = _signed(lines, at, b"+", new_count)
    return (first - bool(old_count), removed, added), at


def _signed(lines: Sequence[bytes], at: int, sign: bytes, count: int) -> tuple[tuple[bytes, ...], int]:
    found: list[bytes] = []
    for _ in range(count):
        if at >= len(lines) or not lines[at].startswith(sign):
            raise bad_patch(f"line {at + 1}: a hunk is shorter than it says")
        found.append(lines[at][1:])
        at += 1
    if at < len(lines) and lines[at].startswith(b"\\ ") and found:
        found[-1] = found[-1].removesuffix(b"\n")
        at += 1
    return tuple(found), at


# --------------------------------------------------------------------------------------------------------- applying


def patched(sections: Iterable[Section], read: Callable[[bytes], Blob | None]) -> dict[bytes, Blob | None]:
    """What every path of the patch holds afterwards (None: nothing); ``read`` gives what is there before.

    Every section is checked against the object ids that it names, before and after: a patch that does not fit the tree
    exactly raises `GradeError`.
    """
    state: dict[bytes, Blob | None] = {}
    for section in sections:
        before = state[section.path] if section.path in state else read(section.path)
        state[section.path] = _apply_section(section, before)
    return state


def _apply_section(section: Section, before: Blob | None) -> Blob | None:
    where = repr(section.path)
    if (before is None) != (section.old_mode is None):
        raise bad_patch(f"{where}: {'missing in' if before is None else 'already in'} the tree")
    if before is not None and before.mode != section.old_mode:
        raise bad_patch(f"{where}: has another mode in the tree")
    old = before.data if before else b""
    if section.old_blob is not None and blob_id(old) != section.old_blob:
        raise bad_patch(f"{where}: the tree holds another content than the patch was made from")
    if section.new_mode is None:
        return None
    new = old
    if section.literal is not None:
        new = section.literal
    elif section.hunks:
        new = _apply_hunks(section, split_lines(old))
    if section.new_blob is not None and blob_id(new) != section.new_blob:
        raise bad_patch(f"{where}: gives another content than it names")
    return Blob(section.new_mode, new)


def _apply_hunks(section: Section, old: list[bytes]) -> bytes:
    out: list[bytes] = []
    at = 0
    for start, removed, added in section.hunks:
        if start < at or tuple(old[start : start + len(removed)]) != removed:
            raise bad_patch(f"{section.path!r}: a hunk does not fit")
        out += old[at:start]
        out += added
        at = start + len(removed)
    return b"".join(out + old[at:])
