"""A reward function: short answers are better."""

from typing import Annotated

from spanloop.converters.rewards import Attempt


def short_answer(
    attempt: Attempt, most: Annotated[int, "Characters from which on the reward is 0."] = 1_000
) -> float | None:
    """Give 1 for an empty answer, falling to 0; nothing without an answer."""
    return max(0.0, 1 - len(attempt.answer) / most) if attempt.answer else None
