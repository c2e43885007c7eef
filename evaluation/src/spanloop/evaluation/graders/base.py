"""What a grader is: settings, the fields of a task that it needs, and a function from task and answer to a verdict.

Invariant: a grader changes nothing. The same task, answer, options and version give the same verdict, except where a
model judges.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

from spanloop.converters.rewards import Attempt
from spanloop.evaluation.tasks import Task
from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.plugins import Extension

from .verdict import Verdict


class GradingError(SpanloopError):
    """An answer that cannot be graded; the fault is not the agent's."""


class GraderContext(NamedTuple):
    """What a grader may use besides task and answer."""

    data_dir: Path
    """Configuration, and the cache of a judging model."""


class Grader(Extension):
    """A grader with its options."""

    needs_attempt: ClassVar[bool] = False
    """Whether `grade_attempt` is called, with what the attempt's spans hold, and not `grade`."""
    version: ClassVar[str] = ""
    """Stored with each verdict; changes when equal answers get other scores. Empty takes a digest of the source."""

    def required_fields(self) -> Sequence[str]:
        """Return the fields that each task needs."""
        return ()

    def bind(self, context: GraderContext) -> Self:
        """Return the grader with what it needs of ``context``.

        Raises:
            ConfigurationError: Something that it needs is missing.
        """
        del context
        return self

    def grade(self, task: Task, answer: str) -> Verdict | float:
        """Return the verdict on ``answer``, or its score alone.

        Raises:
            GradingError: It cannot be graded.
        """
        raise NotImplementedError

    def grade_attempt(self, task: Task, answer: str, attempt: Attempt) -> Verdict | float:
        """Return the verdict on an attempt; called where ``needs_attempt`` is set.

        Args:
            task: The task.
            answer: The answer.
            attempt: Its model calls, tool calls, failures and scores; that of the environment is named
                ``environment``.

        Raises:
            GradingError: It cannot be graded.
        """
        del attempt
        return self.grade(task, answer)
