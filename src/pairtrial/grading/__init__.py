"""Grading: what the agent left is captured, laid into a fresh sandbox and judged by the hidden tests."""

from pairtrial.grading.frameworks.base import COUNTS_AS_PASS, Outcome
from pairtrial.grading.grader import Grade, grade, grade_from_report
from pairtrial.grading.work import Change, Work, WorkLimits, apply_work, capture

__all__ = [
    "COUNTS_AS_PASS",
    "Change",
    "Grade",
    "Outcome",
    "Work",
    "WorkLimits",
    "apply_work",
    "capture",
    "grade",
    "grade_from_report",
]
