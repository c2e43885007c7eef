"""Evaluations: how well a policy version does on a set of tasks, with intervals, stored and compared.

The invariant: every figure is computed from stored episodes and stored with them; an evaluation that can be seen is
whole. Episodes that do not count are kept with the reason. Nothing is run here: the episodes come from the app.
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
