"""The answer is the expected JSON value, or JSON that a schema allows."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar, cast

from pydantic import JsonValue, field_validator

from spanloop.converters.rewards.comparison import AnswerSchema, answered_json, json_difference
from spanloop.evaluation.tasks import Task
from spanloop.foundation.errors import ConfigurationError
from spanloop.messages import MalformedMessagesError, parse_json

from .base import Grader
from .verdict import Verdict


class JsonGrader(Grader):
    """Compares JSON values."""

    version: ClassVar[str] = "2"
    summary: ClassVar[str] = (
        "1 when the answer (or its last code fence) is the expected JSON value: keys in any order, integers "
        "exactly, other numbers to nine digits. With a schema, 1 when the schema allows it."
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
                _read_schema(path)
            except (OSError, ValueError, ConfigurationError) as error:
                raise ValueError(f"{path} is no JSON Schema: {error}") from error
        return path

    def required_fields(self) -> Sequence[str]:
        """Return the fields that each task needs."""
        return () if self.schema_file else (self.expected,)

    @cached_property
    def _schema(self) -> AnswerSchema | None:
        return None if self.schema_file is None else _read_schema(self.schema_file)

    def grade(self, task: Task, answer: str) -> Verdict:
        """Return 1 for the expected value, else 0 with the place of the first difference."""
        try:
            got = answered_json(answer)
        except MalformedMessagesError as error:
            return Verdict.of(0.0, answer=answer, difference=f"the answer is not JSON: {error}")
        if self._schema is not None:
            problem = self._schema.problem(got)
            return Verdict.of(not problem, answer=answer, difference=problem)
        expected = task.fields[self.expected]
        if isinstance(expected, str):
            expected = _parsed_or_text(expected)
        difference = json_difference(got, expected, subset=self.subset)
        return Verdict.of(not difference, answer=answer, expected=expected, difference=difference)


def _parsed_or_text(text: str) -> JsonValue:
    try:
        return cast("JsonValue", parse_json(text))
    except MalformedMessagesError:
        return text


def _read_schema(path: Path) -> AnswerSchema:
    return AnswerSchema(json.loads(path.read_text(encoding="utf-8")))
