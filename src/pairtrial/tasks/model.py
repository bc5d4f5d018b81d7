"""The documents that an author writes: ``pack.yaml``, ``target.yaml`` and ``task.yaml``.

They hold names, versions, hashes and our own edit, never the target's source text. What they refer to (prompt,
dependency lock, baseline) is read and cross-checked by `pairtrial.tasks.pack`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from packaging.version import InvalidVersion, Version
from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
    model_validator,
)

from pairtrial.core.model import Model, RelPath, Sha256, Slug

MAX_OLD = 60
"""Characters of the target that one span may quote: enough for a token, too few to be their text."""
MAX_NEW = 200


def _project(value: str) -> str:
    if not value.replace("-", "").replace("_", "").replace(".", "").isalnum() or not value.isascii():
        raise ValueError("must be the name of a package")
    return value


def _version(value: str) -> str:
    try:
        Version(value)
    except InvalidVersion:
        raise ValueError("must be one exact version, such as 1.2.0") from None
    return value


ProjectName = Annotated[str, AfterValidator(_project)]
"""Name of a distribution as its registry spells it."""
NpmName = Annotated[str, StringConstraints(pattern=r"^(@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*$", max_length=214)]
ExactVersion = Annotated[str, AfterValidator(_version)]
"""One version, not a range."""
Folder = Literal["."] | RelPath
"""Folder below the root of the tree, or ``.`` for the root."""
Line = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\r\n]+$")]
TestId = Annotated[str, StringConstraints(min_length=1, max_length=2000, pattern=r"^[^\r\n]+$")]
"""A test id exactly as the framework's reporter gives it."""


class PypiSdist(Model):
    """A source distribution on the user's package index, identified by its hash."""

    kind: Literal["pypi-sdist"]
    name: ProjectName
    version: ExactVersion
    sha256: Sha256
    """Of the archive; what the index says about it is not believed."""


class Local(Model):
    """A folder beside ``target.yaml``."""

    kind: Literal["local"]
    path: RelPath
    """Relative to the folder of ``target.yaml``."""
    tree: Sha256
    """Its tree digest, without ``.git`` and caches."""
    name: ProjectName | None = None
    """Name for the metadata of the environment; needed when ``metadata`` is true."""
    version: ExactVersion | None = None


class NpmTarball(Model):
    """The tarball of a package on the registry that npm is configured with."""

    kind: Literal["npm"]
    name: NpmName
    version: ExactVersion
    sha256: Sha256


class DebianBinary(Model):
    """A binary package of the archive that apt is configured with; many ship the sources and tests of a library."""

    kind: Literal["deb"]
    name: ProjectName
    """Of the package, such as ``librust-semver-dev``."""
    version: Annotated[str, StringConstraints(pattern=r"^[0-9][A-Za-z0-9.+:~-]*$")]
    sha256: Sha256
    folder: RelPath
    """Where the target lies in it."""


class GitCommit(Model):
    """The tree of one commit, from a repository or from a bundle beside ``target.yaml``; no history comes with it."""

    kind: Literal["git"]
    commit: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")]
    """The whole id: it identifies every byte of the tree."""
    url: Annotated[str, StringConstraints(pattern=r"^(https?|ssh|git|file)://[^\s]+$")] | None = None
    bundle: RelPath | None = None
    name: ProjectName | None = None
    """Name for the metadata of the environment; needed when ``metadata`` is true."""
    version: ExactVersion | None = None

    @model_validator(mode="after")
    def _one_place(self) -> GitCommit:
        if (self.url is None) == (self.bundle is None):
            raise ValueError("name either a url or a bundle")
        return self


Source = Annotated[PypiSdist | Local | NpmTarball | DebianBinary | GitCommit, Field(discriminator="kind")]
"""Where a target comes from; a further kind is one more model here and one more fetcher in `sources`."""


class Span(Model):
    """One edit of ours at one place of the unbroken file."""

    file: RelPath
    scope: Line | None = None
    """Function or method that the place lies in (``Class.method``); checked for Python files."""
    line: int = Field(ge=1)
    """Counted from 1, in the unbroken file."""
    column: int = Field(ge=0)
    """Characters before the place on its line."""
    old: str = Field(max_length=MAX_OLD)
    """What stands there, checked before anything is changed."""
    new: str = Field(max_length=MAX_NEW)
    """What replaces it."""

    @model_validator(mode="after")
    def _changes_something(self) -> Span:
        if self.old == self.new:
            raise ValueError("old and new are the same: nothing would change")
        return self


