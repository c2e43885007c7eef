"""The scoring function of the reasoning-gym generator that made the task."""
# pyright: basic

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, ClassVar, Self

from spanloop.evaluation.tasks import Task
from spanloop.foundation.errors import ConfigurationError

from .base import Grader, GraderContext, GradingError
from .verdict import Verdict


class ReasoningGymGrader(Grader):
    """Scores generated tasks."""

    version: ClassVar[str] = "1"
    summary: ClassVar[str] = "The score, from 0 to 1, of the generator that made the task (reader `reasoning-gym`)."

    threshold: float = 1.0
    """From this score on an answer is a success."""

    def required_fields(self) -> Sequence[str]:
        """Return the fields that each task needs."""
        return ("question", "metadata")

    def bind(self, context: GraderContext) -> Self:
        """Check that the package is installed.

        Raises:
            ConfigurationError: It is not.
        """
        del context
        if find_spec("reasoning_gym") is None:
            raise ConfigurationError(
                "The grader reasoning-gym needs the package of this name, which is not installed.",
                next_step="pip install '/path/to/spanloop[tasks]'",
            )
        return self

    def grade(self, task: Task, answer: str) -> Verdict:
        """Return the generator's score.

        Raises:
            GradingError: The task names no generator, or its scoring function raises.
        """
        import reasoning_gym  # noqa: PLC0415 - a second, and only this grader needs it

        metadata: Any = task.fields["metadata"]
        source = metadata.get("source_dataset") if isinstance(metadata, dict) else None
        try:
            score_answer: Any = reasoning_gym.get_score_answer_fn(str(source))
            score = float(score_answer(answer, dict(task.fields)))
        except Exception as error:
            raise GradingError(
                f"The generator {source!r} of task {task.id!r} cannot score: {type(error).__name__}: {error}.",
                next_step="Read the tasks with the reader reasoning-gym.",
            ) from error
        return Verdict.of(score, is_success=score >= self.threshold, answer=answer, expected=task.fields.get("answer"))
