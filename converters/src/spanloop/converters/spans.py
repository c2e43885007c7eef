"""A span as the converters see it, whatever instrumentor wrote it.

Invariant: a ``Span`` never fails to exist. What could not be read is said in ``problem``, with the attribute, and
makes the transition untrainable later on.
"""

from enum import StrEnum
from typing import NamedTuple

import msgspec

from spanloop.converters.enums import UntrainableReason
from spanloop.messages import History, Message


class SpanKind(StrEnum):
    """Kinds of spans."""

    LLM = "llm"
    TOOL = "tool"
    AGENT = "agent"
    OTHER = "other"


class Problem(NamedTuple):
    """Why a span's content cannot be trained on."""

    reason: UntrainableReason
    detail: str


class ExceptionInfo(NamedTuple):
    """The last ``exception`` event of a span; empty texts when there is none."""

    type: str
    message: str


class Span(msgspec.Struct, frozen=True, gc=False):
    """One span. Empty text means that the attribute is absent."""

    key: tuple[str, str]
    """Identity: trace id and span id."""
    trace_id: str
    span_id: str
    parent_span_id: str
    name: str
    kind: SpanKind
    service_name: str
    scope: str
    """Instrumentation scope; empty when nobody said."""
    start_ns: int
    duration_ns: int
    ingested_us: int
    is_error: bool
    status_message: str
    error_type: str
    exception: ExceptionInfo
    episode_key: str
    task_id: str
    session_id: str
    conversation_id: str
    agent_name: str
    request_model: str
    response_model: str
    response_id: str
    finish_reason: str
    is_streaming: bool
    sampling: tuple[tuple[str, str], ...]
    input_tokens: int
    output_tokens: int
    tools: str
    """JSON list of tool definitions; ``[]`` without any."""
    history: History
    """The messages that the model was sent."""
    output: tuple[Message, ...]
    """One message a choice; empty when the call failed or content was not captured."""
    output_chain: tuple[int, ...]
    """Number of ``input`` and each choice of the recorded output: see ``History.number``."""
    problem: Problem | None
    tool_name: str
    tool_call_id: str
    tool_arguments: str
    tool_result: str
    cached_tokens: int
    """Input tokens that the provider read from its cache; 0 when not known."""
    first_token_ns: int | None
    """Nanoseconds from the start to the first token; None when not known."""

    @property
    def input(self) -> tuple[Message, ...]:
        """The messages that the model was sent."""
        return self.history.messages

    @property
    def end_ns(self) -> int:
        """End, nanoseconds since the epoch."""
        return self.start_ns + self.duration_ns

    @property
    def recorder(self) -> str:
        """The recorder of the span: its scope; without one (exports may lack them) its name, which tells tracers apart.

        A tracer may put the model into the name: two models that were asked the same are no two tracers.
        """
        return self.scope or f"span {self.name.replace(self.request_model, '')}"

    @property
    def has_failed(self) -> bool:
        """Whether the span itself says that it failed."""
        return self.is_error or bool(self.error_type)


class Rejected(NamedTuple):
    """A row of input that becomes no transition, and why."""

    trace_id: str
    span_id: str
    reason: str
    detail: str
