"""The patch format: git is the oracle, hypothesis the adversary."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairtrial.core.canonical import tree_digest
from pairtrial.core.errors import GradeError
from pairtrial.grading.patch import EXECUTABLE, FILE, LINK, Blob, blob_id, patched, read_patch, write_patch
from pairtrial.grading.work import apply_work, capture

Tree = dict[bytes, Blob]

NAMES = st.one_of(
    st.sampled_from(
        [b"a", b"b", b"a b", b"\xc3\xa4", b"\xff", b'q"uote', b"tab\there", b"line\nbreak", b"back\\slash"]
    ),
    st.binary(min_size=1, max_size=6).filter(
        lambda name: not set(name) & {0, 47} and name not in (b".", b"..") and name.lower() != b".git"
    ),
).filter(lambda name: not name.endswith((b".pyc", b".pyo")))
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(b"/".join)
CONTENT = st.one_of(
    st.binary(max_size=60),
    st.lists(
        st.sampled_from([b"x\n", b"y\n", b"z\r\n", b"\n", b"-- \n", b"+++ b\n", b"@@ -1 +1 @@\n"]), max_size=12
    ).map(b"".join),
    st.lists(st.sampled_from([b"x\n", b"y", b"\r", b"\0"]), max_size=12).map(b"".join),
)
BLOBS = st.one_of(
    st.builds(Blob, st.sampled_from([FILE, EXECUTABLE]), CONTENT),
    st.builds(Blob, st.just(LINK), st.binary(min_size=1, max_size=20).filter(lambda name: 0 not in name)),
)


def is_tree(paths: Tree) -> bool:
    """No path is both a file and a folder."""
    return not any(other.startswith(path + b"/") for path in paths for other in paths)


TREES = st.dictionaries(PATHS, BLOBS, max_size=5).filter(is_tree)


def lay(tree: Tree, root: Path) -> Path:
    root.mkdir()
    for path, blob in tree.items():
        place = root / os.fsdecode(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        if blob.mode == LINK:
            place.symlink_to(os.fsdecode(blob.data))
        else:
            place.write_bytes(blob.data)
            place.chmod(0o755 if blob.mode == EXECUTABLE else 0o644)
    return root


def changes(before: Tree, after: Tree) -> bytes:
    paths = sorted(before.keys() | after.keys())
    return write_patch((p, before.get(p), after.get(p)) for p in paths if before.get(p) != after.get(p))


@given(TREES, TREES)
@settings(max_examples=300, deadline=None)
def test_patch_read_back_gives_the_second_tree(before: Tree, after: Tree) -> None:
    state = patched(read_patch(changes(before, after)), before.get)
    assert {**before, **state} == {path: after.get(path) for path in before.keys() | state.keys()}
    assert {path for path, blob in after.items() if before.get(path) != blob} <= state.keys()


@given(TREES, TREES)
@settings(max_examples=60, deadline=None)
def test_capture_and_apply_round_trip_on_disk(
    tmp_path_factory: pytest.TempPathFactory, before: Tree, after: Tree
) -> None:
    root = tmp_path_factory.mktemp("trip")
    pristine, workspace = lay(before, root / "pristine"), lay(after, root / "workspace")
    work = capture(pristine, workspace)
    apply_work(work.patch, pristine)
    assert tree_digest(pristine) == tree_digest(workspace)
    assert capture(pristine, workspace).patch == b""


@given(TREES, TREES)
@settings(max_examples=60, deadline=None)
def test_git_applies_the_patch_to_the_same_tree(
    tmp_path_factory: pytest.TempPathFactory, before: Tree, after: Tree
) -> None:
    root = tmp_path_factory.mktemp("oracle")
    pristine, workspace = lay(before, root / "pristine"), lay(after, root / "workspace")
    patch = capture(pristine, workspace).patch
    git(pristine, "init", "-q")
    git(pristine, "add", "-A", "-f")
    if patch:
        git(pristine, "apply", "--cached", "--unidiff-zero", "--whitespace=nowarn", "-", stdin=patch)
    git(workspace, "init", "-q")
    git(workspace, "add", "-A", "-f")
    assert git(pristine, "write-tree") == git(workspace, "write-tree")


def git(folder: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    options = ["-c", "core.autocrlf=false", "-c", "core.safecrlf=false", "-c", "core.protectNTFS=false"]
    done = subprocess.run(
        ["git", *options, *arguments], cwd=folder, env=env, input=stdin, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_one_changed_line_by_hand() -> None:
    before, after = Blob(FILE, b"one\ntwo\nthree\n"), Blob(FILE, b"one\n2\nthree\n")
    expected = (
        b"diff --git a/f.txt b/f.txt\n"
        b"index 4cb29ea38f70d7c61b2a3a25b02e3bdf44905402..9b7cf4d0f3a4b4ec2b4b0bb4a7f7f1f1f4a5dd4b 100644\n"
        b"--- a/f.txt\n+++ b/f.txt\n@@ -2,1 +2,1 @@\n-two\n+2\n"
    )
    patch = write_patch([(b"f.txt", before, after)])
    # The first object id is `git hash-object` of those three lines; the second is checked against git elsewhere.
    assert patch.replace(blob_id(after.data).encode(), b"9b7cf4d0f3a4b4ec2b4b0bb4a7f7f1f1f4a5dd4b") == expected


def test_a_patch_quotes_no_line_that_did_not_change() -> None:
    lines = [b"line %d\n" % number for number in range(100)]
    changed = [*lines[:50], b"new\n", *lines[51:]]
    patch = write_patch([(b"f", Blob(FILE, b"".join(lines)), Blob(FILE, b"".join(changed)))])
    assert b"line 49" not in patch and b"line 51" not in patch and b"-line 50\n+new\n" in patch


def test_two_large_unlike_files_take_no_quadratic_time() -> None:
    old = b"".join(b"old %d\n" % number for number in range(20_000))
    new = b"".join(b"new %d\n" % number for number in range(20_000))
    sections = read_patch(write_patch([(b"f", Blob(FILE, old), Blob(FILE, new))]))
    assert patched(sections, lambda _: Blob(FILE, old)) == {b"f": Blob(FILE, new)}


HEAD = b"diff --git a/f b/f\n"


@pytest.mark.parametrize(
    "patch",
    [
        b"hello\n",
        b"diff --git a/f b/g\nnew file mode 100644\n",
        b"diff --git a/../f b/../f\nnew file mode 100644\nindex " + b"0" * 40 + b".." + b"1" * 40 + b"\n",
        b"diff --git a/.git/config b/.git/config\nnew file mode 100644\n",
        b"diff --git a/x/.GIT/hooks/post-checkout b/x/.GIT/hooks/post-checkout\nnew file mode 100755\n",
        b"diff --git a//etc/passwd b//etc/passwd\nnew file mode 100644\n",
        HEAD + b"new file mode 160000\n",
        HEAD + b"new file mode 104755\n",
        HEAD,
        HEAD
        + b"new file mode 100644\nindex "
        + b"0" * 40
        + b".."
        + b"1" * 40
        + b"\nGIT binary patch\nliteral 999999999\n",
        HEAD
        + b"new file mode 100644\nindex "
        + b"0" * 40
        + b".."
        + b"1" * 40
        + b"\n--- /dev/null\n+++ b/f\n@@ -0,0 +1,9 @@\n+x\n",
    ],
)
def test_what_is_no_patch_of_ours_is_refused(patch: bytes) -> None:
    with pytest.raises(GradeError, match="work patch"):
        patched(read_patch(patch), lambda _: None)


def test_a_binary_literal_that_grows_beyond_its_size_is_refused() -> None:
    bomb = write_patch([(b"f", None, Blob(FILE, b"\0" * 1_000_000))]).replace(b"literal 1000000", b"literal 10", 1)
    with pytest.raises(GradeError, match="another size"):
        read_patch(bomb)


def test_a_patch_for_another_content_is_refused() -> None:
    patch = write_patch([(b"f", Blob(FILE, b"one\n"), Blob(FILE, b"two\n"))])
    with pytest.raises(GradeError, match="another content"):
        patched(read_patch(patch), lambda _: Blob(FILE, b"ONE\n"))
