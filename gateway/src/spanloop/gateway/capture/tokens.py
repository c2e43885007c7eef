"""Collect token ids and log-probabilities (logprobs) of each choice from the engine's response or stream.

`spanloop.converters.tokens.captures` joins them to the span of the response, by ``gen_ai.response.id`` equal to
``response_id``.

Invariant: a capture with ``is_complete`` has prompt ids, a finish reason, and exactly one logprob for each response
token id. An inconsistent capture is stored as it is and marked incomplete, never repaired.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import orjson

from spanloop.foundation.surrogates import dump_json

from ..chat.request import TraceContext
from ..client.json_codec import decode_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """One row of the table ``generations``."""

    response_id: str
    """The response's ``id``, which the client's span holds as ``gen_ai.response.id``."""
    choice_index: int
    trace_id: str
    parent_span_id: str
    model: str
    policy_version: str
    prompt_token_ids: list[int]
    response_token_ids: list[int]
    logprobs: list[float]
    """Natural logarithms, parallel to ``response_token_ids``."""
    finish_reason: str
    is_complete: bool
    sampling: dict[str, str]
    started_ns: int
    """Wall clock, nanoseconds since the epoch."""
    duration_ns: int
    tokenizer: str = ""
    """Fingerprint of tokenizer and chat template of the weights; empty where the gateway does not know it."""

    @property
    def generation_id(self) -> str:
        """The row's key."""
        return f"{self.response_id}/{self.choice_index}"


def encode_captures(captures: list[Capture]) -> bytes:
    """Return the captures of all choices of one response as a spool record."""
    try:
        return orjson.dumps(captures)
    except TypeError:  # an unpaired surrogate, or a number that orjson refuses
        return dump_json([asdict(capture) for capture in captures]).encode()


def decode_captures(body: bytes) -> list[Capture]:
    """Return the captures of a spool record.

    Raises:
        ValueError: ``body`` was not made by `encode_captures`.
    """
    try:
        rows: Any = decode_json(body)
        return [Capture(**row) for row in rows]
    except TypeError as error:
        raise ValueError(str(error)) from error


class CaptureContext(NamedTuple):
    """What is known about a request before the engine responds."""

    model: str
    policy_version: str
    """``name@version`` of the weights that the request was admitted to."""
    tokenizer: str
    """Fingerprint of their tokenizer and chat template; empty where the gateway does not know it."""
    sampling: Mapping[str, str]
    trace: TraceContext
    started_ns: int
    """Wall clock, nanoseconds since the epoch."""


class Usage(NamedTuple):
    """The size of one response."""

    response_id: str
    prompt_tokens: int
    response_tokens: int


@dataclass(slots=True)
class _Choice:
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    finish_reason: str = ""


class CaptureBuilder:
    """Collects one response, whole or chunk by chunk, and makes its captures.

    Args:
        choice_count: The number of choices requested (``n``).
    """

    def __init__(self, choice_count: int) -> None:
        self._choice_count = choice_count
        self._choices: dict[int, _Choice] = {}
        self._prompt_token_ids: list[int] = []
        self._response_id = ""
        self._reported_usage: Mapping[str, Any] = {}
        self._finished = 0
        """Choices with a finish reason."""
        self._is_built = False

    def add(self, document: Mapping[str, Any]) -> None:
        """Add a whole response or one chunk of a stream; other documents, such as error events, add nothing."""
        self._response_id = self._response_id or str(document.get("id") or "")
        if not self._prompt_token_ids:
            self._prompt_token_ids = list[int](document.get("prompt_token_ids") or ())
        self._reported_usage = document.get("usage") or self._reported_usage
        fragments: list[dict[str, Any]] = document.get("choices") or []
        for fragment in fragments:
            index = int(fragment["index"])
            choice = self._choices.get(index)
            if choice is None:
                choice = self._choices[index] = _Choice()
            if token_ids := fragment.get("token_ids"):
                choice.token_ids.extend(token_ids)
            if logprobs := fragment.get("logprobs"):
                entries: list[dict[str, Any]] = logprobs.get("content") or []
                for entry in entries:
                    choice.logprobs.append(float(entry["logprob"]))
            if reason := fragment.get("finish_reason"):
                self._finished += not choice.finish_reason
                choice.finish_reason = reason

    @property
    def usage(self) -> Usage:
        """The tokens received so far; of an engine without ids those that it reported."""
        reported = self._reported_usage
        prompt_tokens = len(self._prompt_token_ids) or int(reported.get("prompt_tokens") or 0)
        response_tokens = sum(len(choice.token_ids) for choice in self._choices.values())
        return Usage(self._response_id, prompt_tokens, response_tokens or int(reported.get("completion_tokens") or 0))

    @property
    def is_finished(self) -> bool:
        """Whether every choice has a finish reason."""
        return self._finished >= self._choice_count

    @property
    def is_empty(self) -> bool:
        """Whether no response id was received, so that nothing could be joined to a span."""
        return not self._response_id

    @property
    def is_built(self) -> bool:
        """Whether `build` was called: each response is recorded once."""
        return self._is_built

    def build(self, context: CaptureContext, *, duration_ns: int) -> list[Capture]:
        """Return one capture for each choice that began, ordered by index."""
        self._is_built = True
        return [self._capture(index, context, duration_ns) for index in sorted(self._choices)]

    def _capture(self, index: int, context: CaptureContext, duration_ns: int) -> Capture:
        choice = self._choices[index]
        is_consistent = bool(self._prompt_token_ids) and 0 < len(choice.token_ids) == len(choice.logprobs)
        return Capture(
            response_id=self._response_id,
            choice_index=index,
            trace_id=context.trace.trace_id,
            parent_span_id=context.trace.span_id,
            model=context.model,
            policy_version=context.policy_version,
            prompt_token_ids=self._prompt_token_ids,
            response_token_ids=choice.token_ids,
            logprobs=choice.logprobs,
            finish_reason=choice.finish_reason,
            is_complete=is_consistent and bool(choice.finish_reason),
            sampling=dict(context.sampling),
            started_ns=context.started_ns,
            duration_ns=duration_ns,
            tokenizer=context.tokenizer,
        )
