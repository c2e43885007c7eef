"""A model call that answered, but not to its end: the stream broke, the limit cut it, or a filter did."""

from typing import Final

from spanloop.semconv.enums import FaultOwner, UntrainableReason

from ..finish_reasons import CONTENT_FILTER, LENGTH
from ..steps import Step
from .base import ErrorClass, Finding, ModelCallRule


def is_incomplete(step: Step) -> bool:
    """Whether the answer broke off: a stream without a finish reason, one that says so, or a capture that saw it."""
    span = step.span
    if span.finish_reason == "error" or (span.is_streaming and not span.finish_reason and not span.has_failed):
        return True
    problem = step.capture.problem
    return problem is not None and problem.reason is UntrainableReason.INCOMPLETE_STREAM


def _incomplete(step: Step) -> Finding | None:
    if not is_incomplete(step):
        return None
    said = step.span.output[0].text if step.span.output else ""
    return Finding(
        ErrorClass.INCOMPLETE_STREAM,
        FaultOwner.ENVIRONMENT,
        0.9,
        "the stream broke off before a finish reason",
        {"finish_reason": step.span.finish_reason, "text_so_far": said[-200:]},
    )


def _truncated(step: Step) -> Finding | None:
    if step.span.finish_reason != LENGTH:
        return None
    limit = dict(step.span.sampling).get("max_tokens", "")
    evidence = {"finish_reason": LENGTH, "max_tokens": limit, "output_tokens": str(step.span.output_tokens)}
    return Finding(ErrorClass.TRUNCATED_OUTPUT, FaultOwner.POLICY, 0.6, "the output hit its token limit", evidence)


def _filtered(step: Step) -> Finding | None:
    if step.span.finish_reason != CONTENT_FILTER:
        return None
    evidence = {"finish_reason": CONTENT_FILTER}
    return Finding(ErrorClass.CONTENT_FILTER, FaultOwner.POLICY, 0.5, "a content filter cut the output", evidence)


INCOMPLETE_STREAM: Final = ModelCallRule("incomplete_stream", _incomplete)
TRUNCATED_OUTPUT: Final = ModelCallRule("truncated_output", _truncated)
FILTERED_OUTPUT: Final = ModelCallRule("filtered_output", _filtered)
