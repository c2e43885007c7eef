"""What a grader says of an answer."""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from pydantic import JsonValue

from spanloop.converters.rewards import SUCCESS_THRESHOLD
from spanloop.semconv.scores import SCORE_RANGE, is_valid_score

_SHOWN_CHARACTERS: Final = 2_000
_MOST_CHARACTERS: Final = 50_000
_GAP: Final = " … "


class Verdict(NamedTuple):
    """A score with its evidence."""

    score: float
    """Between -1e12 and 1e12; 1 is the best that the built-in graders give, 0 the worst."""
    is_success: bool
    evidence: Mapping[str, JsonValue]
    """What was compared; long texts are cut."""

    @classmethod
    def of(cls, score: float, *, is_success: bool | None = None, **evidence: JsonValue) -> "Verdict":
        """Make a verdict; by default the score decides whether it is a success.

        Raises:
            ValueError: The score is out of range.
        """
        if not is_valid_score(score):
            raise ValueError(f"a score must be {SCORE_RANGE}, got {score!r}")
        succeeded = score >= SUCCESS_THRESHOLD if is_success is None else is_success
        return cls(float(score), succeeded, {name: shortened(value) for name, value in evidence.items()})

    def evidence_json(self) -> str:
        """Return the evidence as a JSON object."""
        text = json.dumps(dict(self.evidence), ensure_ascii=False)
        return text if len(text) <= _MOST_CHARACTERS else json.dumps({"evidence": shortened(text)}, ensure_ascii=False)


def shortened(value: JsonValue) -> JsonValue:
    """Return the value; a long text, or a value that is long as JSON, as text with its middle left out."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) <= _SHOWN_CHARACTERS:
        return value
    half = (_SHOWN_CHARACTERS - len(_GAP)) // 2
    return f"{text[:half]}{_GAP}{text[-half:]}"
