"""Import hooks of the fork server: the workspace's modules come from memory, or for a while not at all.

Part of the fork server, so standard library only.
"""

# pathlib is not imported: it takes time, and it would be loaded before the example loads it.
# ruff: noqa: PTH118, PTH123

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import types
import warnings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Blocker(importlib.abc.MetaPathFinder):
    """Keeps the workspace's own modules out while modules from elsewhere are imported."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.triggered = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Refuse a module that lies in the workspace, leave all others to the next finder."""
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
        if any(place and os.path.realpath(place).startswith(self.root) for place in places):
            self.triggered = True
            raise ImportError(f"{fullname} lies in the workspace")
        return None


def preload(names: list[str], root: str) -> None:
    """Import what the workspace's code imports from elsewhere, so that each candidate finds it loaded."""
    blocker = Blocker(os.path.join(os.path.realpath(root), ""))
    sys.meta_path.insert(0, blocker)
    for name in names:
        before = set(sys.modules)
        blocker.triggered = False
        try:
            importlib.import_module(name)
        except BaseException:  # whatever a foreign import does, the example will meet it again by itself
            blocker.triggered = True
        if blocker.triggered:
            for new in set(sys.modules) - before:
                del sys.modules[new]
    sys.meta_path.remove(blocker)


def compile_all(files: list[str], root: str) -> dict[str, types.CodeType]:
    """Code of the workspace's files by real path: nothing is cached on disk, so nothing there can be stale."""
    codes = {}
    for file in files:
        place = os.path.realpath(os.path.join(root, file))
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with open(place, "rb") as handle:
                codes[place] = compile(handle.read(), os.path.join(root, file), "exec", dont_inherit=True)
    return codes


class Loader(importlib.machinery.SourceFileLoader):
    """Loads a file of the workspace from code in memory."""

    def __init__(self, fullname: str, path: str, code: Callable[[], types.CodeType]) -> None:
        super().__init__(fullname, path)
        self.code = code

    def get_code(self, fullname: str) -> types.CodeType:
        """The code. For the edited file this returns only in forks of the holder."""
        return self.code()


class Finder(importlib.abc.MetaPathFinder):
    """Takes the workspace's files from memory, one of them from ``hold``."""

    def __init__(
        self, codes: dict[str, types.CodeType], place: str = "", hold: Callable[[str], types.CodeType] | None = None
    ) -> None:
        self.codes = codes
        self.place = place
        self.hold = hold

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The ordinary spec with a loader of ours, for files of the workspace only."""
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or not spec.origin:
            return None
        origin, place, hold = spec.origin, os.path.realpath(spec.origin), self.hold
        if place == self.place and hold is not None:
            spec.loader = Loader(fullname, origin, lambda: hold(origin))
        elif place in self.codes:
            spec.loader = Loader(fullname, origin, lambda: self.codes[place])
        else:
            return None
        return spec
