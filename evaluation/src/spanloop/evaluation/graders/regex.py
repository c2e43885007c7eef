"""The answer matches a regular expression of RE2's syntax, which matches in linear time on any text."""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from collections.abc import Sequence
from typing import ClassVar

import re2

from spanloop.converters.rewards.comparison import text_of
from spanloop.evaluation.tasks import Task

from .base import Grader, GradingError
from .verdict import Verdict


class RegexGrader(Grader):
    """Searches a pattern."""

    version: ClassVar[str] = "1"
    summary: ClassVar[str] = "1 when the pattern matches somewhere in the answer. RE2's syntax: no look-around."

    pattern: str = ""
    """The pattern for all tasks; empty takes each task's own."""
    field: str = "pattern"
    """The task's field that holds its pattern."""
    whole: bool = False
    """Whether the pattern must match the whole answer."""

    def required_fields(self) -> Sequence[str]:
        """Return the fields that each task needs."""
        return () if self.pattern else (self.field,)

    def grade(self, task: Task, answer: str) -> Verdict:
        """Return 1 for a match, else 0.

        Raises:
            GradingError: The pattern cannot be compiled.
        """
        pattern = self.pattern or text_of(task.fields[self.field])
        options = re2.Options()
        options.log_errors = False
        try:
            compiled = re2.compile(pattern, options)
        except re2.error as error:
            why = error.args[0] if error.args else error
            text = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
            raise GradingError(
                f"The pattern {pattern!r:.80} of task {task.id!r} cannot be compiled: {text}.",
                next_step="Write it in RE2's syntax: https://github.com/google/re2/wiki/Syntax",
            ) from error
        stripped = answer.strip()
        match = compiled.fullmatch(stripped) if self.whole else compiled.search(stripped)
        found: str | None = None if match is None else str(match.group())
        return Verdict.of(match is not None, answer=answer, pattern=pattern, match=found)
