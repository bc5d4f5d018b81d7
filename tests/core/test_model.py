"""Documents: every problem at once, with its field; nothing that grows without bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from pairtrial.core.errors import PlanError, TaskError
from pairtrial.core.model import MAX_DOCUMENT_BYTES, Model, RelPath, load_yaml


class Document(Model):
    name: str
    path: RelPath
    count: int = 0


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "doc.yaml"
    path.write_text(text)
    return path


def test_all_problems_come_at_once_each_with_file_and_field(tmp_path: Path) -> None:
    path = write(tmp_path, "nmae: x\npath: ../up\ncount: many\n")
    with pytest.raises(PlanError) as caught:
        load_yaml(path, Document)
    lines = str(caught.value).splitlines()
    assert [line.split(": ")[1] for line in lines] == ["name", "path", "count", "nmae"]
    assert all(line.startswith(str(path)) for line in lines)
    assert lines[3].endswith("unknown key; remove it or correct its spelling")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: a\nname: b\npath: p\n", "line 2: key 'name' stands twice"),
        ("name: &x [a]\npath: *x\n", "aliases are not accepted"),
        ("name: [unclosed\n", "not valid YAML"),
        ("name: !!python/object/apply:os.system [id]\n", "not valid YAML"),
        ("- 1\n", "(document)"),
    ],
)
def test_bad_yaml_is_one_clear_error(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(TaskError, match=r"doc\.yaml") as caught:
        load_yaml(write(tmp_path, text), Document, TaskError)
    assert words in str(caught.value)


def test_missing_not_utf8_and_huge_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="no such file"):
        load_yaml(tmp_path / "absent.yaml", Document)
    (tmp_path / "latin.yaml").write_bytes(b"name: \xff\n")
    with pytest.raises(PlanError, match="not UTF-8"):
        load_yaml(tmp_path / "latin.yaml", Document)
    (tmp_path / "huge.yaml").write_bytes(b"#" * (MAX_DOCUMENT_BYTES + 1))
    with pytest.raises(PlanError, match="larger than 4 MiB"):
        load_yaml(tmp_path / "huge.yaml", Document)


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "a\\b", ".", ""])
def test_paths_that_leave_their_folder_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="relative POSIX path"):
        Document(name="n", path=path)