class _Grown(Model):
    """A document that has got new keys: one that does not use them keeps its digest."""

    _new: ClassVar[Mapping[str, Any]] = {}
    """New key → its value where it is not used."""

    @model_serializer(mode="wrap")
    def _without_unused(self, inner: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = inner(self)
        return {name: value for name, value in values.items() if name not in self._new or value != self._new[name]}


class Toolchain(StrEnum):
    """What an environment is made of."""

    PYTHON = "python"
    NODE = "node"
    GO = "go"
    RUST = "rust"


class EnvironmentSpec(_Grown):
    """What the tests need beside the target, which itself is never installed."""

    _new: ClassVar[Mapping[str, Any]] = {"kind": "python"}

    kind: Toolchain = Toolchain.PYTHON
    lock: RelPath | None = None
    """Python: requirements with ``==`` pins and SHA-256 hashes; node: npm's lock file with integrity. All transitive
    ones among them. Go and Rust have none: what the tests need must lie in the tree."""
    metadata: bool = False
    """Write a minimal ``.dist-info`` of the target (name, version, requirements), for ``importlib.metadata``."""

    @model_validator(mode="after")
    def _fits(self) -> EnvironmentSpec:
        locked = self.kind in (Toolchain.PYTHON, Toolchain.NODE)
        if locked and self.lock is None:
            raise ValueError("lock: required; it pins everything that the tests need")
        if not locked and self.lock is not None:
            raise ValueError(f"lock: {self.kind.value} has none; what the tests need must lie in the tree")
        if self.metadata and self.kind is not Toolchain.PYTHON:
            raise ValueError("metadata: only for Python")
        return self


class Framework(StrEnum):
    """Test frameworks that tasks can use."""

    PYTEST = "pytest"
    UNITTEST = "unittest"
    NODE_TEST = "node-test"
    VITEST = "vitest"
    JEST = "jest"
    MOCHA = "mocha"
    GO_TEST = "go-test"
    CARGO_TEST = "cargo-test"


class TestsSpec(Model):
    """How the target's own tests are run."""

    __test__ = False

    framework: Framework
    args: tuple[str, ...] = ()
    """Arguments after ``python -m pytest``."""
    paths: tuple[RelPath, ...] = Field(min_length=1)
    """What to collect, relative to the root of the tree."""
    ignore: dict[RelPath, Line] = Field(default_factory=dict)
    """Test files or ids that are left out, each with its reason."""
    timeout_s: float = Field(default=120.0, gt=0, le=3600)
    """For one run of the whole suite."""


class TargetDocument(_Grown):
    """A real package at a pinned state."""

    _new: ClassVar[Mapping[str, Any]] = {"remove": {}, "adapt": []}

    schema_: Literal["pairtrial.target.v1"] = Field(alias="schema")
    id: Slug
    source: Source
    remove: dict[RelPath, Line] = Field(default_factory=dict)
    """Files and folders of the source that are left out, each with its reason (a build that repeats the source)."""
    adapt: tuple[Span, ...] = ()
    """Edits of ours that let the tests run here (a dependency that only a feature needs); part of the unbroken tree."""
    license: Line
    """SPDX expression of the target's licence."""
    environment: EnvironmentSpec
    pythonpath: tuple[Folder, ...] = (".",)
    """Folders put on ``PYTHONPATH``, so that the edited copy is the only copy."""
    tests: TestsSpec
    protected: tuple[Line, ...] = ()
    """Globs protected in grading beyond the framework's own."""
    baseline: RelPath
    """File that lists every test id that passes on the unbroken tree, one a line."""

    @model_validator(mode="after")
    def _metadata_has_a_name(self) -> TargetDocument:
        local = self.source
        if self.environment.metadata and isinstance(local, Local) and (local.name is None or local.version is None):
            raise ValueError("environment.metadata: true needs source.name and source.version")
        return self


class Category(StrEnum):
    """Kinds of defect."""

    BOUNDARY = "boundary"
    CONDITION = "condition"
    OPERAND = "operand"
    MISSING_CASE = "missing-case"
    STATE = "state"
    PARSING = "parsing"
    ORDERING = "ordering"
    TYPE = "type"
    CONSTANT = "constant"
    CALL = "call"


class Cut(Model):
    """Lines of a file that the agent does not see."""

    file: RelPath
    first: int = Field(ge=1)
    last: int = Field(ge=1)
    """Both counted from 1, in the unbroken file."""

    @model_validator(mode="after")
    def _in_order(self) -> Cut:
        if self.last < self.first:
            raise ValueError("last: before first")
        return self


class TaskDocument(_Grown):
    """One defect folded into one target, and what must pass when it is mended."""

    _new: ClassVar[Mapping[str, Any]] = {"cut": []}

    schema_: Literal["pairtrial.task.v1"] = Field(alias="schema")
    id: Slug
    title: Line
    target: Slug
    category: Category
    prompt: RelPath
    """File with the user's words and one example that fails."""
    defect: tuple[Span, ...] = Field(min_length=1)
    fail_to_pass: tuple[TestId, ...] = Field(min_length=1)
    """Ids that the defect breaks: hidden from the agent, all must pass afterwards."""
    hide: tuple[RelPath, ...] = ()
    """Further files that the agent must not see (data that spells out the expected results)."""
    cut: tuple[Cut, ...] = ()
    """Lines that are hidden, for languages whose tests are not found by their ids."""
    expect: dict[str, str] = Field(default_factory=dict, max_length=0)
    """Reserved; must be empty."""


class PackDocument(Model):
    """A pack: an ordered list of tasks."""

    schema_: Literal["pairtrial.pack.v1"] = Field(alias="schema")
    id: Slug
    title: Line
    tasks: tuple[Slug, ...] = Field(min_length=1)
    """Folders of the pack, in the order in which they are listed."""
