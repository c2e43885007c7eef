"""Where the answer of an episode came from: the first step that said what the last one repeats.

Agents hand an answer on: one works it out, others confirm it and repeat it. If it is wrong, the step that first said
it is nearer to the cause than the one that said it last. Only what can be told apart from ordinary words is followed:
a value that the answer marks as such, or a number.
"""

import re
from functools import lru_cache
from typing import Final

from ...steps import Episode, Step

_MARKED: Final = (
    re.compile(r"\\boxed\{+\s*([^{}]+?)\s*\}"),
    re.compile(r"(?:final |correct )?answer(?: is|:)\s*:?\s*\W*([^\n]{1,80}?)\W*(?:\.\s|\.?$|\n)", re.IGNORECASE),
    re.compile(r"\*\*([^*\n]{1,60})\*\*(?!\s*:)"),
    re.compile(
        r"(?:therefore|thus|hence|so|in total)\b[^\n]{0,200}?\b(?:is|are|was|were|=)\s+\W*"
        r"([^\n.]{1,60}?)\W*(?:\.|\n|$)",
        re.IGNORECASE,
    ),
)
"""Ways to mark a result, the plainest first; the last match counts."""

_NUMBER: Final = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w])")

_FEW_WORDS: Final = 3
"""A last message of so many ("TERMINATE", "Thank you!") ends a conversation and answers nothing."""

_COURTEOUS: Final = re.compile(
    r"\W*(?:you(?:'re| are) (?:very |most )?welcome|no problem|my pleasure|(?:i'm |i am )?(?:glad|happy) (?:to|i could)"
    r"|thank(?:s| you)\b|take care|have an? \w+ (?:day|trip|time)|good ?bye|bye\b|talk (?:to you )?soon|safe travels)",
    re.IGNORECASE,
)
_CLOSING: Final = re.compile(
    r"feel free|reach out|have an? \w+ (?:day|trip|time|flight|weekend)|safe travels|take care|hesitate|let me know"
    r"|talk (?:to you )?soon|looking forward|good ?bye|take your time",
    re.IGNORECASE,
)
_MOST_WORDS: Final = 60


def is_farewell(text: str) -> bool:
    """Whether a message only takes leave: courtesies, no figures, and nothing long."""
    words = text.replace("\u2019", "'")
    is_short = len(words.split()) <= _MOST_WORDS and not any(character.isdigit() for character in words)
    return is_short and _COURTEOUS.match(words) is not None and _CLOSING.search(words) is not None


def origin_of_answer(episode: Episode) -> tuple[Step, str] | None:
    """The step that first said the final answer, or got it from a tool, and the answer; None where it has no value."""
    for last in reversed(episode.steps):
        text = last.span.output[0].text if last.span.output else ""
        value = _value(text)
        if value:
            given = "\n".join(message.text for message in episode.first_step.span.input)
            if _has_value(given, value):
                return None
            return next(step for step in episode.steps if step is last or _brought(step, value)), value
        if len(text.split()) > _FEW_WORDS:
            return None
    return None


def _value(text: str) -> str:
    """Return the result that a text states; empty when nothing stands out."""
    for pattern in _MARKED:
        values = [match.group(1).strip() for match in pattern.finditer(text)]
        if values and any(character.isalnum() for character in values[-1]) and not values[-1].endswith(":"):
            numbers = _NUMBER.findall(values[-1])
            return numbers[-1] if len(numbers) == 1 else values[-1]
    numbers = _NUMBER.findall(text)
    return numbers[-1] if len(set(numbers)) == 1 and len(numbers[-1]) > 1 else ""


def _brought(step: Step, value: str) -> bool:
    text = step.span.output[0].text if step.span.output else ""
    return _has_value(text, value) or any(_has_value(result.content, value) for result in step.results)


def _has_value(text: str, value: str) -> bool:
    return bool(text) and _word(value).search(text) is not None


@lru_cache(maxsize=64)
def _word(value: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.]){re.escape(value)}(?!\w)", re.IGNORECASE)
