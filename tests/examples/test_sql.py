"""The SQL example: its tasks, its read-only database, its reward, and one whole attempt from spans to an episode."""

import json
import re
import sqlite3
import time
from collections import Counter
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from execution_accuracy import READ_SCHEMA, VALID_SQL, execution_reward, same_rows
from read_only_database import QueryError, ReadOnlyDatabase, only_database
from shop_database import TABLES, write_shop
from shop_questions import Split, templates
from sql_tasks import Task, read_tasks, write_lines
from sql_templates import DIFFICULTIES, difficulty_of, held_out_templates, is_ordered, template_of
from sql_tools import shown_rows
from task_sets import Tasks, demonstration, shop_tasks, source_tasks

from spanloop.store.client import Address

from ..instrumentation.support import calls
from .attempts import run_example

COUNTS: dict[Split, int] = {"train": 128, "test": 150}
TASK = Task(
    "test/0001",
    "Count the employees whose role is cook.",
    "SELECT COUNT(*) FROM employees WHERE role = 'cook'",
    "medium",
)
LITERAL = re.compile(r"'([^']*)'|\b(\d+)\b")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> ReadOnlyDatabase:
    path = tmp_path_factory.mktemp("shop") / "shop.sqlite"
    write_shop(path)
    return ReadOnlyDatabase(path)


@pytest.fixture(scope="module")
def tasks(shop: ReadOnlyDatabase) -> Tasks:
    return shop_tasks(shop, COUNTS, 0)


def values(chosen: list[Task]) -> set[str]:
    """Values in the SQL, except the 1 of LIMIT 1."""
    return {text for task in chosen for pair in LITERAL.findall(task.sql) for text in pair if text} - {"1"}


@pytest.mark.parametrize("seed", range(3))
def test_training_and_test_share_no_template_and_no_value(shop: ReadOnlyDatabase, seed: int) -> None:
    made = shop_tasks(shop, COUNTS, seed)
    train, test = made["train"], made["test"]
    assert (len(train), len(test)) == (128, 150)
    assert len({task.question for task in train + test}) == 278
    assert not {template_of(task.sql) for task in train} & {template_of(task.sql) for task in test}
    words = {word for task in train for word in template_of(task.sql).split()}
    assert all(set(template_of(task.sql).split()) <= words for task in test)
    assert values(train)
    assert not values(train) & values(test)
    assert Counter(task.difficulty for task in test) == dict.fromkeys(DIFFICULTIES, 50)


def test_one_seed_gives_one_set_of_tasks(shop: ReadOnlyDatabase, tasks: Tasks) -> None:
    assert shop_tasks(shop, COUNTS, 0) == tasks != shop_tasks(shop, COUNTS, 1)


def test_more_questions_than_there_are_is_an_error(shop: ReadOnlyDatabase) -> None:
    with pytest.raises(ValueError, match=r"test: there are not 9000 different questions; \d+ were found"):
        shop_tasks(shop, {"train": 1, "test": 9000}, 0)


def test_each_template_has_its_own_sql_and_runs(shop: ReadOnlyDatabase) -> None:
    everything = [template.sql.format(value=0) for template in templates()]
    assert len({template_of(sql) for sql in everything}) == len(everything)
    for sql in everything:
        shop.query(sql)


@pytest.mark.parametrize(
    ("sql", "template", "difficulty", "ordered"),
    [
        ("select  Name from t where a='x''y' ;", "SELECT NAME FROM T WHERE A = ?", "easy", False),
        ('SELECT a FROM t WHERE b >= 2.5 AND c="d"', "SELECT A FROM T WHERE B >= ? AND C = ?", "easy", False),
        ("SELECT COUNT(*) FROM t WHERE a<3", "SELECT COUNT ( * ) FROM T WHERE A < ?", "medium", False),
        ("SELECT a FROM t ORDER BY SUM(b) DESC", "SELECT A FROM T ORDER BY SUM ( B ) DESC", "medium", True),
        ("SELECT a FROM t, u", "SELECT A FROM T , U", "hard", False),
        ("SELECT a FROM t GROUP BY a", "SELECT A FROM T GROUP BY A", "hard", False),
        (
            "SELECT a FROM t WHERE b IN (SELECT b FROM u ORDER BY (b) LIMIT 1)",
            "SELECT A FROM T WHERE B IN ( SELECT B FROM U ORDER BY ( B ) LIMIT ? )",
            "hard",
            False,
        ),
    ],
)
def test_a_template_is_the_query_without_values(*, sql: str, template: str, difficulty: str, ordered: bool) -> None:
    assert (template_of(sql), difficulty_of(sql), is_ordered(sql)) == (template, difficulty, ordered)


