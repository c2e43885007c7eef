"""A tool that was called properly and failed: its surroundings are to blame when the text says so, else the tool.

Three kinds are the policy's all the same: code of its own that does not run, an action that a working tool says
cannot be done, and what ``bad_call`` and ``hallucinated_arguments`` see.
"""

from typing import ClassVar, Final

from spanloop.converters.enums import FaultOwner

from ...errors.error_texts import CALL_FAILED
from ...errors.failure_patterns import failure_pattern
from ..base import ErrorClass, Finding, ToolCallContext, ToolCallRule
from ..environment import environment_fault, was_stopped
from .hallucinated_arguments import names_value
from .running_code import runs_code

_BROKEN_CODE: Final = failure_pattern("broken_code")

_IMPOSSIBLE: Final = failure_pattern("impossible_action")
_RAISED: Final = failure_pattern("raised")


class ToolEnvironment(ToolCallRule):
    """A tool failed because of its surroundings: a timeout, a limit, a service, missing rights."""

    needs_sign: ClassVar[bool] = True

    def find(self, context: ToolCallContext) -> Finding | None:
        """Return the finding; None without one."""
        result = context.result
        if result is None or not result.is_error:
            return None
        if was_stopped(context.error):
            return context.finding(ErrorClass.CANCELLED, FaultOwner.USER, 0.7)
        error_class = environment_fault(context.error, context.status)
        if error_class is None:
            return None
        return context.finding(error_class, FaultOwner.ENVIRONMENT, 0.9 * result.confidence)


class BrokenCode(ToolCallRule):
    """Code that the policy wrote raised in the tool that ran it."""

    needs_sign: ClassVar[bool] = True

    def find(self, context: ToolCallContext) -> Finding | None:
        """Code that the policy wrote raised in the tool that ran it."""
        result, call = context.result, context.call
        if result is None or not result.is_error or not runs_code(call) or not _BROKEN_CODE.search(context.error):
            return None
        return context.finding(ErrorClass.INVALID_CODE, FaultOwner.POLICY, 0.85 * result.confidence)


class ImpossibleAction(ToolCallRule):
    """A tool that works says in words that the action cannot be done."""

    needs_sign: ClassVar[bool] = True

    def find(self, context: ToolCallContext) -> Finding | None:
        """The tool did not break: it says in words, without an exception, that the action cannot be done."""
        result = context.result
        if result is None or not result.is_error or result.evidence == "span status" or result.error_type:
            return None
        begun = CALL_FAILED.match(result.words)  # "the tool cannot be used" is no word about the action
        words = result.words[begun.end() :] if begun else result.words
        if _RAISED.search(words) or not _IMPOSSIBLE.search(words):
            return None
        return context.finding(ErrorClass.REFUSED_ACTION, FaultOwner.POLICY, 0.65 * result.confidence)


class ToolRaised(ToolCallRule):
    """A tool failed, and no other rule explains it."""

    needs_sign: ClassVar[bool] = True

    def find(self, context: ToolCallContext) -> Finding | None:
        """The tool's where it shows that it raised, else nobody's: that there was an error does not show whose."""
        result = context.result
        if result is None or not result.is_error:
            return None
        is_tool = result.evidence == "span status" or _RAISED.search(context.error) is not None
        is_tool |= CALL_FAILED.search(context.error) is not None and not names_value(context)
        owner = FaultOwner.TOOL if is_tool else FaultOwner.UNKNOWN
        return context.finding(ErrorClass.TOOL_ERROR, owner, 0.7 * result.confidence)


class Unanswered(ToolCallRule):
    """A tool call was never answered, and the model was asked again."""

    needs_sign: ClassVar[bool] = True

    def find(self, context: ToolCallContext) -> Finding | None:
        """The model was asked again without an answer to its call: whoever runs the tools lost it."""
        if context.result is not None or not context.is_continued:
            return None
        message = f"nobody answered the call of {context.call.name!r}"
        return context.finding(
            ErrorClass.MISSING_RESULT, FaultOwner.HARNESS, 0.6, message, tool_call_id=context.call.id
        )
