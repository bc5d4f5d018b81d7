"""Qualifying tasks: is a task what its author says, always, and does nothing give it away?"""

from pairtrial.grading.qualify.task import Qualifier

__all__ = ["Qualifier"]
