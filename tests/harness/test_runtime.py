"""The interpreter inside an agent's sandbox: what it holds, what it must not hold, and what a rollout shows of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from factories import make_plan
from parts import require_part
from rollout_cases import HEAD, TASK, make_laboratory

from pairtrial.core.status import Status
from pairtrial.harness.runtime import LOCK, Runtime, build_runtime, runtime_identity
from pairtrial.tasks import load_pack

ROOT = Path(__file__).resolve().parents[2]
PIN = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def runtime(cache: Path) -> Runtime:
    return anyio.run(build_runtime, cache)


def run(runtime: Runtime, code: str) -> str:
    done = subprocess.run([runtime.python, "-I", "-c", code], capture_output=True, text=True, check=True, env={})
    return done.stdout.strip()


def test_its_pins_are_those_of_the_project() -> None:
    ours = dict(PIN.findall((ROOT / "requirements.lock").read_text()))
    pins = dict(PIN.findall(LOCK.read_text()))
    assert pins["mcp"] == ours["mcp"]
    assert {name: version for name, version in pins.items() if ours.get(name, version) != version} == {}


def test_no_target_of_the_core_pack_is_in_it() -> None:
    """B: an agent that reads the packages of its own interpreter must not find the unbroken source there."""
    targets = {str(task.target.name).lower() for task in load_pack(ROOT / "tasks" / "core").tasks}
    assert {"click", "markdown-it-py"} <= targets
    assert targets & set(dict(PIN.findall(LOCK.read_text()))) == set()


@pytest.mark.registry
def test_it_holds_the_sdk_and_the_embedded_agent_alone(runtime: Runtime) -> None:
    code = (
        "import importlib.util as u, json\n"
        "names = ['mcp', 'pydantic', 'click', 'uvicorn', 'rich', 'markdown_it', 'pytest', 'docker']\n"
        "print(json.dumps([n for n in names if u.find_spec(n)]))"
    )
    assert json.loads(run(runtime, code)) == ["mcp", "pydantic"]
    found = run(runtime, "import pairtrial, os; print(sorted(os.listdir(os.path.dirname(pairtrial.__file__))))")
    assert found == "['__init__.py', '__pycache__', 'harness']"
    found = run(runtime, "import pairtrial.harness as h, os; print(sorted(os.listdir(os.path.dirname(h.__file__))))")
    assert found == "['__init__.py', '__pycache__', 'tinker']"


@pytest.mark.registry
def test_it_is_built_once_and_again_when_somebody_wrote_into_it(runtime: Runtime, cache: Path, tmp_path: Path) -> None:
    assert anyio.run(build_runtime, cache) == runtime
    copy = tmp_path / "cache"
    shutil.copytree(cache, copy, symlinks=True)
    folder = copy / "runtimes" / runtime.folders[0].name
    planted = next(folder.glob("lib/python*/site-packages/mcp/__init__.py"))
    before = planted.read_bytes()
    planted.write_bytes(before + b"\nPLANTED = 1\n")
    again = anyio.run(build_runtime, copy)
    assert again.digest == runtime.digest
    assert planted.read_bytes() == before


def test_its_identity_is_the_digest_of_its_lock() -> None:
    done = subprocess.run(["sha256sum", LOCK], capture_output=True, text=True, check=True)
    assert runtime_identity() == done.stdout.split()[0]


@pytest.mark.registry
def test_a_rollout_does_not_show_our_source(runtime: Runtime, tmp_path: Path) -> None:
    """Neither our program nor the tasks are there for an agent to read; its interpreter is."""
    require_part("bubblewrap")
    places = [str(ROOT / "src"), str(ROOT / "tasks"), str(runtime.folders[0])]
    script = HEAD + f"start(); open('seen.txt', 'w').write(json.dumps([os.path.exists(p) for p in {places!r}])); done()"
    plan = make_plan(tasks={"pack": "pack", "ids": [TASK]}, sandbox={"kind": "bubblewrap"})
    laboratory = make_laboratory(tmp_path / "lab", script, plan=plan)
    laboratory = replace(laboratory, experiment=replace(laboratory.experiment, runtime=runtime))
    receipt, files = anyio.run(laboratory.attempt)
    assert receipt.status is Status.UNRESOLVED, receipt.reason
    assert receipt.observed["runtime"] == runtime.digest
    assert b"+[false, false, true]" in files["work.patch"]
