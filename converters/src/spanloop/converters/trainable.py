"""Whether a step may be trained on, and why not.

Invariant: the first reason in the order below counts, and its detail names the span and, where one is to blame, the
attribute. A step without captured tokens may be trained on (offline, from its text).
"""

from spanloop.semconv.enums import FaultOwner, UntrainableReason

from .attribution import Failure, is_incomplete
from .spans import Problem
from .steps import Step


def untrainable(step: Step, decided_by: Failure | None) -> Problem | None:
    """Why ``step`` must not be trained on; None when it may.

    Args:
        step: The step.
        decided_by: The failure that decided its episode; an environment's or harness's fault masks all its steps.
    """
    span, capture = step.span, step.capture
    if span.has_failed:
        said = span.exception.type or span.error_type or span.status_message
        return Problem(UntrainableReason.REQUEST_FAILED, f"span {span.span_id}, attribute error.type: {said}")
    if is_incomplete(step):
        where = f"span {span.span_id}, attribute gen_ai.response.finish_reasons"
        detail = f"{where}: {span.finish_reason!r}, expected a finish reason"
        is_captured = capture.problem is not None and capture.problem.reason is UntrainableReason.INCOMPLETE_STREAM
        return capture.problem if is_captured else Problem(UntrainableReason.INCOMPLETE_STREAM, detail)
    if span.problem is not None:
        return span.problem
    if capture.problem is not None:
        return capture.problem
    if decided_by is not None and decided_by.finding.owner in {FaultOwner.ENVIRONMENT, FaultOwner.HARNESS}:
        fault = decided_by.finding
        detail = f"span {decided_by.span_id}: {fault.error_class} ({fault.owner}) decided the episode"
        return Problem(UntrainableReason.ENVIRONMENT_FAULT, detail)
    return None