def test_a_template_with_a_word_of_its_own_is_not_held_out() -> None:
    queries = [f"SELECT {column} FROM t" for column in ("a", "b", "c")] + ["SELECT a FROM t WHERE b = 1"]
    assert held_out_templates(queries, 1.0, 0) <= {"SELECT A FROM T", "SELECT B FROM T"}


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("DELETE FROM orders", "not authorized"),
        ("CREATE TEMP TABLE a (b)", "not authorized"),
        ("ATTACH 'file:{folder}/new.sqlite?mode=rwc' AS new", "not authorized"),
        ("PRAGMA query_only = 0", "not authorized"),
        ("SELECT load_extension('x')", "not authorized"),
        ("SELECT zeroblob(100000000)", "too big"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("SELECT '\ud800'", "surrogates not allowed"),
        ("SELECT salary FROM products", "no such column: salary"),
        ("SELECT a.fee FROM orders AS a, orders AS b", "more than 1000 rows"),
    ],
)
def test_a_query_cannot_do_more_than_read(shop: ReadOnlyDatabase, sql: str, error: str) -> None:
    content, files = shop.path.read_bytes(), sorted(shop.path.parent.iterdir())
    with pytest.raises(QueryError, match=error):
        shop.query(sql.replace("{folder}", str(shop.path.parent)))
    assert (shop.path.read_bytes(), sorted(shop.path.parent.iterdir())) == (content, files)


def test_a_query_that_does_not_end_is_stopped(shop: ReadOnlyDatabase) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT COUNT(*) FROM n"
    started_s = time.monotonic()
    with pytest.raises(QueryError, match="interrupted"):
        ReadOnlyDatabase(shop.path, timeout_s=0.2).query(endless)
    assert time.monotonic() - started_s < 10


def test_the_schema_has_the_columns_of_the_tables_that_are_named(shop: ReadOnlyDatabase) -> None:
    both = shop.schema('Orders, "employees"')
    assert both == "orders(customer, product, quantity, fee)\nemployees(name, role, city, salary, age)"
    for wrong in ("planets", "", "orders, planets", "orders;"):
        with pytest.raises(
            QueryError, match=r"no such table: .*; the tables are products, employees, customers, orders"
        ):
            shop.schema(wrong)
    assert [*shop.columns] == [table.name for table in TABLES]


