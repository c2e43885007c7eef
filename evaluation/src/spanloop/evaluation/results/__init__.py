"""Evaluate policy versions on a set of tasks with bootstrap confidence intervals; store and compare evaluations.

Invariant: every figure is computed from stored attempts and stored with them; a visible evaluation is complete.
Attempts that do not count are stored with the reason. This package runs no tasks: attempts come from the task runner or
from the app.
"""

from .bootstrap import Interval
from .compare import Comparison, EpisodePair, ErrorChange, ToolChange, compare
from .figures import task_values
from .groups import GroupFigures, Spread, group_by_field
from .measure import evaluate
from .reference_calls import ReferenceCalls, reference_calls_of
from .stored_evaluations import (
    ErrorUse,
    EvaluatedState,
    Evaluation,
    EvaluationError,
    Figure,
    LeftOut,
    ToolUse,
    load_episodes,
    load_errors,
    load_evaluation,
    load_evaluations,
    load_figures,
    load_tools,
)
from .trained_tasks import NOTHING_TRAINED, TrainedTasks

__all__ = [
    "NOTHING_TRAINED",
    "Comparison",
    "EpisodePair",
    "ErrorChange",
    "ErrorUse",
    "EvaluatedState",
    "Evaluation",
    "EvaluationError",
    "Figure",
    "GroupFigures",
    "Interval",
    "LeftOut",
    "ReferenceCalls",
    "Spread",
    "ToolChange",
    "ToolUse",
    "TrainedTasks",
    "compare",
    "evaluate",
    "group_by_field",
    "load_episodes",
    "load_errors",
    "load_evaluation",
    "load_evaluations",
    "load_figures",
    "load_tools",
    "reference_calls_of",
    "task_values",
]
