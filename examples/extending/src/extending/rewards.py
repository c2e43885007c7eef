"""A reward function: short answers are better."""

from spanloop.converters.rewards import Attempt


def short_answer(attempt: Attempt) -> float | None:
    """Return 1 for an empty answer, falling to 0 at 1,000 characters; None without an answer."""
    return max(0.0, 1 - len(attempt.answer) / 1_000) if attempt.answer else None
