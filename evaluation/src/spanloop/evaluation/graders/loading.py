"""Find a grader by name: built in, out of an installed package, or from a module of the user's.

Invariant: whatever a user's grader raises or returns becomes a verdict or a `GradingError` that names it.
"""

import hashlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

from spanloop.evaluation.tasks import Task
from spanloop.evaluation.tasks.options import with_options
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.plugins import find_extension

from .base import Grader, GraderContext, GradingError
from .code import CodeGrader
from .exact import ExactGrader
from .json_match import JsonGrader
from .numeric import NumericGrader
from .reasoning_gym import ReasoningGymGrader
from .regex import RegexGrader
from .rubric import RubricGrader
from .sql import SqlGrader
from .verdict import Verdict

GROUP: Final = "spanloop.graders"
GRADERS: Final[Mapping[str, type[Grader]]] = {
    grader.name: grader
    for grader in (
        ExactGrader,
        NumericGrader,
        RegexGrader,
        JsonGrader,
        SqlGrader,
        CodeGrader,
        RubricGrader,
        ReasoningGymGrader,
    )
}
_VERSION_DIGITS: Final = 8

CustomGrader = Callable[..., Verdict | float]
"""Called with the task, the answer and the options as keywords; a boolean is a number."""


class LoadedGrader(NamedTuple):
    """A grader that is ready."""

    name: str
    version: str
    required_fields: tuple[str, ...]
    grade: Callable[[Task, str], Verdict]
    """Raises `GradingError`, or whatever a user's code raises."""


def load_grader(name: str, options: Mapping[str, str], context: GraderContext) -> LoadedGrader:
    """Return the grader that ``name`` names, with its options.

    Raises:
        ConfigurationError: There is none, an option is unknown or invalid, or something that it needs is missing.
    """
    kind = GRADERS.get(name)
    if kind is not None:
        grader = with_options(kind, options, f"grader {name!r}").bind(context)
        return LoadedGrader(grader.name, grader.version, tuple(grader.required_fields()), grader.grade)
    function = find_extension(name, group=GROUP, what="grader", built_in=dict.fromkeys(GRADERS, ""))
    if not callable(function):
        raise ConfigurationError(
            f"Grader {name!r} is {type(function).__name__}, expected a callable from task and answer to a score.",
            next_step="See docs/how-to/extend.md for the form of a grader.",
        )
    custom = cast("CustomGrader", function)

    def grade(task: Task, answer: str) -> Verdict:
        return _verdict(name, custom(task, answer, **options), answer)

    required = tuple(str(field) for field in getattr(function, "required_fields", ()))
    return LoadedGrader(name, _version(function), required, grade)


def _verdict(name: str, found: object, answer: str) -> Verdict:
    if not isinstance(found, Verdict | int | float):
        raise GradingError(f"Grader {name!r} returned {type(found).__name__}, expected a Verdict or a number.")
    try:
        if isinstance(found, Verdict):
            return Verdict.of(found.score, is_success=found.is_success, **found.evidence)
        return Verdict.of(float(found), answer=answer)
    except (ValueError, OverflowError) as error:
        raise GradingError(f"Grader {name!r}: {error}.") from error


def _version(function: Any) -> str:
    """The function's own ``version``, else a digest of its source code."""
    own = getattr(function, "version", "")
    if own:
        return str(own)
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        return ""
    return hashlib.sha256(source.encode()).hexdigest()[:_VERSION_DIGITS]
