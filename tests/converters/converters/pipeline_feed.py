"""A store that made-up agents write to, block by block, as the collector and the gateway do."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from spanloop.converters import frames
from spanloop.store import Store
from spanloop.store.client import Connection

from .converters_world import START, World, stored_frame


class Feed:
    """Sends what a world has made since the last time, and reads what became of it."""

    def __init__(self, store: Store, connection: Connection) -> None:
        self.store = store
        self.world = World()
        self._connection = connection
        self._sent = [0, 0, 0]
        self._minutes = 0.0

    def send(self, spans: Sequence[int] | None = None, *, minutes: float = 1, captured: datetime = START) -> None:
        """Insert the new rows, each block ``minutes`` after the one before.

        Args:
            spans: Positions of the spans to send instead of all new ones.
            minutes: Time between this block and the last.
            captured: When the new captures began.
        """
        self._minutes += minutes
        world = self.world
        positions = range(self._sent[0], len(world.spans)) if spans is None else spans
        if spans is None:
            self._sent[0] = len(world.spans)
        if world.spans:
            frame = world.span_frame()[list(positions)]
            self._insert("otel_traces", stored_frame(frame, self.store.schema("otel_traces")), "IngestedAt")
        if world.scores:
            self._insert("scores", self._sparse("scores", world.score_frame()[self._sent[1] :]), "ingested_at")
        if world.generations:
            rows = self._sparse("generations", world.generation_frame()[self._sent[2] :])
            started = pl.lit(captured).cast(frames.TIME_NS).alias("started_at")
            self._insert("generations", rows.with_columns(started), "ingested_at")
        self._sent[1:] = [len(world.scores), len(world.generations)]

    def send_logs(self, records: pl.DataFrame, *, minutes: float = 1) -> None:
        """Insert log records, ``minutes`` after the last block."""
        self._minutes += minutes
        self._insert("otel_logs", self._sparse("otel_logs", records), "IngestedAt")

    def _sparse(self, table: str, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.select(
            pl.col(name) if name in frame.columns else pl.lit(None, dtype=dtype).alias(name)
            for name, dtype in self.store.schema(table).items()
        )

    def _insert(self, table: str, frame: pl.DataFrame, ingested: str) -> None:
        moment = START + timedelta(hours=1, minutes=self._minutes)
        self.store.insert(table, frame.with_columns(pl.lit(moment).cast(frames.TIME_US).alias(ingested)))

    def sql(self, statement: str) -> pl.DataFrame:
        """The answer of a statement of the test's own."""
        return self._connection.query(statement, doing="looking at what a test left behind")

    def execute(self, statement: str) -> None:
        """Run a statement of the test's own."""
        self._connection.command(statement, doing="preparing a test")

    def episodes(self) -> list[dict[str, Any]]:
        """Current episodes, by start."""
        statement = "SELECT * FROM episodes FINAL WHERE is_deleted = 0 ORDER BY started_at, episode_id"
        return list(self.sql(statement).iter_rows(named=True))

    def current(self, table: str) -> pl.DataFrame:
        """The rows of the current revisions, without the time at which they were written."""
        statement = f"""
            SELECT * EXCEPT converted_at FROM {table} FINAL
            WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM episodes FINAL WHERE is_deleted = 0)
            ORDER BY ALL
        """
        if table == "trajectories":
            statement = statement.replace("ORDER BY ALL", "ORDER BY trajectory_id")
        return self.sql(statement.replace("ORDER BY ALL", "ORDER BY episode_id, 1"))
