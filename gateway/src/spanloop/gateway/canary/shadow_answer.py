"""One row of the table ``shadow_answers``: what a shadow candidate answered, beside the champion's answer.

Invariant: it has neither token ids nor log-probabilities, so nothing can be trained on it.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

import polars as pl

from spanloop.foundation.surrogates import dump_json
from spanloop.foundation.tables.canaries import SHADOW_ANSWERS

KIND: Final = "shadow_answer"
"""Of the record in the spool."""
TABLE: Final = SHADOW_ANSWERS.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowAnswer:
    """A row of the table: one call that both answered."""

    canary_id: str
    response_id: str
    """Of the champion's answer."""
    trace_id: str
    candidate: str
    champion: str
    answer: str
    """JSON object; empty with an error."""
    champion_answer: str
    is_valid: bool
    """Whether its tool calls name tools of the request with valid arguments."""
    champion_is_valid: bool
    agreement: str
    """Empty with an error."""
    latency_s: float
    champion_latency_s: float
    tokens: int
    champion_tokens: int
    error: str
    started_ns: int


def encode_shadow(answer: ShadowAnswer) -> bytes:
    """Return a spool record."""
    return dump_json(asdict(answer)).encode()


def decode_shadow(body: bytes) -> ShadowAnswer:
    """Return the answer of a spool record.

    Raises:
        ValueError: ``body`` was not made by `encode_shadow`.
        TypeError: A field is missing or unknown.
    """
    return ShadowAnswer(**json.loads(body))


def shadow_frame(answers: Sequence[ShadowAnswer]) -> pl.DataFrame:
    """Return rows of the table; it raises as `recorder.to_frame`."""
    return SHADOW_ANSWERS.from_records(answers, {"started_at": "started_ns"})
