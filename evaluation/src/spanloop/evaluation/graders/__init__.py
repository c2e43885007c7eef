"""Graders: say how good an agent's answer to a task is.

A grader is a module of this package with a line in `GRADER_POINT`, a class or callable of a package's entry point in
the group ``spanloop.graders``, or ``module:name``.
"""

from .base import Grader, GraderContext, GradingError
from .loading import GRADER_POINT, load_grader
from .sql_match import SqlMatch
from .verdict import Verdict

__all__ = ["GRADER_POINT", "Grader", "GraderContext", "GradingError", "SqlMatch", "Verdict", "load_grader"]
