"""Tasks in files: a question, the right SQL, and its difficulty, one JSON object a line.

Invariant: a line without ``id`` and ``difficulty`` is a task too; they come from its place and from its SQL.
"""

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from read_only_database import QueryError, ReadOnlyDatabase
from sql_templates import difficulty_of


@dataclass(frozen=True, slots=True)
class Task:
    """One question and the SQL that answers it."""

    id: str
    question: str
    sql: str
    difficulty: str


def read_tasks(path: Path) -> list[Task]:
    """Read a file of tasks.

    Raises:
        ValueError: A line is no task.
    """
    return [_task(path, number, line) for number, line in enumerate(path.read_text("utf-8").splitlines(), 1) if line]


def tasks_with_result(tasks: list[Task], database: ReadOnlyDatabase) -> list[Task]:
    """Return the tasks whose SQL has a result; print how many have none."""
    usable = [task for task in tasks if has_result(database, task.sql)]
    if len(usable) < len(tasks):
        left_out = len(tasks) - len(usable)
        print(f"{left_out} of {len(tasks)} tasks are left out: their SQL has no result", file=sys.stderr)
    return usable


def has_result(database: ReadOnlyDatabase, sql: str) -> bool:
    """Return whether a query runs and returns more than nothing: a wrong query, too, can return no row, null or 0."""
    try:
        rows = database.query(sql)
    except QueryError:
        return False
    return any(value not in {None, 0} for row in rows for value in row)


def write_lines(path: Path, objects: Iterable[Any]) -> None:
    """Write one JSON object a line; dataclasses are objects of their fields."""
    lines = [json.dumps(each if isinstance(each, dict) else asdict(each)) for each in objects]
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def _task(path: Path, number: int, line: str) -> Task:
    where = f"{path}, line {number}"
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    match fields:
        case {"question": str(question), "sql": str(sql), **rest}:
            task_id, difficulty = rest.get("id", f"{path.stem}/{number:04d}"), rest.get("difficulty")
            return Task(str(task_id), question, sql, str(difficulty or difficulty_of(sql)))
        case _:
            raise ValueError(f'{where}: got {line[:100]}, expected an object with "question" and "sql"')
