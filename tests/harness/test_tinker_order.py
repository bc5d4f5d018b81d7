"""Prompt, localisation and order."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from pairtrial.harness.tinker.answers import Search, hits_of, search_of
from pairtrial.harness.tinker.candidates import Candidate
from pairtrial.harness.tinker.localise import Focus, Hit, names_file, ranks_of
from pairtrial.harness.tinker.operators import PRIORS
from pairtrial.harness.tinker.order import first_candidates, gumbel
from pairtrial.harness.tinker.prompt import parse_prompt
from pairtrial.harness.tinker.sources import is_source, parse_source, read_sources


def candidate(
    path: str = "pack/slugs.py", function: str | None = "slug", operator: str = "compare", start: int = 0
) -> Candidate:
    return Candidate(path, start, start + 1, b"<", b">", 1, function, operator)


def test_a_prompt_is_cut_into_prose_example_and_command() -> None:
    text = (
        "Slugs are cut.\n\n```python\nassert slug('a')\n```\n\nMore words.\n\n```python\nsecond\n```\n"
        "```sh\n# a comment\n$ python -m pytest -o addopts= 'tests/a b'\nsecond line\n```\n"
    )
    prompt = parse_prompt(text)
    assert prompt.example == "assert slug('a')\n"
    assert prompt.command == ("python", "-m", "pytest", "-o", "addopts=", "tests/a b")
    assert prompt.prose == "Slugs are cut.\n\nMore words."
    assert prompt.query == "Slugs are cut.\n\nMore words.\n\nassert slug('a')\n"


@pytest.mark.parametrize("text", ["", "words", "```\nno language\n```", "```python\nnever closed"])
def test_a_prompt_without_a_block_has_no_example(text: str) -> None:
    prompt = parse_prompt(text)
    assert prompt.example is None
    assert prompt.command == ()


def test_a_command_that_cannot_be_split_is_none() -> None:
    assert parse_prompt("```sh\npytest 'open\n```\n").command == ()


def test_dull_words_and_keywords_are_no_words() -> None:
    prompt = parse_prompt(
        "The file_size function returns a wrong number.\n\n```python\nfrom pack import natural_size\n```\n"
    )
    assert prompt.words == {"size", "number", "pack", "natural"}


@pytest.mark.parametrize(
    ("path", "words", "named"),
    [
        ("pack/number.py", {"number"}, True),
        ("pack/filesize.py", {"size"}, True),
        ("pack/number.py", {"numbers"}, False),
        ("pack/io.py", {"radio"}, False),
        ("number/core.py", {"number"}, False),
        ("pack/matching.py", {"tch"}, False),
        ("pack/a_tch_b.py", {"tch"}, True),
        ("pack/core.py", set(), False),
    ],
)
def test_a_word_names_a_file_by_its_own_name_only(path: str, words: set[str], named: bool) -> None:
    assert names_file(path, frozenset(words)) is named


def test_weights_are_products_of_prior_name_place_and_answer() -> None:
    focus = Focus(frozenset({"slugs"}), {("pack/slugs.py", "slug"): 0, ("pack/other.py", "g"): 3})
    assert focus.weight(candidate()) == pytest.approx(3.0 * 4 * 13)
    assert focus.weight(candidate(function="words")) == pytest.approx(3.0 * 4)
    assert focus.weight(candidate(function=None)) == pytest.approx(3.0 * 4 * 0.1)
    assert focus.weight(candidate("pack/other.py", "g")) == pytest.approx(3.0 * (1 + 12 / math.e))
    assert focus.weight(candidate("pack/other.py", "h", "similar_name")) == pytest.approx(0.15)


SOURCE = parse_source(
    "pack/a.py",
    b"import x\n\n\n@x\ndef f():\n    def inner():\n        pass\n\n\nclass C:\n    z = 1\n\n    def g(self):\n        pass\n",
)


def test_an_answer_is_ranked_by_distinct_functions() -> None:
    assert SOURCE is not None
    hits = [
        Hit("elsewhere.py", 1),
        Hit("./pack/a.py", 6, "f.inner"),
        Hit("pack/a.py", 5, "f"),
        Hit("pack/a.py", 11, "C"),
        Hit("pack/a.py", None, "C.g"),
        Hit("pack/a.py", 1),
    ]
    assert ranks_of(hits, [SOURCE]) == {("pack/a.py", "f"): 0, ("pack/a.py", "C.g"): 1}


def test_only_ten_functions_of_an_answer_count() -> None:
    text = "".join(f"def f{n}():\n    pass\n\n\n" for n in range(15))
    source = parse_source("a.py", text.encode())
    assert source is not None
    ranks = ranks_of([Hit("a.py", 1 + 4 * n) for n in range(15)], [source])
    assert ranks == {("a.py", f"f{n}"): n for n in range(10)}


def test_the_noise_belongs_to_seed_and_candidate() -> None:
    assert gumbel(1, "a") == gumbel(1, "a")
    assert len({gumbel(seed, name) for seed in range(5) for name in "abc"}) == 15
    draws = [gumbel(seed, "a") for seed in range(20_000)]
    mean = sum(draws) / len(draws)
    variance = sum((draw - mean) ** 2 for draw in draws) / len(draws)
    # Gumbel(0, 1): mean is Euler's constant, variance pi^2/6; four standard errors of 20,000 draws.
    assert mean == pytest.approx(0.5772, abs=4 * 1.2825 / math.sqrt(20_000))
    assert variance == pytest.approx(math.pi**2 / 6, rel=0.06)


def test_two_arms_at_one_seed_order_what_the_answer_does_not_touch_alike() -> None:
    candidates = [candidate(function=name, start=n) for n in range(40) for name in ("f", "g")]
    control = first_candidates(candidates, Focus(), 3, 80)
    treated = first_candidates(candidates, Focus(ranks={("pack/slugs.py", "f"): 0}), 3, 80)
    for name in ("f", "g"):
        assert [c for c in control if c.function == name] == [c for c in treated if c.function == name]
    first = [c.function for c in treated[:20]]
    assert first.count("f") > first.count("g")


def test_the_order_does_not_depend_on_the_order_of_listing() -> None:
    candidates = [candidate(start=n, operator=operator) for n, operator in enumerate(sorted(PRIORS) * 30)]
    assert first_candidates(candidates, Focus(), 1, 50) == first_candidates(candidates[::-1], Focus(), 1, 50)


def test_the_search_tool_is_found_by_its_schema() -> None:
    query = {
        "type": "object",
        "properties": {"query": {"type": "string"}, "k": {"type": "integer"}},
        "required": ["query"],
    }
    write = {
        "type": "object",
        "properties": {"path": {"type": "string"}, "text": {"type": "string"}},
        "required": ["path"],
    }
    free = {"type": "object", "properties": {"text": {"type": "string"}}}
    assert search_of([("write", write), ("note", free), ("search", query)]) == Search("search", "query", "k")
    assert search_of([("note", free)]) == Search("note", "text", None)
    assert search_of([("write", write)]) is None
    assert search_of([("odd", {"properties": 7})]) is None
    assert search_of([]) is None
    assert Search("search", "query", "k").arguments("words") == {"query": "words", "k": 10}
    assert Search("search", "q").arguments("words") == {"q": "words"}


def test_places_are_read_from_structure_before_text() -> None:
    structured = {"results": [{"file": "a.py", "line": 3, "name": "f"}, {"path": "b.py", "start_line": True}, {"x": 1}]}
    assert hits_of(structured, "c.py:1") == (Hit("a.py", 3, "f"), Hit("b.py", None, None))
    assert hits_of(None, '[{"filename": "a.py", "lineno": 4}]') == (Hit("a.py", 4),)
    assert hits_of(None, "1. pack/a.py:12 f\n2. see b-c.py and d.py#L9; not e.pyc") == (
        Hit("pack/a.py", 12),
        Hit("b-c.py", None),
        Hit("d.py", 9),
    )
    assert hits_of({"results": []}, "nothing fits") == ()
    assert hits_of([[[[[[{"file": "deep.py"}]]]]]], "") == ()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("pack/a.py", True),
        ("src/pack/latest.py", True),
        ("tests/a.py", False),
        ("pack/tests/a.py", False),
        ("pack/test_a.py", False),
        ("pack/a_test.py", False),
        ("conftest.py", False),
        ("setup.py", False),
        ("docs/conf.py", False),
        (".hidden/a.py", False),
        ("pack/a.txt", False),
        ("pack/\udcff.py", False),
    ],
)
def test_what_may_be_edited(path: str, expected: bool) -> None:
    assert is_source(path) is expected


def test_links_and_odd_files_are_not_read(tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text("x = 1\n")
    root = tmp_path / "root"
    (root / "pack").mkdir(parents=True)
    (root / "pack" / "b.py").write_text("b = 1\n")
    (root / "pack" / "a.py").write_text("a = 1\n")
    (root / "pack" / "link.py").symlink_to(outside)
    (root / "folder").symlink_to(tmp_path)
    (root / "pack" / "binary.py").write_bytes(b"\xff\xfe")
    assert [source.path for source in read_sources(root)] == ["pack/a.py", "pack/b.py"]
