"""A language model marks the answer by a rubric, criterion by criterion.

Invariant: a mark that is missing or no number from 0 to 1 is refused: better no verdict than a made-up one. The model's
answers are cached, within its budget of calls and money. (On judging by rubric: Zheng et al., 2023,
https://arxiv.org/abs/2306.05685.)
"""

import json
from math import fsum
from typing import ClassVar, Final, Self

from pydantic import Field, PrivateAttr, field_validator

from spanloop.converters.attribution.judge import json_object_in
from spanloop.converters.rewards.rubric import Criteria, Work
from spanloop.evaluation.tasks import Task
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.model_client import ModelCallError, ModelClient
from spanloop.foundation.settings import load_configuration

from .base import Grader, GraderContext, GradingError
from .verdict import Verdict

_ANSWER_CHARACTERS: Final = 20_000
_SHOWN: Final = 200


class RubricGrader(Grader):
    """Asks a model."""

    version: ClassVar[str] = "1"
    summary: ClassVar[str] = (
        "The mean of a model's marks, from 0 to 1, for each criterion. The model is one of `[models]` in spanloop.toml."
    )

    model: str
    """Name of a model in `[models]` of spanloop.toml."""
    criteria: dict[str, str]
    """Criteria as `NAME: TEXT; NAME: TEXT`."""
    threshold: float = Field(default=0.5, ge=0, le=1)
    """From this score on an answer is a success."""

    _client: ModelClient | None = PrivateAttr(default=None)

    @field_validator("criteria", mode="before")
    @classmethod
    def _parse(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        pairs = [part.partition(":") for part in value.split(";") if part.strip()]
        if not pairs or not all(name.strip() and text.strip() for name, _, text in pairs):
            raise ValueError("expected NAME: TEXT; NAME: TEXT")
        return {name.strip(): text.strip() for name, _, text in pairs}

    def bind(self, context: GraderContext) -> Self:
        """Return the grader with a client of its model.

        Raises:
            ConfigurationError: spanloop.toml has no such model.
        """
        models = load_configuration(context.data_dir).models
        if self.model not in models:
            known = ", ".join(sorted(models)) or "none"
            raise ConfigurationError(
                f"The rubric's model {self.model!r} is not in spanloop.toml; [models] has: {known}.",
                next_step=f"Add a section [models.{self.model}] with url and model.",
            )
        self._client = ModelClient(models[self.model], context.data_dir)
        return self

    def grade(self, task: Task, answer: str) -> Verdict:
        """Return the mean mark.

        Raises:
            GradingError: The model gives no answer, or twice one that cannot be read.
        """
        fields = json.dumps(dict(task.fields), ensure_ascii=False, indent=1)
        work = Work(
            "an answer to a task", "The answer", answer[-_ANSWER_CHARACTERS:], context=f"The task, as JSON:\n{fields}"
        )
        criteria = Criteria(self.criteria)
        try:
            marks = criteria.mark(self._ask, work)
        except ValueError as error:
            raise GradingError(
                f"Model {self.model!r} gave no usable marks for task {task.id!r}: {error}.",
                next_step="Use a stronger model, or simpler criteria.",
            ) from error
        score = fsum(criteria.contributions(marks).values())
        return Verdict.of(
            score,
            is_success=score >= self.threshold,
            marks=dict(marks.by_criterion),
            reason=marks.reason,
            judge=self.model,
            answer=answer,
        )

    def _ask(self, question: str) -> dict[str, object]:
        if self._client is None:
            raise GradingError("The rubric grader was not bound to a data directory.")
        try:
            reply = self._client.ask(question)
        except ModelCallError as error:
            raise GradingError(error.what, next_step=error.next_step) from error
        marks = json_object_in(reply)
        if marks is None:
            raise ValueError(f"no JSON object in {reply[:_SHOWN]!r}")
        return marks
