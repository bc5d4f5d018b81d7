"""`init` writes a plan that checks as soon as its provider has what it names."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from pairtrial.cli.init import init
from pairtrial.prereg.plan import load_plan
from pairtrial.providers import load_provider


def test_plan_and_provider_are_valid_and_fit_each_other(tmp_path: Path) -> None:
    done = CliRunner().invoke(init, ["mine", "--folder", str(tmp_path)], standalone_mode=False)
    assert done.return_value == 0, done.output
    plan = load_plan(tmp_path / "prereg" / "mine.yaml")
    assert [arm.name for arm in plan.arms] == ["control", "mine", "aa"]
    assert plan.analysis.family == ("mine",)
    provider = load_provider(plan.treatments[0].provider or "", tmp_path / "prereg")
    assert (provider.name, list(provider.config.servers)) == ("mine", ["mine"])


def test_nothing_is_ever_replaced(tmp_path: Path) -> None:
    runner = CliRunner()
    runner.invoke(init, ["mine", "--folder", str(tmp_path)], standalone_mode=False)
    path = tmp_path / "prereg" / "mine.yaml"
    path.write_text("edited")
    done = runner.invoke(init, ["mine", "--folder", str(tmp_path)], standalone_mode=False)
    assert "exists already" in str(done.exception)
    assert path.read_text() == "edited"
    assert "lowercase" in str(
        runner.invoke(init, ["../up", "--folder", str(tmp_path)], standalone_mode=False).exception
    )
