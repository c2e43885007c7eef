"""A grader: the answer begins with what is expected."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from spanloop.evaluation.graders import Grader, Verdict
from spanloop.evaluation.tasks import Task


class StartsWith(Grader):
    """Score the share of the expected text with which the answer begins."""

    version: ClassVar[str] = "1"

    least: float = Field(default=1.0, gt=0, le=1)
    """From this share on an answer is a success."""

    def required_fields(self) -> Sequence[str]:
        """Return the fields that each task needs."""
        return ("answer",)

    def grade(self, task: Task, answer: str) -> Verdict:
        """Return the share of the expected text."""
        expected = str(task.fields["answer"])
        common = next((at for at, pair in enumerate(zip(expected, answer, strict=False)) if pair[0] != pair[1]), None)
        length = min(len(expected), len(answer)) if common is None else common
        score = length / max(len(expected), 1)
        return Verdict.of(score, is_success=score >= self.least, expected=expected, answer=answer)
