"""The tasks of a run and whether it is complete, read from its ledger while another process may have it open."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from spanloop.evaluation.tasks import Task


def tasks_of_run(folder: Path) -> Iterator[Task]:
    """Yield the tasks of the run in a folder; none when there is no such run on this machine."""
    for task_id, digest, fields in _rows(folder, "SELECT task_id, digest, fields FROM tasks ORDER BY number"):
        yield Task(str(task_id), json.loads(str(fields)), str(digest))


def is_complete(folder: Path, attempts: int) -> bool:
    """Whether each task of the run has as many attempts that are stored, and graded where the grader could."""
    done = "state = 'stored' AND grading_error = '' AND attempt <= ?"
    counted = f"SELECT (SELECT count(*) FROM tasks), count(*) FROM attempts WHERE {done}"  # noqa: S608 - a constant
    found = list(_rows(folder, counted, attempts))
    return bool(found) and 0 < int(str(found[0][0])) * attempts == int(str(found[0][1]))


def _rows(folder: Path, statement: str, *values: int) -> Iterator[tuple[object, ...]]:
    path = folder / "ledger.db"
    if not path.is_file():
        return
    with closing(sqlite3.connect(path)) as database:
        yield from database.execute(statement, values)
