"""What the engine sampled, gathered from its reply or from its stream, one capture for each choice.

Invariant: a capture that says ``is_complete`` has prompt ids, ended with a finish reason, and holds exactly one
logprob for each response id. Whatever does not add up is kept and marked incomplete, never repaired.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from .chat_request import TraceContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """One row of the table ``generations``."""

    response_id: str
    choice_index: int
    trace_id: str
    parent_span_id: str
    model: str
    policy_version: str
    prompt_token_ids: list[int]
    response_token_ids: list[int]
    logprobs: list[float]
    finish_reason: str
    is_complete: bool
    sampling: dict[str, str]
    started_ns: int
    """Wall clock, nanoseconds since the epoch."""
    duration_ns: int

    @property
    def generation_id(self) -> str:
        """Key of the row."""
        return f"{self.response_id}/{self.choice_index}"


def encode(captures: list[Capture]) -> bytes:
    """One spool record with all choices of one answer."""
    return json.dumps([asdict(capture) for capture in captures], ensure_ascii=False, separators=(",", ":")).encode()


def decode(body: bytes) -> list[Capture]:
    """The captures of one spool record.

    Raises:
        ValueError: It is not one of our records.
    """
    try:
        return [Capture(**row) for row in json.loads(body)]
    except TypeError as error:
        raise ValueError(str(error)) from error


class Origin(NamedTuple):
    """What is known of a request before the engine answers."""

    model: str
    policy_version: str
    """``name@version`` of the weights that the gate admitted the request to."""
    sampling: Mapping[str, str]
    trace: TraceContext
    started_ns: int
    """Wall clock, nanoseconds since the epoch."""


@dataclass(slots=True)
class _Choice:
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    finish_reason: str = ""


class Collector:
    """Gathers one answer, whole or chunk by chunk.

    Args:
        choice_count: Choices that the caller asked for (``n``).
    """

    def __init__(self, choice_count: int) -> None:
        self._expected = choice_count
        self._choices: dict[int, _Choice] = {}
        self._prompt_token_ids: list[int] = []
        self._response_id = ""
        self._is_taken = False

    def add(self, document: Mapping[str, Any]) -> None:
        """Take what a reply, or one chunk of a stream, holds. Anything else, such as an error event, adds nothing."""
        self._response_id = self._response_id or str(document.get("id") or "")
        if not self._prompt_token_ids:
            self._prompt_token_ids = list[int](document.get("prompt_token_ids") or ())
        parts: list[dict[str, Any]] = document.get("choices") or []
        for part in parts:
            choice = self._choices.setdefault(int(part["index"]), _Choice())
            choice.token_ids.extend(part.get("token_ids") or ())
            logprobs: dict[str, Any] = part.get("logprobs") or {}
            content: list[dict[str, Any]] = logprobs.get("content") or []
            choice.logprobs.extend(float(entry["logprob"]) for entry in content)
            choice.finish_reason = part.get("finish_reason") or choice.finish_reason

    @property
    def is_finished(self) -> bool:
        """Every choice has a finish reason."""
        finished = sum(1 for choice in self._choices.values() if choice.finish_reason)
        return finished >= self._expected

    @property
    def is_empty(self) -> bool:
        """Nothing came that could be joined to a span."""
        return not self._response_id

    @property
    def is_taken(self) -> bool:
        """`take` was called: one answer is recorded once."""
        return self._is_taken

    def take(self, origin: Origin, *, duration_ns: int) -> list[Capture]:
        """One capture for each choice that began, in the order of their indices."""
        self._is_taken = True
        return [self._capture(index, origin, duration_ns) for index in sorted(self._choices)]

    def _capture(self, index: int, origin: Origin, duration_ns: int) -> Capture:
        choice = self._choices[index]
        adds_up = bool(self._prompt_token_ids) and 0 < len(choice.token_ids) == len(choice.logprobs)
        return Capture(
            response_id=self._response_id,
            choice_index=index,
            trace_id=origin.trace.trace_id,
            parent_span_id=origin.trace.span_id,
            model=origin.model,
            policy_version=origin.policy_version,
            prompt_token_ids=self._prompt_token_ids,
            response_token_ids=choice.token_ids,
            logprobs=choice.logprobs,
            finish_reason=choice.finish_reason,
            is_complete=adds_up and bool(choice.finish_reason),
            sampling=dict(origin.sampling),
            started_ns=origin.started_ns,
            duration_ns=duration_ns,
        )
