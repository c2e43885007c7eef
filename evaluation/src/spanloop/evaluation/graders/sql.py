"""Execution accuracy: the answer's query brings the rows of the reference query (Yu et al., 2018).

Invariant: nothing but reading is allowed, and each query has limits of rows, work and time. Rows are compared as a
multiset, and in order where the reference orders them. https://arxiv.org/abs/1809.08887
"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import Field, JsonValue

from spanloop.converters.rewards.comparison import text_of
from spanloop.evaluation.tasks import Task
from spanloop.evaluation.tasks.placeholders import fill, placeholders

from .base import Grader
from .sqlite_queries import QueryLimits, Row, compare_queries
from .verdict import Verdict

_SHOWN_ROWS = 3


class SqlGrader(Grader):
    """Compares the results of two queries."""

    version: ClassVar[str] = "2"
    summary: ClassVar[str] = (
        "1 when the answer's query (its last code fence) brings the rows of the reference query from a SQLite "
        "database, in order where the reference has `ORDER BY`. Read-only, with limits."
    )

    database: str
    """Path of the SQLite database; `{field}` stands for a task's field, as in `databases/{db_id}.sqlite`."""
    expected: str = "answer"
    """The task's field that holds the reference query."""
    ordered: bool | None = None
    """Whether the order counts; unset: where the reference has `ORDER BY`."""
    for_running: float = Field(default=0.0, ge=0, lt=1)
    """Score of a query that runs and brings something else."""
    timeout_s: float = Field(default=10.0, gt=0)
    """Longest time of one query."""
    most_rows: int = Field(default=100_000, ge=1)
    """Most rows of one result."""

    def required_fields(self) -> Sequence[str]:
        """Return the fields that each task needs."""
        return (self.expected, *placeholders(self.database))

    def grade(self, task: Task, answer: str) -> Verdict:
        """Return 1 for the reference's rows.

        Raises:
            GradingError: The reference query does not run.
        """
        database = Path(fill(self.database, {name: text_of(value) for name, value in task.fields.items()})).expanduser()
        limits = QueryLimits(self.most_rows, most_steps=1 << 62, timeout_s=self.timeout_s)
        reference = text_of(task.fields[self.expected])
        comparison = compare_queries(database, answer, reference, limits, task_id=task.id, in_order=self.ordered)
        if comparison.error:
            return Verdict.of(0.0, query=comparison.query, reference=comparison.reference, error=comparison.error)
        return Verdict.of(
            1.0 if comparison.is_same else self.for_running,
            is_success=comparison.is_same,
            query=comparison.query,
            reference=comparison.reference,
            rows=len(comparison.rows),
            expected_rows=len(comparison.expected_rows),
            in_order=comparison.in_order,
            first_rows=_shown(comparison.rows),
            first_expected_rows=_shown(comparison.expected_rows),
        )


def _shown(rows: Sequence[Row]) -> JsonValue:
    return [
        [value if isinstance(value, str | int | float) else str(value) for value in row] for row in rows[:_SHOWN_ROWS]
    ]
