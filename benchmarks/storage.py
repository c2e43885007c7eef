"""How many bytes a step costs in the store: episodes of 10 steps against one episode of 1,000 that arrives in 50 parts.

    python benchmarks/storage.py [--quick]

The pipeline converts both, each in an embedded ClickHouse of its own: model calls of one growing conversation, with
captured tokens. Before each conversion the long episode gets 20 more. Replaced revisions are then erased and parts
merged. Counted are the compressed bytes of all tables that the pipeline fills. Named baseline: the short episodes. The
last line is ``ratio bytes_a_step=…``: the long episode relative to the short ones.
"""

import argparse
import json
import random
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import polars as pl

from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.paths import DataDir
from spanloop.pipeline import run
from spanloop.pipeline.replaced_revisions import erase_replaced
from spanloop.store import Store, connect
from spanloop.store.client import Connection
from spanloop.store.discovery import embedded_address

TABLES: Final = (
    "episode_messages", "transition_rows", "trajectories", "failures", "episodes", "episode_summaries",
    "failure_summaries", "step_summaries", "replaced_revisions",
)  # fmt: skip
START: Final = datetime(2026, 11, 1, tzinfo=UTC)
SHORT_STEPS: Final = 10
CONVERSIONS: Final = 50
MESSAGE_WORDS: Final = 20
TOKENS: Final = 10
MEMORY_BYTES: Final = 4 << 30
"""Of a conversion; with the default, the spans of the long episode would be too large to be one episode."""
BYTES: Final = """
SELECT sum(data_compressed_bytes) AS bytes FROM system.parts
WHERE active AND database = currentDatabase() AND table = {table:String}
"""


class Conversation:
    """One agent's growing conversation: every step adds an answer and a tool's result to what the model saw."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._random = random.Random(name)
        self._trace_id = f"{self._random.getrandbits(128):032x}"
        self._messages = [self._message("user")]
        self._tokens = self._ids()
        self._step = 0

    def _message(self, role: str) -> Mapping[str, object]:
        words = " ".join(f"{self._random.getrandbits(24):x}" for _ in range(MESSAGE_WORDS))
        return {"role": role, "parts": [{"type": "text", "content": words}]}

    def _ids(self) -> list[int]:
        return [self._random.randrange(100_000) for _ in range(TOKENS)]

    def step(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the next call's row of ``otel_traces`` and of ``generations``."""
        answer, sampled, response_id = self._message("assistant"), self._ids(), f"{self._name}-{self._step}"
        started_at = START + timedelta(seconds=self._step)
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "m",
            "gen_ai.response.id": response_id,
            "gen_ai.response.finish_reasons": '["stop"]',
            "gen_ai.input.messages": json.dumps(self._messages),
            "gen_ai.output.messages": json.dumps([answer]),
            "spanloop.episode.id": self._name,
        }
        span = {
            "Timestamp": started_at,
            "TraceId": self._trace_id,
            "SpanId": f"{self._random.getrandbits(64):016x}",
            "SpanName": "chat",
            "SpanAttributes": attributes,
            "Duration": 500_000_000,
        }
        generation = {
            "generation_id": f"{response_id}/0", "response_id": response_id, "model": "m", "policy_version": "m@v1",
            "prompt_token_ids": self._tokens, "response_token_ids": sampled, "logprobs": [-0.5] * len(sampled),
            "finish_reason": "stop", "is_complete": True, "started_at": started_at,
        }  # fmt: skip
        self._messages = [*self._messages, answer, self._message("user")]
        self._tokens = [*self._tokens, *sampled, *self._ids()]
        self._step += 1
        return span, generation


def main() -> None:
    """Measure both stores and print the ratio."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="200 steps in 10 conversions")
    long_steps, conversions = (200, 10) if parser.parse_args().quick else (1_000, CONVERSIONS)
    short = measure({f"short-{number}": SHORT_STEPS for number in range(long_steps // SHORT_STEPS)}, 1)
    long = measure({"long": long_steps}, conversions)
    print(f"ratio bytes_a_step={long / short:.3f}")


def measure(episodes: Mapping[str, int], conversions: int) -> float:
    """Convert episodes (name → steps), which arrive in equal parts; return the compressed bytes of a step."""
    with tempfile.TemporaryDirectory(prefix="storage") as folder:
        directory = DataDir(Path(folder)).open()
        with EmbeddedClickHouse(directory), connect(directory) as store:
            conversations = {name: Conversation(name) for name in episodes}
            for _ in range(conversions):
                made = [
                    conversations[name].step() for name, steps in episodes.items() for _ in range(steps // conversions)
                ]
                insert(store, "otel_traces", [span for span, _ in made])
                insert(store, "generations", [generation for _, generation in made])
                run(store, memory_bytes=MEMORY_BYTES)
            erase_replaced(store, grace_s=-60)
            connection = Connection(embedded_address(directory))
            sizes = {table: size_bytes(connection, table) for table in TABLES}
            shown = connection.query("SELECT count() AS steps FROM transitions", doing="counting").item()
            connection.close()
    steps = sum(episodes.values())
    if shown != steps:
        raise SystemExit(f"The store has {shown} transitions, expected {steps}.")
    parts = ", ".join(f"{table} {size / steps:.0f}" for table, size in sizes.items() if size)
    print(f"{len(episodes):>4} episodes, {steps} steps: {sum(sizes.values()) / steps:,.0f} bytes a step ({parts})")
    return sum(sizes.values()) / steps


def insert(store: Store, table: str, rows: list[dict[str, Any]]) -> None:
    """Insert rows; columns that they leave out have their default."""
    frame = pl.DataFrame(rows, schema=store.schema(table))
    store.insert(table, frame.drop("IngestedAt" if table == "otel_traces" else "ingested_at"))


def size_bytes(connection: Connection, table: str) -> int:
    """Merge a table's parts and return its compressed size in bytes."""
    connection.command(f"OPTIMIZE TABLE {table} FINAL", doing="merging")
    return int(connection.query(BYTES, doing="reading sizes", parameters={"table": table}).item() or 0)


if __name__ == "__main__":
    main()
