"""Tasks out of records: ids, digests, duplicates, and records that are no task."""

import json
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloop.evaluation.tasks import (
    Rejected,
    RejectedReason,
    Task,
    TaskReading,
    TaskSelection,
    content_digest,
    read_tasks,
)
from spanloop.evaluation.tasks.placeholders import fill, placeholders
from spanloop.evaluation.tasks.task import json_value
from spanloop.foundation.errors import ConfigurationError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
    max_leaves=8,
)


def write(path: Path, *lines: object) -> str:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    return str(path)


def test_each_line_is_a_task_or_is_rejected_with_its_number_and_reason(tmp_path: Path) -> None:
    source = write(
        tmp_path / "tasks.jsonl",
        {"id": "a", "question": "1+1", "answer": "2"},
        '{"question": "half a line',
        {"id": "a", "question": "other", "answer": "3"},
        "",
        {"id": "b", "answer": "2", "question": "1+1"},
        {"id": "c", "question": "no answer", "answer": None},
        {"id": 7, "question": "seven", "answer": "7"},
        {"question": "no id", "answer": "x"},
        ["a", "list"],
        {"id": ["x"], "question": "q", "answer": "a"},
        {"id": "line\nbreak", "question": "q", "answer": "a"},
    )
    rejected: list[Rejected] = []
    reading = TaskReading(source, required=("question", "answer"), on_reject=rejected.append)
    tasks = list(reading)
    digest = content_digest({"question": "no id", "answer": "x"})
    assert [task.id for task in tasks] == ["a", "7", f"task-{digest[:12]}"]
    assert "id" not in tasks[0].fields
    assert [(each.place.rpartition(":")[2], each.reason.value) for each in rejected] == [
        ("2", "broken"),
        ("3", "duplicate_id"),
        ("5", "duplicate_content"),
        ("6", "missing_field"),
        ("9", "broken"),
        ("10", "broken"),
        ("11", "broken"),
    ]
    assert (reading.accepted, reading.rejected.total()) == (3, 7)
    assert reading.rejected == Counter(each.reason for each in rejected)
    texts = [str(each) for each in rejected]
    assert f"{source}:1" in texts[1]
    assert "'answer' is missing; the record has: answer, question" in texts[3]


@settings(max_examples=30)
@given(st.dictionaries(st.text().filter(lambda name: name != "id"), JSON, max_size=5), st.randoms())
def test_equal_content_has_an_equal_digest_whatever_its_order(fields: dict[str, object], random: st.DataObject) -> None:
    names = list(fields)
    random.shuffle(names)  # type: ignore[attr-defined]
    values = {name: json_value(fields[name]) for name in names}
    assert content_digest(values) == content_digest({name: json_value(value) for name, value in fields.items()})


def test_values_of_other_formats_become_json_or_reject_their_record() -> None:
    assert json_value({"a": [np.int64(3), np.array([1.5])], "b": Decimal("2.50"), "c": b"xy", 4: None}) == {
        "a": [3, [1.5]],
        "b": 2.5,
        "c": "eHk=",
        "4": None,
    }
    assert json_value(datetime(2026, 11, 1, tzinfo=UTC)) == "2026-11-01T00:00:00+00:00"
    for value in (float("nan"), float("inf"), object(), "\ud800"):
        with pytest.raises(ValueError, match=r"JSON|surrogates"):
            json_value(value)


def test_a_limit_takes_the_first_tasks_and_reads_no_further(tmp_path: Path) -> None:
    source = write(tmp_path / "tasks.jsonl", {"q": 1}, "broken", {"q": 2}, {"q": 3}, "broken")
    reading = TaskReading(source, selection=TaskSelection(limit=2))
    assert [task.fields["q"] for task in reading] == [1, 2]
    assert reading.rejected == {RejectedReason.BROKEN: 1}


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("nothing.jsonl", {}, "No such file"),
        ("tasks.docx", {}, "nothing says what it is"),
        ("unknown:thing", {}, "No task reader is called 'unknown'"),
        ("nothing.csv", {"delimeter": ";"}, "delimeter"),
    ],
)
def test_a_source_that_cannot_be_read_is_one_error(source: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_tasks(source, options=options)


def test_a_text_is_filled_with_fields_and_other_braces_stay() -> None:
    text = 'app.py {question} --json \'{"a": {"b": 1}}\' {{question}} {x} {}'
    assert placeholders(text) == ("question", "x")
    filled = fill(text, {"question": "who?", "x": "{question}"})
    assert filled == 'app.py who? --json \'{"a": {"b": 1}}\' {question} {question} {}'


def test_a_task_is_frozen() -> None:
    task = Task("a", {"q": 1}, "d")
    with pytest.raises(AttributeError):
        task.id = "b"  # type: ignore[misc]
