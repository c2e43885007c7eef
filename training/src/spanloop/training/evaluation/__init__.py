"""Evaluate policy versions on a set of tasks with bootstrap confidence intervals; store and compare evaluations.

Invariant: every figure is computed from stored episodes and stored with them; a visible evaluation is complete.
Episodes that do not count are stored with the reason. This package runs no tasks: the episodes come from the app.
"""

from .bootstrap import Interval
from .compare import Comparison, EpisodePair, ErrorChange, ToolChange, compare
from .measure import evaluate
from .stored_evaluations import (
    ErrorUse,
    Evaluation,
    EvaluationError,
    LeftOut,
    ToolUse,
    load_episodes,
    load_errors,
    load_evaluation,
    load_evaluations,
    load_tools,
)

__all__ = [
    "Comparison",
    "EpisodePair",
    "ErrorChange",
    "ErrorUse",
    "Evaluation",
    "EvaluationError",
    "Interval",
    "LeftOut",
    "ToolChange",
    "ToolUse",
    "compare",
    "evaluate",
    "load_episodes",
    "load_errors",
    "load_evaluation",
    "load_evaluations",
    "load_tools",
]
