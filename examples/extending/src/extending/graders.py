"""A grader: the answer begins with what is expected."""

from spanloop.evaluation.graders import Verdict
from spanloop.evaluation.tasks import Task


def starts_with(task: Task, answer: str, least: str = "1") -> Verdict:
    """Score the share of the expected text with which the answer begins; a success from ``least`` on."""
    expected = str(task.fields["answer"])
    common = next((at for at, pair in enumerate(zip(expected, answer, strict=False)) if pair[0] != pair[1]), None)
    length = min(len(expected), len(answer)) if common is None else common
    score = length / max(len(expected), 1)
    return Verdict.of(score, is_success=score >= float(least), expected=expected, answer=answer)


starts_with.version = "1"  # type: ignore[attr-defined] # stored with each verdict
starts_with.required_fields = ("answer",)  # type: ignore[attr-defined]
