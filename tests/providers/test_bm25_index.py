"""The index step: what is in the index, and what a hostile tree cannot do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st


def run(bm25: Path, root: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """As it runs in a rollout: from the provider's folder, with nothing but an interpreter."""
    return subprocess.run(
        [sys.executable, str(bm25 / "index.py"), "--root", str(root), "--out", str(out)],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )


def documents(bm25: Path, root: Path) -> list[dict[str, Any]]:
    out = root.parent / "index.json"
    done = run(bm25, root, out)
    assert done.returncode == 0, done.stderr
    value = json.loads(out.read_bytes())
    assert value["format"] == "bm25-index-1"
    found: list[dict[str, Any]] = value["documents"]
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    return folder


def write(root: Path, path: str, text: str | bytes) -> None:
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(text.encode() if isinstance(text, str) else text)


def test_functions_and_methods_are_documents(bm25: Path, root: Path) -> None:
    write(
        root,
        "pack/a.py",
        "import x\n\n\n@x\ndef first(n):\n    def inner():\n        pass\n\n\nclass C:\n    class D:\n"
        "        async def deep(self):\n            pass\n\n\nif x:\n    def maybe():\n        pass\n"
        "try:\n    pass\nexcept E:\n    def late():\n        pass\n",
    )
    found = [(d["file"], d["line"], d["name"]) for d in documents(bm25, root)]
    assert found == [
        ("pack/a.py", 5, "first"),
        ("pack/a.py", 12, "C.D.deep"),
        ("pack/a.py", 17, "maybe"),
        ("pack/a.py", 22, "late"),
    ]


def test_terms_are_split_stemmed_and_the_name_counts_three_times(bm25: Path, root: Path) -> None:
    write(root, "a.py", 'class Box:\n    def fileSizes(self):\n        """Queries."""\n')
    (entry,) = documents(bm25, root)
    # def, fileSizes (file, size, filesizes), self, Queries; twice more file, size, filesizes; box of the class.
    assert entry["terms"] == {"def": 1, "file": 3, "size": 3, "filesizes": 3, "self": 1, "query": 1, "box": 1}
    assert entry["length"] == 13
    assert entry["snippet"] == '    def fileSizes(self):\n        """Queries."""'


def test_test_files_and_generated_folders_are_left_out(bm25: Path, root: Path) -> None:
    for path in (
        "test_a.py", "a_test.py", "conftest.py", "tests/helper.py", "pack/test/b.py", "c.spec.ts", "d.test.js",
        "node_modules/e.py", ".git/f.py", "build/g.py", ".h.py", "notes.md",
    ):  # fmt: skip
        write(root, path, "def f():\n    pass\n")
    write(root, "pack/latest.py", "def f():\n    pass\n")
    assert [d["file"] for d in documents(bm25, root)] == ["pack/latest.py"]


def test_other_languages_and_broken_python_are_cut_into_windows(bm25: Path, root: Path) -> None:
    write(root, "a.js", "\n".join(f"line{n}();" for n in range(1, 51)))
    write(root, "b.py", "def f(:\n    pass\n")
    found = [(d["file"], d["line"], d["name"]) for d in documents(bm25, root)]
    assert found == [("a.js", 1, "a"), ("a.js", 41, "a"), ("b.py", 1, "b")]


def test_the_same_tree_gives_the_same_bytes_wherever_it_lies(bm25: Path, tmp_path: Path) -> None:
    outputs = []
    for place, order in (("one", 1), ("two/deeper", -1)):
        root = tmp_path / place
        for path in ["b.py", "a.py", "pack/c.js", "pack/a-b.py", "pack/a/d.py"][::order]:
            write(root, path, f"def f_{path[0]}(x):\n    return x\n")
        out = tmp_path / f"{order}.json"
        assert run(bm25, root, out).returncode == 0
        outputs.append(out.read_bytes())
    assert outputs[0] == outputs[1]
    assert outputs[0].isascii()
    assert str(tmp_path).encode() not in outputs[0]


def test_links_out_of_the_tree_are_not_followed(bm25: Path, root: Path) -> None:
    secret = root.parent / "secret"
    write(secret, "key.py", "def password():\n    return 'hunter2'\n")
    (root / "link.py").symlink_to(secret / "key.py")
    (root / "folder").symlink_to(secret)
    (root / "loop").symlink_to(root)
    write(root, "a.py", "def f():\n    pass\n")
    assert [d["name"] for d in documents(bm25, root)] == ["f"]


