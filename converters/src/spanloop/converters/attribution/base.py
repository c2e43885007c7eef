"""Base classes of attribution rules, and the classes of errors that rules report.

Invariant: a rule looks at one thing (a model call, a tool call, an episode as a whole, an episode's end), and says
nothing or gives findings with class, owner, confidence and evidence. Rules never punish: they name.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import ClassVar, NamedTuple

import msgspec

from spanloop.converters.enums import FaultOwner
from spanloop.foundation.plugins import Extension
from spanloop.messages import ToolCall

from ..errors.status_codes import status_in_text
from ..results.tool_results import ToolResult
from ..spans import Span
from ..steps import Episode, Step


class ErrorClass(StrEnum):
    """Classes of errors. A rule of a user's own may report any other class."""

    UNKNOWN_TOOL = "unknown_tool"
    """The action calls a tool that it was not offered."""
    INVALID_ARGUMENTS = "invalid_arguments"
    """Arguments that are no JSON object, that the tool's signature refuses, or that name what does not exist."""
    REFUSED_ACTION = "refused_action"
    """The tool works, and says in words that what the action asks for cannot be done."""
    INVALID_CODE = "invalid_code"
    """Code or a query that the policy wrote and that does not run."""
    INVALID_USER_INPUT = "invalid_user_input"
    """The tool cannot find an identifier that the user gave."""
    TOOL_ERROR = "tool_error"
    """The tool ran and raised, or answered with an error."""
    INCOMPLETE_RESULT = "incomplete_result"
    """The tool answered without an error, and with nothing, or with data that is cut off."""
    MISSING_RESULT = "missing_result"
    """A tool call went unanswered, and the model was asked again as if it had never been made."""
    TIMEOUT = "timeout"
    RATE_LIMIT = "rate_limit"
    SERVER_ERROR = "server_error"
    """A 5xx or overload of the model's or a tool's service."""
    CONNECTION_ERROR = "connection_error"
    AUTHENTICATION = "authentication"
    """The model's service does not know the caller."""
    PERMISSION_DENIED = "permission_denied"
    """A tool was not let in: credentials, or rights of the process that it runs in."""
    INVALID_REQUEST = "invalid_request"
    """The model's service refused the request: unknown model, malformed body."""
    CONTEXT_OVERFLOW = "context_overflow"
    CONTENT_FILTER = "content_filter"
    TRUNCATED_OUTPUT = "truncated_output"
    INCOMPLETE_STREAM = "incomplete_stream"
    MALFORMED_OUTPUT = "malformed_output"
    """An answer in no form that the harness reads: a tool call as plain text, or nothing at all."""
    MODEL_CALL_ERROR = "model_call_error"
    """A failed model call that no other class fits."""
    LOOP = "loop"
    """The same actions with the same answers, again and again."""
    HARNESS_CRASH = "harness_crash"
    """The program around model and tools raised."""
    CANCELLED = "cancelled"
    """Somebody stopped the program."""
    STEP_LIMIT = "step_limit"
    """The episode stopped in mid-action: no turns were left."""
    INVENTED_DATA = "invented_data"
    """The policy says that it goes on with data of its own making."""
    REFUSAL = "refusal"
    """The policy declined to do the task."""
    WRONG_ANSWER = "wrong_answer"
    """The episode ended in order and its reward says that it failed."""


class Finding(msgspec.Struct, frozen=True, gc=False):
    """A rule's finding about a call or an episode."""

    error_class: str
    """An ``ErrorClass``, or a class of a rule's own."""
    owner: FaultOwner
    confidence: float
    """0 to 1."""
    message: str
    evidence: dict[str, object]
    """The evidence of the finding, as JSON values."""


class LocatedFinding(msgspec.Struct, frozen=True, gc=False):
    """A finding that a rule placed by itself."""

    step: Step
    """The action during or after which it happened."""
    finding: Finding
    culprit: Span
    tool_name: str = ""


