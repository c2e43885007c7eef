"""Reward for a query that brings what the reference query brings, whatever it looks like."""

from collections.abc import Mapping
from pathlib import Path

from spanloop.converters.rewards import Attempt, Judgement, Reward

from .sqlite_queries import QueryLimits, compare_queries


class SqlMatch(Reward):
    """1 when the answer's query brings the reference's rows; a share of it for a query that runs."""

    database: Path
    """The SQLite database."""
    expected: Mapping[str, str]
    """Task id → reference query."""
    for_running: float = 0.0
    """Of the reward, for a query that runs and brings something else."""
    most_rows: int = 100_000
    """Most rows of one result."""
    most_steps: int = 50_000_000
    """Virtual machine instructions of SQLite, about a second."""

    def __call__(self, attempt: Attempt) -> Judgement | None:
        """Return the reward of one attempt.

        Raises:
            GradingError: The reference query does not run: that is no fault of the attempt.
        """
        reference = self.expected.get(attempt.task_id)
        if reference is None:
            return None
        limits = QueryLimits(self.most_rows, self.most_steps)
        comparison = compare_queries(self.database, attempt.answer, reference, limits, task_id=attempt.task_id)
        if comparison.error:
            return Judgement(0.0, {"runs": 0.0, "rows": 0.0})
        right = (1.0 - self.for_running) * comparison.is_same
        return Judgement(self.for_running + right, {"runs": self.for_running, "rows": right})
