"""What an attribution rule is, and the taxonomy that rules speak.

Invariant: a rule looks at one thing (a model call, a tool call, an episode's end), and says nothing or gives one
finding with class, owner, confidence and evidence. Rules never punish: they name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from spanloop.semconv.enums import FaultOwner

from ..messages import ToolCall
from ..steps import Episode, Step
from ..tool_results import ToolResult


class ErrorClass(StrEnum):
    """What went wrong. Open: a later rule may add a class."""

    UNKNOWN_TOOL = "unknown_tool"
    """The action calls a tool that it was not offered."""
    INVALID_ARGUMENTS = "invalid_arguments"
    """Arguments that are no JSON object, or that the tool's signature refuses."""
    MADE_UP_ARGUMENT = "made_up_argument"
    """The tool cannot find, or does not take, a value that the policy was never given."""
    TOOL_ERROR = "tool_error"
    """The tool ran and raised, or answered with an error."""
    TIMEOUT = "timeout"
    RATE_LIMIT = "rate_limit"
    SERVER_ERROR = "server_error"
    """A 5xx or overload of the model's or a tool's service."""
    CONNECTION_ERROR = "connection_error"
    AUTHENTICATION = "authentication"
    INVALID_REQUEST = "invalid_request"
    """The model's service refused the request: unknown model, malformed body."""
    CONTEXT_OVERFLOW = "context_overflow"
    CONTENT_FILTER = "content_filter"
    TRUNCATED_OUTPUT = "truncated_output"
    INCOMPLETE_STREAM = "incomplete_stream"
    MODEL_CALL_ERROR = "model_call_error"
    """A failed model call that no other class fits."""
    WRONG_ANSWER = "wrong_answer"
    """The episode ended in order and its reward says that it failed."""


class Finding(NamedTuple):
    """What a rule saw."""

    error_class: ErrorClass
    owner: FaultOwner
    confidence: float
    """0 to 1."""
    message: str
    evidence: dict[str, str]


class ToolScene(NamedTuple):
    """One tool call with what surrounds it."""

    step: Step
    call: ToolCall
    result: ToolResult | None
    offered: dict[str, dict[str, object]]
    """Tool name → JSON schema of its parameters; empty when definitions were not captured."""


@dataclass(frozen=True)
class ModelCallRule:
    """Looks at one model call."""

    name: str
    see: Callable[[Step], Finding | None]


@dataclass(frozen=True)
class ToolCallRule:
    """Looks at one tool call."""

    name: str
    see: Callable[[ToolScene], Finding | None]


@dataclass(frozen=True)
class EndingRule:
    """Looks at how an episode ended that nothing else explains.

    ``see`` gets the episode and its reward, and is asked only when the outcome is a failure.
    """

    name: str
    see: Callable[[Episode, float | None], Finding | None]
