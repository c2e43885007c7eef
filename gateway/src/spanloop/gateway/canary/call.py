"""One row of the table ``canary_calls``: a call of a session that a canary compares.

Invariant: the arm is the one that the session belongs to, also when the champion answered a call of the candidate.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

import polars as pl

from spanloop.foundation.surrogates import dump_json

KIND: Final = "canary_call"
"""Of the record in the spool."""
TABLE: Final = "canary_calls"
_SCHEMA: Final = {
    "canary_id": pl.String(),
    "call_id": pl.String(),
    "session": pl.String(),
    "arm": pl.String(),
    "policy_version": pl.String(),
    "response_id": pl.String(),
    "trace_id": pl.String(),
    "status": pl.UInt16(),
    "error": pl.String(),
    "prompt_tokens": pl.UInt32(),
    "response_tokens": pl.UInt32(),
    "started_ns": pl.Int64(),
    "duration_ns": pl.UInt64(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryCall:
    """A call that was answered."""

    canary_id: str
    call_id: str
    session: str
    arm: str
    policy_version: str
    """``name@version`` that answered; empty when none did."""
    response_id: str
    trace_id: str
    status: int
    error: str
    prompt_tokens: int
    response_tokens: int
    started_ns: int
    duration_ns: int


def encode_call(call: CanaryCall) -> bytes:
    """Return a call as a spool record."""
    return dump_json(asdict(call)).encode()


def decode_call(body: bytes) -> CanaryCall:
    """Return the call of a spool record.

    Raises:
        ValueError: ``body`` was not made by `encode_call`.
        TypeError: A field is missing or unknown.
    """
    return CanaryCall(**json.loads(body))


def calls_frame(calls: Sequence[CanaryCall]) -> pl.DataFrame:
    """Return rows of the table; it raises as `recorder.to_frame`."""
    columns = {name: [getattr(call, name) for call in calls] for name in _SCHEMA}
    frame = pl.DataFrame(columns, schema=_SCHEMA, strict=True)
    return frame.with_columns(started_at=pl.col("started_ns").cast(pl.Datetime("ns", "UTC"))).drop("started_ns")
