"""Rewards of 1 or 0 for an answer that is what was expected: as text, as a number, or in form.

Expected answers are given by task id; a task without one gets no reward. ``comparison`` compares.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import PrivateAttr

from spanloop.foundation.errors import ConfigurationError
from spanloop.messages import MalformedMessagesError

from .attempt import Attempt, Judgement, Reward
from .comparison import (
    ABSOLUTE_TOLERANCE,
    RELATIVE_TOLERANCE,
    AnswerSchema,
    answered_json,
    last_number,
    same_number,
    same_text,
)


class Exact(Reward):
    """1 when the answer is the expected text, or one of several."""

    expected: Mapping[str, str | Sequence[str]]
    """Task id → answer, or answers."""

    def __call__(self, attempt: Attempt) -> float | None:
        """Return the reward of one attempt."""
        expected = self.expected.get(attempt.task_id)
        return None if expected is None else float(same_text(attempt.answer, expected))


class Numeric(Reward):
    """1 when the answer's last number is the expected one, within a tolerance.

    Raises:
        ConfigurationError: A tolerance is below 0 or not finite.
    """

    expected: Mapping[str, float]
    """Task id → number."""
    relative: float = RELATIVE_TOLERANCE
    """Tolerance as a share of the expected number."""
    absolute: float = ABSOLUTE_TOLERANCE
    """Tolerance as a number."""

    def model_post_init(self, context: Any, /) -> None:
        """Check the tolerances."""
        del context
        for name in ("relative", "absolute"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise ConfigurationError(
                    f"The {name} tolerance of a reward is {value!r}, expected a finite number of at least 0.",
                    next_step=f"Set {name} to 0 or more.",
                )

    def __call__(self, attempt: Attempt) -> float | None:
        """Return the reward of one attempt."""
        expected = self.expected.get(attempt.task_id)
        if expected is None:
            return None
        return float(same_number(last_number(attempt.answer), expected, self.relative, self.absolute))


class JsonSchema(Reward):
    """1 when the answer (or its last code fence) is JSON that the schema allows, by JSON Schema 2020-12.

    Raises:
        ConfigurationError: The schema is not valid.
    """

    json_schema: Mapping[str, object]
    """The schema."""

    _answer_schema: AnswerSchema = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """Check the schema."""
        del context
        self._answer_schema = AnswerSchema(self.json_schema)

    def __call__(self, attempt: Attempt) -> Judgement:
        """Return the reward of one attempt: half of it for JSON at all."""
        try:
            value = answered_json(attempt.answer)
        except MalformedMessagesError:
            return Judgement(0.0, {"json": 0.0, "schema": 0.0})
        fits = not self._answer_schema.problem(value)
        return Judgement(0.5 + 0.5 * fits, {"json": 0.5, "schema": 0.5 * fits})
