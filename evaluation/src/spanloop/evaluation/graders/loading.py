"""Find a grader by name: built in, out of an installed package, or from a module of the user's.

Invariant: whatever a grader returns becomes a verdict or a `GradingError` that names it.
"""

import hashlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from spanloop.converters.rewards import Attempt
from spanloop.evaluation.tasks import Task
from spanloop.foundation.plugins import ExtensionPoint, adapt_callable, split_reference

from .base import Grader, GraderContext, GradingError
from .verdict import Verdict

_VERSION_DIGITS: Final = 8
_HERE: Final = "spanloop.evaluation.graders"


def grader_of_callable(function: Callable[..., object], what: str) -> type[Grader]:
    """Return the class of a callable from task and answer to a verdict or a number.

    Its attribute ``version`` is that of the class, and ``required_fields`` names fields that each task needs.
    """
    required = tuple(str(field) for field in getattr(function, "required_fields", ()))
    version = str(getattr(function, "version", "")) or _digest_of_source(function)

    def required_fields(_: Grader) -> tuple[str, ...]:
        return required

    attributes = {"version": version, "required_fields": required_fields}
    return adapt_callable(
        function, Grader, method="grade", arguments=("task", "answer"), what=what, attributes=attributes
    )


GRADER_POINT: Final = ExtensionPoint[Grader](
    what="grader",
    group="spanloop.graders",
    base=Grader,
    built_in={
        "exact": f"{_HERE}.exact:ExactGrader",
        "numeric": f"{_HERE}.numeric:NumericGrader",
        "regex": f"{_HERE}.regex:RegexGrader",
        "json": f"{_HERE}.json_match:JsonGrader",
        "sql": f"{_HERE}.sql:SqlGrader",
        "code": f"{_HERE}.code:CodeGrader",
        "agent": f"{_HERE}.agent:AgentGrader",
        "rubric": f"{_HERE}.rubric:RubricGrader",
        "reasoning-gym": f"{_HERE}.reasoning_gym:ReasoningGymGrader",
    },
    adapt=grader_of_callable,
)


class LoadedGrader(NamedTuple):
    """A grader that is ready."""

    name: str
    version: str
    required_fields: tuple[str, ...]
    grade: Callable[[Task, str], Verdict]
    """Raises `GradingError`, or whatever a user's code raises."""
    grade_attempt: Callable[[Task, str, Attempt], Verdict] | None = None
    """The same with the attempt's spans; None for a grader that needs the answer alone."""


def load_grader(reference: str, options: Mapping[str, str], context: GraderContext) -> LoadedGrader:
    """Return the grader that ``reference`` names, with its options.

    Raises:
        ConfigurationError: There is none, an option is unknown, missing or invalid, or something that it needs is
            missing.
    """
    name, _ = split_reference(reference)
    grader = GRADER_POINT.find(reference, options).bind(context)

    def grade(task: Task, answer: str) -> Verdict:
        return _verdict(name, grader.grade(task, answer), answer)

    def grade_attempt(task: Task, answer: str, attempt: Attempt) -> Verdict:
        return _verdict(name, grader.grade_attempt(task, answer, attempt), answer)

    version = grader.version or _digest_of_source(type(grader))
    with_attempt = grade_attempt if grader.needs_attempt else None
    return LoadedGrader(name, version, tuple(grader.required_fields()), grade, with_attempt)


def _verdict(name: str, result: object, answer: str) -> Verdict:
    if not isinstance(result, Verdict | int | float):
        raise GradingError(f"Grader {name!r} returned {type(result).__name__}, expected a Verdict or a number.")
    try:
        if isinstance(result, Verdict):
            verdict = Verdict.of(result.score, is_success=result.is_success, **result.evidence)
        else:
            verdict = Verdict.of(float(result), answer=answer)
    except (ValueError, OverflowError) as error:
        raise GradingError(f"Grader {name!r}: {error}.") from error
    if verdict.evidence.get("reason"):
        return verdict
    outcome = "a success" if verdict.is_success else "a failure"
    reason = f"Grader {name!r} gave {verdict.score:g}, {outcome}."
    return verdict._replace(evidence={"reason": reason, **verdict.evidence})


def _digest_of_source(defined: Any) -> str:
    try:
        source = inspect.getsource(defined)
    except (OSError, TypeError):
        return ""
    return hashlib.sha256(source.encode()).hexdigest()[:_VERSION_DIGITS]
