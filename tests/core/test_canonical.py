"""Digests: golden vectors, and the ambiguity that a length prefix removes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import rfc8785

from pairtrial.core.canonical import canonical_json, digest_json, is_canonical, tree_digest, walk_tree


def test_canonical_json_gives_the_bytes_of_rfc_8785_section_3_2_3() -> None:
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
        "literals": [None, True, False],
    }
    expected = (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    assert canonical_json(value) == expected.encode()


def test_key_order_does_not_matter_and_keys_sort_by_utf16() -> None:
    assert canonical_json({"\ufb33": 1, "\U0001f600": 2}) == '{"\U0001f600":2,"\ufb33":1}'.encode()
    assert digest_json({"a": 1, "b": 2}) == digest_json({"b": 2, "a": 1})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_json_cannot_say_is_refused(value: float) -> None:
    with pytest.raises(rfc8785.FloatDomainError):
        canonical_json([value])


def test_tree_digest_is_the_documented_byte_stream(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "run").write_bytes(b"#!")
    (tmp_path / "b" / "run").chmod(0o755)
    (tmp_path / "a").write_bytes(b"xyz")
    (tmp_path / "link").symlink_to("a")
    parts = [
        *(b"file", b"-", b"a", b"xyz"),
        *(b"file", b"x", b"b/run", b"#!"),
        *(b"link", b"-", b"link", b"a"),
    ]
    stream = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    assert tree_digest(tmp_path) == hashlib.sha256(stream).hexdigest()


def test_two_trees_whose_joined_bytes_agree_differ(tmp_path: Path) -> None:
    for name, (path, content) in {"one": ("ab", b"c"), "two": ("a", b"bc")}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / path).write_bytes(content)
    assert tree_digest(tmp_path / "one") != tree_digest(tmp_path / "two")


def test_order_is_byte_order_whatever_the_locale(tmp_path: Path) -> None:
    for name in ("a.txt", "B.txt", "ä.txt", "a/x"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    assert [entry.path for entry in walk_tree(tmp_path)] == ["B.txt", "a.txt", "a/x", "ä.txt"]


def test_links_are_not_followed_and_names_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"s")
    (tmp_path / "tree" / "door").symlink_to(tmp_path / "outside")
    (tmp_path / "tree" / "__pycache__").mkdir()
    (tmp_path / "tree" / "__pycache__" / "x.pyc").write_bytes(b"")
    assert [entry.path for entry in walk_tree(tmp_path / "tree", exclude=("__pycache__",))] == ["door"]


@pytest.mark.parametrize(
    "value", [{"b": [1, 2.5, None], "a": "€\n"}, {"x": 1e-7}, {"\ufb33": 1, "\U0001f600": 2}, [1e21]]
)
def test_canonical_bytes_are_recognised_and_others_are_not(value: object) -> None:
    data = canonical_json(value)
    assert is_canonical(data, value)
    assert not is_canonical(data + b" ", value)
    assert not is_canonical(json.dumps(value, indent=1).encode(), value)


def test_a_link_target_is_taken_as_it_stands(tmp_path: Path) -> None:
    """`Path.readlink` would call these two links the same."""
    for name, target in {"one": "a/", "two": "a"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "link").symlink_to(target)
    assert tree_digest(tmp_path / "one") != tree_digest(tmp_path / "two")
