"""Rewards of 1 or 0 for an answer that is what was expected: as text, as a number, or in form.

Expected answers are given by task id; a task without one gets no reward. Comparing text ignores case, surrounding
punctuation and the amount of white space; comparing numbers takes the last number of the answer.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isclose
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from spanloop.foundation.errors import ConfigurationError
from spanloop.messages import MalformedMessagesError, parse_json

from .attempt import Attempt, Judgement

_NUMBER: Final = re.compile(r"[-+\u2212]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?")
_FENCE: Final = re.compile(r"```\w*\s*\n(.*?)```", re.DOTALL)


def same_text(got: str, expected: str) -> bool:
    """Whether two answers say the same, but for case, outer punctuation and white space."""
    return _plain(got) == _plain(expected)


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip(" \t\n.,;:!?\"'`*").casefold()


def last_number(text: str) -> float | None:
    """The last number in ``text``; commas between groups of three digits do not count."""
    found = _NUMBER.findall(text)
    return float(found[-1].replace(",", "").replace("\u2212", "-")) if found else None


def fenced(text: str) -> str:
    """What stands in the last code fence of ``text``; the whole text without one."""
    found: list[str] = _FENCE.findall(text)
    return (found[-1] if found else text).strip()


@dataclass(frozen=True)
class Exact:
    """1 when the answer is the expected text."""

    expected: Mapping[str, str]
    """Task id → answer."""

    def __call__(self, attempt: Attempt) -> float | None:
        """The reward of one attempt."""
        wanted = self.expected.get(attempt.task_id)
        return None if wanted is None else float(same_text(attempt.answer, wanted))


@dataclass(frozen=True)
class Numeric:
    """1 when the answer's last number is the expected one, within a tolerance."""

    expected: Mapping[str, float]
    """Task id → number."""
    relative: float = 1e-6
    absolute: float = 1e-9

    def __call__(self, attempt: Attempt) -> float | None:
        """The reward of one attempt."""
        wanted = self.expected.get(attempt.task_id)
        if wanted is None:
            return None
        got = last_number(attempt.answer)
        return float(got is not None and isclose(got, wanted, rel_tol=self.relative, abs_tol=self.absolute))


@dataclass(frozen=True)
class JsonSchema:
    """1 when the answer (or its last code fence) is JSON that the schema allows, by JSON Schema 2020-12.

    Raises:
        ConfigurationError: When the schema is none.
    """

    schema: Mapping[str, object]

    def __post_init__(self) -> None:
        try:
            Draft202012Validator.check_schema(dict(self.schema))
        except SchemaError as error:
            raise ConfigurationError(
                f"The JSON schema of a reward is not valid: {error.message}.",
                next_step="Write it by JSON Schema 2020-12.",
            ) from error

    @cached_property
    def _validator(self) -> Any:
        return Draft202012Validator(dict(self.schema))

    def __call__(self, attempt: Attempt) -> Judgement:
        """The reward of one attempt: half of it for JSON at all."""
        try:
            found = parse_json(fenced(attempt.answer))
        except MalformedMessagesError:
            return Judgement(0.0, {"json": 0.0, "schema": 0.0})
        fits = bool(self._validator.is_valid(found))
        return Judgement(0.5 + 0.5 * fits, {"json": 0.5, "schema": 0.5 * fits})
