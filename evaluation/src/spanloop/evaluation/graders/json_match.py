"""The answer is the expected JSON value, or JSON that a schema allows."""

import json
from collections.abc import Sequence
from functools import cached_property
from math import isclose
from pathlib import Path
from typing import Any, ClassVar, Final, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from pydantic import JsonValue, field_validator

from spanloop.converters.rewards.match import fenced
from spanloop.evaluation.tasks import Task
from spanloop.messages import MalformedMessagesError, parse_json

from .base import Grader, text_of
from .verdict import Verdict

_ROOT: Final = "$"


class JsonGrader(Grader):
    """Compares JSON values."""

    name: ClassVar[str] = "json"
    version: ClassVar[str] = "1"
    summary: ClassVar[str] = (
        "1 when the answer (or its last code fence) is the expected JSON value: keys in any order, numbers to nine "
        "digits. With a schema, 1 when the schema allows it."
    )

    expected: str = "answer"
    """The task's field that holds the expected value, as JSON or as its text. Not needed with a schema."""
    subset: bool = False
    """Whether the answer's objects may have more keys than the expected ones."""
    schema_file: Path | None = None
    """A JSON Schema (2020-12) that the answer must satisfy, instead of a comparison."""

    @field_validator("schema_file")
    @classmethod
    def _check_schema(cls, path: Path | None) -> Path | None:
        if path is not None:
            try:
                Draft202012Validator.check_schema(json.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError, SchemaError) as error:
                raise ValueError(f"{path} is no JSON Schema: {getattr(error, 'message', error)}") from error
        return path

    def required_fields(self) -> Sequence[str]:
        """Return the fields that each task needs."""
        return () if self.schema_file else (self.expected,)

    @cached_property
    def _validator(self) -> Any:
        return Draft202012Validator(json.loads(cast("Path", self.schema_file).read_text(encoding="utf-8")))

    def grade(self, task: Task, answer: str) -> Verdict:
        """Return 1 for the expected value, else 0 with the place of the first difference."""
        try:
            got = cast("JsonValue", parse_json(fenced(answer)))
        except MalformedMessagesError as error:
            return Verdict.of(0.0, answer=answer, difference=f"the answer is not JSON: {error}")
        if self.schema_file is not None:
            problem = next(iter(self._validator.iter_errors(got)), None)
            difference = "" if problem is None else f"{problem.json_path}: {problem.message}"
            return Verdict.of(problem is None, answer=answer, difference=difference)
        expected = task.fields[self.expected]
        if isinstance(expected, str):
            expected = _parsed_or_text(expected)
        difference = _difference(got, expected, _ROOT, subset=self.subset)
        return Verdict.of(not difference, answer=answer, expected=expected, difference=difference)


def _parsed_or_text(text: str) -> JsonValue:
    try:
        return cast("JsonValue", parse_json(text))
    except MalformedMessagesError:
        return text


def _difference(got: JsonValue, expected: JsonValue, path: str, *, subset: bool) -> str:
    """Return where the values differ first; empty when they are the same."""
    match got, expected:
        case bool(), bool():
            is_same = got is expected
        case (int() | float(), int() | float()) if not isinstance(got, bool) and not isinstance(expected, bool):
            is_same = isclose(got, expected, rel_tol=1e-9, abs_tol=1e-12)
        case dict(), dict():
            names = [*expected, *(name for name in got if name not in expected and not subset)]
            for name in names:
                if name not in got or name not in expected:
                    return f"{path}.{name}: {'missing' if name not in got else 'not expected'}"
                if found := _difference(got[name], expected[name], f"{path}.{name}", subset=subset):
                    return found
            return ""
        case list(), list() if len(got) == len(expected):
            pairs = zip(got, expected, strict=True)
            parts = (_difference(a, b, f"{path}[{at}]", subset=subset) for at, (a, b) in enumerate(pairs))
            return next((part for part in parts if part), "")
        case _:
            is_same = type(got) is type(expected) and got == expected
    return "" if is_same else f"{path}: {text_of(got):.80}, expected {text_of(expected):.80}"
