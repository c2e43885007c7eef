"""The answer is the expected text."""

from collections.abc import Sequence
from typing import ClassVar

from spanloop.converters.rewards.comparison import same_text, text_of
from spanloop.evaluation.tasks import Task

from .base import Grader
from .verdict import Verdict


class ExactGrader(Grader):
    """Compares texts."""

    version: ClassVar[str] = "1"
    summary: ClassVar[str] = (
        "1 when the answer is the expected text, but for case, outer punctuation and white space. "
        "A list holds several expected texts."
    )

    expected: str = "answer"
    """The task's field that holds the expected text."""

    def required_fields(self) -> Sequence[str]:
        """Return the fields that each task needs."""
        return (self.expected,)

    def grade(self, task: Task, answer: str) -> Verdict:
        """Return 1 for a match with any expected text, else 0."""
        value = task.fields[self.expected]
        expected = [text_of(item) for item in value] if isinstance(value, list) else text_of(value)
        return Verdict.of(same_text(answer, expected), answer=answer, expected=value)
