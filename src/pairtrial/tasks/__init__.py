"""Task packs: real packages at a pinned state with one defect folded in.

`load_pack` reads a pack, `prepare` makes its trees and environment, `copy_workspace` gives a rollout its copy.
"""

from __future__ import annotations

from pairtrial.tasks.environment import Environment, mounts_of, verify_environment
from pairtrial.tasks.model import Category, Framework, Span
from pairtrial.tasks.pack import Pack, Target, Task, load_pack, load_target
from pairtrial.tasks.workspace import (
    Prepared,
    Trees,
    copy_workspace,
    prepare,
    prepare_trees,
    task_env,
    test_command,
    unbroken_tree,
)

__all__ = [
    "Category",
    "Environment",
    "Framework",
    "Pack",
    "Prepared",
    "Span",
    "Target",
    "Task",
    "Trees",
    "copy_workspace",
    "load_pack",
    "load_target",
    "mounts_of",
    "prepare",
    "prepare_trees",
    "task_env",
    "test_command",
    "unbroken_tree",
    "verify_environment",
]