def test_a_database_that_is_not_there_or_is_none_is_an_error(shop: ReadOnlyDatabase, tmp_path: Path) -> None:
    assert only_database(shop.path.parent) == shop.path
    with pytest.raises(FileNotFoundError, match=r"0 files \*\.sqlite"):
        only_database(tmp_path)
    (tmp_path / "text.sqlite").write_text("no database " * 100)
    for name in ("text.sqlite", "missing.sqlite"):
        with pytest.raises(QueryError, match=name):
            ReadOnlyDatabase(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["text.sqlite"]


def test_the_model_reads_a_few_rows() -> None:
    assert shown_rows([("a", 1), ("b", None)]) == "a | 1\nb | None"
    assert shown_rows([(number,) for number in range(7)]) == "0\n1\n2\n3\n4\nand 2 more"
    assert shown_rows([]) == "no rows"


def test_only_the_same_rows_earn_the_whole_reward() -> None:
    sql, expected = "SELECT a, b FROM t", [("x", 1), ("y", 2), ("y", 2)]
    assert execution_reward(expected, [("y", 2.0), ("x", 1), ("y", 2)], sql, read_schema=True) == 1.0
    for wrong in ([("x", 1), ("y", 2)], [(1, "x"), (2, "y"), (2, "y")], [("x", "1"), ("y", 2), ("y", 2)], []):
        assert execution_reward(expected, wrong, sql, read_schema=True) == VALID_SQL < 0.5
    assert execution_reward(expected, None, sql, read_schema=True) == READ_SCHEMA < VALID_SQL
    assert execution_reward(expected, None, sql, read_schema=False) == 0.0
    in_order = f"{sql} ORDER BY a"
    assert execution_reward(expected, expected[::-1], in_order, read_schema=True) == VALID_SQL
    assert same_rows([(0.1 + 0.2, None)], [(0.3, None)], in_order=True)


def test_tasks_survive_their_file_and_other_lines_get_id_and_difficulty(tmp_path: Path) -> None:
    path = tmp_path / "dev.jsonl"
    write_lines(path, [TASK, {"question": "how many", "sql": "SELECT COUNT(*) FROM a"}])
    assert read_tasks(path) == [TASK, Task("dev/0002", "how many", "SELECT COUNT(*) FROM a", "easy")]
    for line in ('{"question": 1}', "[]", "{"):
        path.write_text(f"{json.dumps({'question': 'a', 'sql': 'b'})}\n{line}\n")
        with pytest.raises(ValueError, match=r"dev\.jsonl, line 2: "):
            read_tasks(path)


def test_questions_of_another_folder_are_split_by_template(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(tmp_path / "lakes.sqlite")) as connection, connection:
        connection.execute("CREATE TABLE Lake (name TEXT, area INTEGER, depth INTEGER)")
        connection.executemany("INSERT INTO Lake VALUES (?, ?, ?)", [("a", 1, 7), ("b", 2, 8), ("c", 3, 9)])
    questions = [
        {"question": f"{column} of {name}", "sql": f"SELECT {function}{column}) FROM LAKE WHERE NAME = '{name}'"}
        for column in ("area", "depth")
        for function in ("MAX(", "MIN(", "SUM(", "AVG(")
        for name in ("a", "b", "z")
    ]
    write_lines(tmp_path / "train.jsonl", questions[:20])
    write_lines(tmp_path / "dev.jsonl", [*questions[20:], {"question": "broken", "sql": "SELECT"}])
    database = ReadOnlyDatabase(only_database(tmp_path))
    made = source_tasks(tmp_path, database, COUNTS, 0)
    assert capsys.readouterr().err == "9 of 25 tasks are left out: their SQL has no result\n"
    assert len(made["train"]) + len(made["test"]) == 16
    assert len({template_of(task.sql) for task in made["test"]}) == 2
    assert not {template_of(task.sql) for task in made["train"]} & {template_of(task.sql) for task in made["test"]}
    assert all(task.id.startswith("train/") for task in made["train"])
    messages = demonstration(database, made["train"][0])["messages"]
    assert messages[-2]["content"] == "Lake(name, area, depth)"


@pytest.mark.usefixtures("store")
def test_whole_attempts_become_episodes_with_their_rewards(
    address: Address, shop: ReadOnlyDatabase, tmp_path: Path
) -> None:
    no_object = calls("query", {}, "call_4")
    no_object["tool_calls"][0]["function"]["arguments"] = '"SELECT 1"'
    script = (
        calls("schema", {"tables": "staff"}, "call_1"),
        calls("schema", {"tables": "employees"}, "call_2"),
        calls("query", {"sql": TASK.sql}, "call_3"),
        no_object,
    )
    ran = run_example(
        "sql",
        "answer",
        tasks=[asdict(TASK), asdict(replace(TASK, id="test/0002"))],
        script=script,
        address=address,
        data_dir=tmp_path,
        variables={"SQL_DATABASE": str(shop.path)},
    )
    assert (ran.errors, ran.answers) == ([], [str(shop.query(TASK.sql)), "None"])
    steps = ran.transitions.sort("task_id", "step").select(
        "task_id", "step", "reward", "tool_error_count", "error_class", "fault_owner"
    )
    assert steps.rows() == [
        (TASK.id, 0, 1.0, 1, "invalid_arguments", "policy"),
        (TASK.id, 1, 1.0, 0, "", ""),
        (TASK.id, 2, 1.0, 0, "", ""),
        ("test/0002", 0, 0.0, 0, "invalid_arguments", "policy"),
    ]
    assert ran.transitions["episode_id"].n_unique() == 2
    # Without the failed call and its error, the last prompt is the demonstration's.
    demonstrated, sent = demonstration(shop, TASK), ran.requests[2]
    assert spoken(sent["messages"][:-4] + sent["messages"][-2:]) == spoken(demonstrated["messages"][:-1])
    assert sent["tools"] == demonstrated["tools"]


def spoken(messages: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return what the chat template reads of messages."""
    return [
        (
            message["role"],
            message["content"] or "",
            [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", ())],
        )
        for message in messages
    ]
