"""The lock: canonical, whole, and unforgiving about a changed byte."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from factories import make_lock

from pairtrial.core.errors import PlanError
from pairtrial.prereg.lock import drift, load_lock, lock_path, parse_lock


def test_the_plan_id_is_the_digest_of_the_file(tmp_path: Path) -> None:
    lock = make_lock()
    path = lock_path(tmp_path / "trial.yaml")
    assert path.name == "trial.lock.json"
    path.write_bytes(lock.to_bytes())
    assert load_lock(path) == lock
    assert load_lock(path).plan_id == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_plan_that_is_not_frozen_says_how_to_freeze_it(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"pairtrial freeze .*trial\.yaml"):
        load_lock(tmp_path / "trial.lock.json")


@pytest.mark.parametrize(
    "edit",
    [
        lambda data: data.replace(b'"alpha":0.05', b'"alpha":0.10'),
        lambda data: b"{ " + data[1:],
        lambda data: data[:-1],
        lambda data: b"[]",
        lambda data: b"\xff",
    ],
)
def test_every_edit_is_refused(edit: Callable[[bytes], bytes]) -> None:
    data = make_lock().to_bytes()
    with pytest.raises(PlanError):
        parse_lock(edit(data), "x")


def test_an_edit_that_keeps_the_form_is_another_plan() -> None:
    data = make_lock().to_bytes()
    assert parse_lock(data.replace(b'"alpha":0.05', b'"alpha":0.06'), "x").plan_id != make_lock().plan_id


def test_drift_names_the_field_and_both_values() -> None:
    locked = {"task.a.definition": "a" * 64, "agent.version": "1.0", "gone": "x"}
    today = {"task.a.definition": "b" * 64, "agent.version": "1.0", "new": "y"}
    assert drift(locked, today) == [
        "gone: frozen as 'x', today absent",
        "new: frozen as absent, today 'y'",
        "task.a.definition: frozen as aaaaaaaaaaaaaaaa…, today bbbbbbbbbbbbbbbb…",
    ]


def test_every_default_is_written_out() -> None:
    assert b'"max_aa_flip_rate":0.35' in make_lock().to_bytes()


def test_a_lock_from_before_a_field_existed_keeps_its_plan_id() -> None:
    older = make_lock().to_bytes().replace(b'"power_target":0.8,', b"")
    assert parse_lock(older, "x").plan_id == hashlib.sha256(older).hexdigest()
    assert parse_lock(older, "x").plan.analysis.power_target == 0.8