def test_a_hostile_tree_does_not_stop_the_index(bm25: Path, root: Path) -> None:
    write(root, "good.py", "def good():\n    pass\n")
    write(root, "latin.py", b"# -*- coding: latin-1 -*-\ndef caf\xe9():\n    return '\xe9'\n")
    write(root, "bytes.js", b"function f() { return '\xff\xfe'; }\n")
    write(root, "nul.py", b"def f():\n    return '\0'\n")
    write(root, "huge.py", "# " + "x" * (1 << 20) + "\n")
    write(root, "deep.py", "x = " + "(" * 5000 + ")" * 5000 + "\n")
    write(root, "surrogate.py", 'def s():\n    return "\\ud800"\n')
    write(root, "empty.py", "")
    write(root, "dir.py/inside.py", "def inside():\n    pass\n")
    os.mkfifo(root / "pipe.py")
    (root / os.fsdecode(b"bad\xff.py")).write_text("def f():\n    pass\n")
    files = {d["file"]: d["name"] for d in documents(bm25, root)}
    assert files == {
        "good.py": "good",
        "latin.py": "caf\u00e9",
        "bytes.js": "bytes",
        "deep.py": "deep",
        "surrogate.py": "s",
        "dir.py/inside.py": "inside",
    }


def test_an_empty_tree_has_an_empty_index(bm25: Path, root: Path) -> None:
    assert documents(bm25, root) == []


def test_wrong_arguments_are_one_line(bm25: Path, root: Path, tmp_path: Path) -> None:
    missing = run(bm25, tmp_path / "none", tmp_path / "i.json")
    assert (missing.returncode, missing.stderr) == (1, "bm25 index: --root is not a folder\n")
    (tmp_path / "file").write_text("x")
    unwritable = run(bm25, root, tmp_path / "file" / "index.json")
    assert unwritable.returncode == 1
    assert unwritable.stderr.startswith("bm25 index: cannot write the index: ")
    assert unwritable.stderr.count("\n") == 1


def test_it_leaves_nothing_in_its_own_folder(bm25: Path, root: Path) -> None:
    before = sorted(bm25.iterdir())
    documents(bm25, root)
    assert sorted(bm25.iterdir()) == before


@given(st.text(max_size=60))
def test_terms_of_any_text_are_lowercase_words(index_module: Any, text: str) -> None:
    for term in index_module.terms(text):
        assert term and term == term.lower() and term.isascii()


@pytest.mark.parametrize(
    ("word", "stem"),
    [
        ("queries", "query"), ("parsing", "pars"), ("parsed", "pars"), ("parses", "pars"), ("classes", "class"),
        ("class", "class"), ("is", "is"), ("sizes", "size"), ("ring", "ring"), ("bed", "bed"), ("lists", "list"),
    ],
)  # fmt: skip
def test_stems(index_module: Any, word: str, stem: str) -> None:
    assert index_module.stem(word) == stem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("HTTPServer", ["http", "server", "httpserver"]),
        ("partition_all", ["partition", "all", "partition_all"]),
        ("_private", ["private"]),
        ("__init__", ["init"]),
        ("x2", ["x", "2", "x2"]),
        ("caf\u00e9", ["caf"]),
        ("1.5", ["1", "5"]),
        ("", []),
    ],
)
def test_identifiers_are_split(index_module: Any, text: str, expected: list[str]) -> None:
    assert index_module.terms(text) == expected


def test_the_ranking_is_bm25_worked_out_by_hand(server_module: Any) -> None:
    documents = [
        {"file": "a.py", "line": 1, "name": "f", "snippet": "", "length": 4, "terms": {"slug": 2, "x": 2}},
        {"file": "b.py", "line": 1, "name": "g", "snippet": "", "length": 8, "terms": {"slug": 1, "y": 7}},
        {"file": "c.py", "line": 1, "name": "h", "snippet": "", "length": 6, "terms": {"z": 6}},
    ]
    # Three documents, mean length 6; two hold the term, so idf = ln(1 + (3 - 2 + 0.5) / (2 + 0.5)) = ln 1.6 = 0.470004.
    # First: 2 * 2.5 / (2 + 1.5 * (0.25 + 0.75 * 4/6)) = 5 / 3.125 = 1.6      -> 0.752006
    # Second: 1 * 2.5 / (1 + 1.5 * (0.25 + 0.75 * 8/6)) = 2.5 / 2.875 = 0.869565 -> 0.408699
    found = server_module.Search(documents).ranked("Slugs!", 10)
    assert [(hit.file, hit.score) for hit in found] == [("a.py", 0.752), ("b.py", 0.4087)]
    twice = server_module.Search(documents).ranked("slug slug", 1)
    assert [(hit.file, hit.score) for hit in twice] == [("a.py", 1.504)]
    assert server_module.Search(documents).ranked("unknown", 10) == []
    assert server_module.Search([]).ranked("slug", 10) == []


def test_ties_are_broken_by_place(server_module: Any) -> None:
    documents = [
        {"file": f, "line": n, "name": "f", "snippet": "", "length": 1, "terms": {"a": 1}} for f in "ab" for n in (1, 9)
    ]
    found = server_module.Search(documents).ranked("a", 3)
    assert [(hit.file, hit.line) for hit in found] == [("a", 1), ("a", 9), ("b", 1)]
