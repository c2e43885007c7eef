"""One row of the table ``shadow_answers``: what a shadow candidate answered, beside the champion's answer.

Invariant: it has neither token ids nor log-probabilities, so nothing can be trained on it.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

import polars as pl

from spanloop.foundation.surrogates import dump_json

KIND: Final = "shadow_answer"
"""Of the record in the spool."""
TABLE: Final = "shadow_answers"
_SCHEMA: Final = {
    "canary_id": pl.String(),
    "response_id": pl.String(),
    "trace_id": pl.String(),
    "candidate": pl.String(),
    "champion": pl.String(),
    "answer": pl.String(),
    "champion_answer": pl.String(),
    "is_valid": pl.Boolean(),
    "champion_is_valid": pl.Boolean(),
    "agreement": pl.String(),
    "latency_s": pl.Float64(),
    "champion_latency_s": pl.Float64(),
    "tokens": pl.UInt32(),
    "champion_tokens": pl.UInt32(),
    "error": pl.String(),
    "started_ns": pl.Int64(),
}


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
    frame = pl.DataFrame({name: [getattr(each, name) for each in answers] for name in _SCHEMA}, schema=_SCHEMA)
    return frame.with_columns(started_at=pl.col("started_ns").cast(pl.Datetime("ns", "UTC"))).drop("started_ns")