@dataclass(frozen=True)
class ToolCallContext:
    """One tool call with what surrounds it."""

    step: Step
    call: ToolCall
    result: ToolResult | None
    tool: Span | None
    """The tool's own span, where one was recorded."""
    offered: dict[str, dict[str, object]]
    """Tool name → JSON schema of its parameters; empty when definitions were not captured."""
    is_continued: bool
    """Whether a call without a result is part of a later step's input, message for message."""
    corrected_arguments: str = ""
    """Arguments of the next call of the same tool that worked; empty without one, or where these very ones did too."""
    failed_within: tuple[Span, ...] = ()
    """Failed spans below the tool's own: a request to a service, say."""
    agent_names: frozenset[str] = frozenset()
    """Agents of the episode, in lower case: a call may ask one of them as a tool."""
    violation: str = ""
    """A violation of the offered schema that no conversion of types repairs; empty without one."""

    @cached_property
    def message(self) -> str:
        """The tool's own error message, else the result that the model was shown."""
        if self.tool is not None and self.tool.exception.message:
            return ": ".join(filter(None, self.tool.exception))
        return self.result.content if self.result is not None else ""

    @cached_property
    def error(self) -> str:
        """All that is said of the error, by the tool's span and by what the model was shown; empty without one."""
        if self.result is None or not self.result.is_error:
            return ""
        texts = [self.result.error_type, self.result.words]
        if self.tool is not None:
            texts[1:1] = [self.tool.exception.message, self.tool.status_message]
        for span in self.failed_within:
            texts += [span.error_type, *span.exception, span.status_message]
        return " ".join(dict.fromkeys(text for text in texts if text))

    @cached_property
    def status(self) -> str:
        """The status code that came with the error: of a span's, or in a JSON error envelope; empty without one."""
        if self.result is None or not self.result.is_error:
            return ""
        spans = (self.tool, *self.failed_within) if self.tool is not None else self.failed_within
        codes = (status_in_text(text) for text in (*(span.error_type for span in spans), self.result.words.lstrip()))
        return next(filter(None, codes), "")

    @cached_property
    def result_text(self) -> str:
        """The result that the model was shown, and the tool's own error message where it differs."""
        if self.result is None:
            return ""
        beside = [self.tool.exception.message or self.tool.status_message] if self.tool is not None else []
        shown = self.result.words
        return "\n".join([shown, *(text for text in beside if text and text not in shown)])

    def finding(
        self, error_class: ErrorClass, owner: FaultOwner, confidence: float, message: str = "", /, **evidence: object
    ) -> Finding:
        """Return a finding about this call; the call's arguments and result are added to ``evidence``."""
        evidence["arguments"] = self.call.arguments
        if (result := self.result) is not None:
            evidence |= {"error_type": result.error_type, "result": result.content[:500], "seen_by": result.evidence}
        if self.tool is not None and self.tool.exception.message:
            evidence["exception"] = self.tool.exception.message[:500]
        return Finding(error_class, owner, confidence, message or self.message, evidence)


def error_message(content: str, error_type: str) -> str:
    """The error's own message: frameworks put the whole call, with its arguments, before the exception's name."""
    _, separator, message = content.rpartition(f"{error_type}:") if error_type else ("", "", "")
    return message if separator else content


class Rule(Extension):
    """An attribution rule, with its options; a subclass of one of the four below says what it looks at.

    Its name is stored with each failure that it finds.
    """


class ModelCallRule(Rule):
    """Looks at one model call."""

    needs_sign: ClassVar[bool] = False
    """Whether it is silent about a call that ended in order: no error, a usual finish reason, calls of tools."""

    def find(self, step: Step) -> Finding | None:
        """Return the finding about the model call of ``step``; None without one."""
        raise NotImplementedError


class ToolCallRule(Rule):
    """Looks at one tool call."""

    needs_sign: ClassVar[bool] = False
    """Whether it is silent about a call that has a result without an error, valid arguments and an offered tool."""

    def find(self, context: ToolCallContext) -> Finding | None:
        """Return the finding about the tool call; None without one."""
        raise NotImplementedError


class EpisodeRule(Rule):
    """Looks at an episode as a whole, for what no single call shows."""

    def find(self, episode: Episode) -> Iterable[LocatedFinding]:
        """Return the findings, each with its place."""
        raise NotImplementedError


class EndingRule(Rule):
    """Looks at how an episode ended that nothing else explains; it is asked only when the outcome is a failure."""

    is_event: ClassVar[bool] = False
    """Whether it sees something that happened: then it is asked where others are open too, if tools worked since."""
    is_choice: ClassVar[bool] = False
    """Whether it sees what the policy chose to do: no failure before it excuses it, so it is asked in any case."""

    def find(self, episode: Episode, reward: float | None) -> LocatedFinding | None:
        """Return the finding about an episode and its reward; None without one."""
        raise NotImplementedError


class Rules(NamedTuple):
    """A registry. Of each kind, the first rule that sees something about a call speaks; all episode rules speak."""

    model_calls: tuple[ModelCallRule, ...]
    tool_calls: tuple[ToolCallRule, ...]
    episodes: tuple[EpisodeRule, ...]
    endings: tuple[EndingRule, ...]
