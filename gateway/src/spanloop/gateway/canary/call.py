"""One row of the table ``canary_calls``: a call of a session that a canary compares.

Invariant: the arm is the one that the session belongs to, also when the champion answered a call of the candidate.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

import polars as pl

from spanloop.foundation.surrogates import dump_json
from spanloop.foundation.tables.canaries import CANARY_CALLS

KIND: Final = "canary_call"
"""Of the record in the spool."""
TABLE: Final = CANARY_CALLS.name


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
    return CANARY_CALLS.from_records(calls, {"started_at": "started_ns"})
