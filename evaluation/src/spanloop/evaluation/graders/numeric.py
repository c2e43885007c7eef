"""The answer's last number is the expected one."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from spanloop.converters.rewards.comparison import (
    ABSOLUTE_TOLERANCE,
    RELATIVE_TOLERANCE,
    last_number,
    same_number,
    text_of,
)
from spanloop.evaluation.tasks import Task

from .base import Grader, GradingError
from .verdict import Verdict


class NumericGrader(Grader):
    """Compares numbers."""

    version: ClassVar[str] = "1"
    summary: ClassVar[str] = (
        "1 when the answer's last number is the last number of the expected value, within a tolerance."
    )

    expected: str = "answer"
    """The task's field that holds the expected number, or a text that ends with it."""
    relative: float = Field(default=RELATIVE_TOLERANCE, ge=0, allow_inf_nan=False)
    """Tolerance as a share of the expected number."""
    absolute: float = Field(default=ABSOLUTE_TOLERANCE, ge=0, allow_inf_nan=False)
    """Tolerance as a number."""

    def required_fields(self) -> Sequence[str]:
        """Return the fields that each task needs."""
        return (self.expected,)

    def grade(self, task: Task, answer: str) -> Verdict:
        """Return 1 for the expected number, else 0.

        Raises:
            GradingError: The expected value holds no number.
        """
        value = task.fields[self.expected]
        expected, got = last_number(text_of(value)), last_number(answer)
        if expected is None:
            raise GradingError(f"Field {self.expected!r} of task {task.id!r} holds no number: {value!r:.80}.")
        is_equal = same_number(got, expected, self.relative, self.absolute)
        return Verdict.of(is_equal, answer=answer, number=got, expected=expected)
