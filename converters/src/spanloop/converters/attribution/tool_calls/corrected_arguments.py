"""A call that a tool would not take, and took later with other arguments.

The policy's: the error speaks of what was asked for (not there, not acceptable), and a later call of the same tool with
other arguments worked, so the tool was in order and the first arguments were wrong. Stays with the tool where the very
same arguments worked later (it was the tool that changed), and where the error speaks of the tool's own state.
"""

from typing import ClassVar, Final

from spanloop.converters.enums import FaultOwner

from ...errors.failure_patterns import failure_pattern
from ..base import ErrorClass, Finding, ToolCallContext, ToolCallRule

_ABOUT_REQUEST: Final = failure_pattern("of_the_asked")


class CorrectedArguments(ToolCallRule):
    """A tool refused a call and took it later with other arguments."""

    needs_sign: ClassVar[bool] = True

    def find(self, context: ToolCallContext) -> Finding | None:
        """Return the finding; None without one."""
        result = context.result
        worked = context.corrected_arguments[:500]
        if not worked or result is None or not result.is_error or not _ABOUT_REQUEST.search(context.result_text):
            return None
        confidence = 0.7 * result.confidence
        return context.finding(ErrorClass.INVALID_ARGUMENTS, FaultOwner.POLICY, confidence, worked_later=worked)
