"""Test frameworks, each read through a machine-readable report."""

from collections.abc import Mapping

from pairtrial.grading.frameworks.base import Framework
from pairtrial.grading.frameworks.compiled import CargoTest, GoTest
from pairtrial.grading.frameworks.javascript import Jest, Mocha, NodeTest, Vitest
from pairtrial.grading.frameworks.python import Pytest, Unittest

_ALL: tuple[Framework, ...] = (
    Pytest(), Unittest(), NodeTest(), Vitest(), Jest(), Mocha(), GoTest(), CargoTest()
)  # fmt: skip
FRAMEWORKS: Mapping[str, Framework] = {item.name: item for item in _ALL}
"""By the name that ``target.yaml`` uses."""

__all__ = ["FRAMEWORKS", "Framework"]
