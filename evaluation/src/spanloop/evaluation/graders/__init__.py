"""Graders: say how good an agent's answer to a task is.

A grader is a module of this package with a line in `GRADERS`, a callable of a package's entry point in the group
``spanloop.graders``, or ``module:function``.
"""

from .base import Grader, GraderContext, GradingError
from .loading import GRADERS, load_grader
from .sql_match import SqlMatch
from .verdict import Verdict

__all__ = ["GRADERS", "Grader", "GraderContext", "GradingError", "SqlMatch", "Verdict", "load_grader"]
