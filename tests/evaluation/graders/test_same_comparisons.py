"""A reward function and the grader of its kind decide alike."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from spanloop.converters import Options
from spanloop.converters.rewards import Exact, JsonSchema, NamedReward, Numeric, RewardFunction
from spanloop.evaluation.graders import GraderContext, SqlMatch, load_grader
from spanloop.evaluation.tasks import Task

from ...converters.converters.converters_world import OPENING, World, text, trace_id

SCHEMA = {"type": "object", "required": ["a"]}
KINDS: dict[str, tuple[Any, dict[str, str], list[str]]] = {
    "exact": ("New York", {}, ["new york!", "New  York", "York", ""]),
    "numeric": (1200, {}, ["It is 1,200.", "1200.0001", "1201", "many"]),
    "json": ("", {"schema_file": "schema.json"}, ['{"a": 1}', '```json\n{"a": null}\n```', "{}", "a"]),
    "sql": (
        "SELECT name FROM item ORDER BY length(name)",
        {"database": "shop.sqlite"},
        [
            "SELECT name FROM item ORDER BY 1 DESC",
            "SELECT name FROM item ORDER BY 1",
            "SELECT 1; SELECT 1",
            "DROP item",
        ],
    ),
}


def reward_of(kind: str, expected: Any, folder: Path) -> RewardFunction:
    match kind:
        case "exact":
            return Exact(expected={"t": expected})
        case "numeric":
            return Numeric(expected={"t": expected})
        case "json":
            return JsonSchema(json_schema=SCHEMA)
        case _:
            return SqlMatch(database=folder / "shop.sqlite", expected={"t": expected})


@pytest.mark.parametrize(("kind", "answer"), [(kind, answer) for kind, case in KINDS.items() for answer in case[2]])
def test_a_reward_and_a_grader_of_one_kind_agree(tmp_path: Path, kind: str, answer: str) -> None:
    expected, options, _ = KINDS[kind]
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    with sqlite3.connect(tmp_path / "shop.sqlite") as database:
        database.execute("CREATE TABLE item (name TEXT)")
        database.executemany("INSERT INTO item VALUES (?)", [("a",), ("bb",)])
    files = {name: str(tmp_path / value) for name, value in options.items()}
    grader = load_grader(kind, files, GraderContext(tmp_path))
    is_right = grader.grade(Task("t", {"answer": expected}, "d"), answer).is_success
    world = World()
    world.call(OPENING, text("assistant", answer), trace=trace_id("t"), attributes={"spanloop.task.id": "t"})
    functions = (NamedReward("mine", reward_of(kind, expected, tmp_path)),)
    assert (world.convert(Options(reward_functions=functions)).episodes.item(0, "reward") == 1.0) is is_right
