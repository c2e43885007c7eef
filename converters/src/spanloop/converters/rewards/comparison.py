"""Compare an answer with the expected one: as text, as a number, as JSON.

Reward functions and graders share these comparisons, so an answer is right for both or for neither. Nothing here knows
attempts, tasks or scores.
"""

import json
import re
from collections.abc import Mapping, Sequence
from math import isclose
from typing import Any, Final, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from spanloop.foundation.errors import ConfigurationError
from spanloop.messages import parse_json

_NUMBER: Final = re.compile(r"[-+\u2212]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?")
_FENCE: Final = re.compile(r"```\w*\s*\n(.*?)```", re.DOTALL)

RELATIVE_TOLERANCE: Final = 1e-6
ABSOLUTE_TOLERANCE: Final = 1e-9


def same_text(text: str, expected: str | Sequence[str]) -> bool:
    """Return whether ``text`` is the expected text, or one of several.

    Case, outer punctuation and the amount of white space do not count.
    """
    texts = [expected] if isinstance(expected, str) else expected
    return _normalised(text) in map(_normalised, texts)


def _normalised(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip(" \t\n.,;:!?\"'`*").casefold()


def last_number(text: str) -> float | None:
    """Return the last number in ``text``; commas between groups of three digits do not count."""
    numbers = _NUMBER.findall(text)
    return float(numbers[-1].replace(",", "").replace("\u2212", "-")) if numbers else None


def same_number(
    number: float | None, expected: float, relative: float = RELATIVE_TOLERANCE, absolute: float = ABSOLUTE_TOLERANCE
) -> bool:
    """Return whether two numbers differ by no more than the larger tolerance; None is no number and never the same."""
    return number is not None and isclose(number, expected, rel_tol=relative, abs_tol=absolute)


def fenced(text: str) -> str:
    """Return the content of the last code fence of ``text``; the whole text without one."""
    fences: list[str] = _FENCE.findall(text)
    return (fences[-1] if fences else text).strip()


def answered_json(answer: str) -> object:
    """Return the JSON value of an answer or of its last code fence.

    Raises:
        MalformedMessagesError: It is not JSON.
    """
    return parse_json(fenced(answer))


class AnswerSchema:
    """A JSON Schema (2020-12) for answers.

    Raises:
        ConfigurationError: The schema is not valid.
    """

    def __init__(self, schema: object) -> None:
        """Check the schema: an object, or a boolean that allows every value or none."""
        plain: Any = dict(cast("Mapping[str, object]", schema)) if isinstance(schema, Mapping) else schema
        try:
            Draft202012Validator.check_schema(plain)
        except SchemaError as error:
            raise ConfigurationError(
                f"The JSON Schema of an answer is not valid: {error.message}.",
                next_step="Write it in JSON Schema 2020-12.",
            ) from error
        self._validator: Any = Draft202012Validator(plain)

    def problem(self, value: object) -> str:
        """Return the place and the reason why ``value`` does not satisfy the schema; empty when it does."""
        error = next(iter(self._validator.iter_errors(value)), None)
        return "" if error is None else f"{error.json_path}: {error.message}"


def json_difference(actual: object, expected: object, *, subset: bool = False, path: str = "$") -> str:
    """Return the first difference of two JSON values; empty when they are the same.

    Integers are compared exactly, other numbers to nine digits. ``subset`` lets objects of ``actual`` have more keys.
    """
    match actual, expected:
        case bool(), bool():
            is_same = actual is expected
        case (int() | float(), int() | float()) if not isinstance(actual, bool) and not isinstance(expected, bool):
            both_integers = isinstance(actual, int) and isinstance(expected, int)
            is_same = actual == expected if both_integers else same_number(actual, expected, 1e-9, 1e-12)
        case dict(), dict():
            return _object_difference(
                cast("dict[str, object]", actual), cast("dict[str, object]", expected), subset=subset, path=path
            )
        case list(), list() if len(cast("list[object]", actual)) == len(cast("list[object]", expected)):
            pairs = enumerate(zip(cast("list[object]", actual), cast("list[object]", expected), strict=True))
            parts = (json_difference(a, b, subset=subset, path=f"{path}[{index}]") for index, (a, b) in pairs)
            return next((part for part in parts if part), "")
        case _:
            is_same = type(actual) is type(expected) and actual == expected
    return "" if is_same else f"{path}: {text_of(actual):.80}, expected {text_of(expected):.80}"


def _object_difference(actual: dict[str, object], expected: dict[str, object], *, subset: bool, path: str) -> str:
    for name in [*expected, *(name for name in actual if name not in expected and not subset)]:
        if name not in actual or name not in expected:
            return f"{path}.{name}: {'missing' if name not in actual else 'not expected'}"
        if difference := json_difference(actual[name], expected[name], subset=subset, path=f"{path}.{name}"):
            return difference
    return ""


def text_of(value: object) -> str:
    """Return a JSON value as text: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
