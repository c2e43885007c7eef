"""Rows for every table of the store, drawn at random from few values, so that tables share ids and rows replace others."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random
from typing import Any, Final

import polars as pl

from spanloop.foundation.tables import TABLES, Column
from spanloop.store import Store

START: Final = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=2)
"""Recent, because dead letters expire."""
EPISODES: Final = [f"{number:032x}" for number in range(1, 13)]
"""An episode has the id of its first trace."""
POOLS: Final[Mapping[str, list[Any]]] = {
    "trace": EPISODES,
    "span": [f"{number:016x}" for number in range(1, 9)],
    "response": [f"response-{number}" for number in range(6)],
    "session": ["session-1", "session-2", ""],
    "key": ["app-1", "app-2", ""],
    "task": ["test-1", "test-2", "train/3", ""],
    "group": ["group-1", "group-2", ""],
    "service": ["shop", "bank"],
    "agent": ["clerk", "buyer", ""],
    "model": ["m@v1", "m@v2"],
    "job": ["job-1", "job-2"],
    "data_set": ["set-1", "set-2"],
    "evaluation": ["test:m@v1", "test:m@v2"],
    "canary": ["canary-1"],
    "score": [f"score-{number}" for number in range(20)],
    "judgement": [f"judgement-{number}" for number in range(20)],
    "dead_letter": [f"{number:032x}" for number in range(10)],
    "run": ["run-1", "run-2"],
    "fingerprint": ["print-1", "print-2", ""],
    "class": ["timeout", "wrong_argument", ""],
    "tool": ["search", "refund", ""],
}
WORDS: Final = {
    "TraceId": "trace", "trace_id": "trace", "trace_ids": "trace", "episode_id": "trace", "episode_ids": "trace",
    "interrupted_episode_ids": "key", "Links.TraceId": "trace", "SpanId": "span", "ParentSpanId": "span",
    "span_id": "span", "span_ids": "span", "Links.SpanId": "span", "response_id": "response", "response_ids": "response",
    "session_id": "session", "session": "session", "session_ids": "session", "episode_key": "key", "episode_keys": "key",
    "task_id": "task", "task_ids": "task", "group_id": "group", "service_name": "service", "ServiceName": "service",
    "services": "service", "agent_name": "agent", "agent": "agent", "model": "model", "policy_version": "model",
    "policy_versions": "model", "job_id": "job", "job_ids": "job", "consumed_jobs": "job", "data_set_id": "data_set",
    "data_set_ids": "data_set", "previous_id": "data_set", "evaluation_id": "evaluation", "canary_id": "canary",
    "score_id": "score", "score_ids": "score", "judgement_id": "judgement", "judgement_ids": "judgement",
    "dead_letter_id": "dead_letter", "dead_letter_ids": "dead_letter", "run_id": "run", "run_ids": "run",
    "fingerprint": "fingerprint", "error_class": "class", "failure_class": "class", "error_classes": "class",
    "tool_name": "tool", "tool_names": "tool", "result_tools": "tool", "before": "model", "after": "model",
}  # fmt: skip
CHOICES: Final[Mapping[str, list[Any]]] = {
    "revision": [1_000, 2_000], "evaluation_revision": [1_000], "step": [0, 1, 2], "sample": [0, 1], "number": [0, 1, 2, 3],
    "row_number": [0, 1], "attempt": [1, 2], "version": [1, 2], "position": [0, 1, 2, 3], "is_deleted": [0, 0, 0, 1],
    "is_withdrawn": [0, 0, 1], "outcome": ["success", "failure", "unknown"], "name": ["reward", "helpful"],
    "fault_owner": ["policy", "environment", ""], "scope": ["episode", "step", "failure"], "verdict": ["good", "bad", ""],
    "rule": ["", "some_rule"], "rule_outcome": ["success", "failure"], "state": ["finished", "crashed"],
    "left_out": ["", "", "again"], "arm": ["candidate", "champion"], "row_start": ["episode", "edited"],
    "untrainable_reason": ["", "no_tokens"], "label": ["", "bug"], "marks": ["bug", "good"], "StatusCode": ["Ok", "Error"],
    "SpanName": ["chat", "tool"], "agreement": ["same", "different", ""], "reason": ["too large", "not OTLP"],
    "prompt_step": [0, 1, 2], "prompt_length": [1, 2], "first_step": [0, 1], "last_step": [1, 2],
    "raw_base64": ["bWVzc2FnZQ=="], "message": ['{"role":"user","parts":[{"type":"text","content":"a refund please"}]}'],
    "action": [
        '{"role":"assistant","parts":[{"type":"tool_call","name":"refund","arguments":"{}"}]}',
        '{"role":"assistant","parts":[{"type":"text","content":"the refund is done"}]}',
    ],
    "tool_results": ['[{"status":"error","name":"refund"}]', "[]"], "tools": ['[{"name":"refund"}]'],
    "GenAi": [""], "role": ["user", "assistant"],
}  # fmt: skip
VERSIONS: Final = {
    "IngestedAt", "ingested_at", "written_at", "converted_at", "updated_at", "recorded_at", "counted_at", "pinned_at",
    "replaced_at",
}  # fmt: skip
"""Columns that say which of two rows is the newer one: no two rows have the same."""
SPAN_ATTRIBUTES: Final[Mapping[str, str]] = {
    "gen_ai.request.model": "model", "gen_ai.response.id": "response", "gen_ai.conversation.id": "session",
    "session.id": "session", "spanloop.episode.id": "key", "spanloop.task.id": "task", "error.type": "class",
    "gen_ai.tool.name": "tool",
}  # fmt: skip


class RowGenerator:
    """Draws rows, the same for the same seed."""

    def __init__(self, seed: int = 1) -> None:
        self._random = Random(seed)
        self._microseconds = count(1)

    def frame(self, table: str, rows: int) -> pl.DataFrame:
        """Return rows of a table with all columns that an insert may name."""
        columns = [column for column in TABLES[table].columns if column.is_insertable]
        drawn = [{column.name: self.value(column) for column in columns} for _ in range(rows)]
        return pl.DataFrame([self._completed(table, row) for row in drawn], schema=TABLES[table].schema)

    def value(self, column: Column) -> Any:  # noqa: PLR0911 - one return a type
        """Return a value of a column."""
        if column.sql_type.startswith("Array("):
            inner = Column(column.name, column.sql_type.removeprefix("Array(")[:-1], "")
            return [self.value(inner) for _ in range(self._random.randint(0, 3))]
        if column.sql_type.startswith("Map("):
            text = column.sql_type.endswith("String)")
            return {f"k{number}": f"v{number}" if text else number for number in range(self._random.randint(0, 2))}
        if column.name in VERSIONS:
            return START + timedelta(days=1, microseconds=next(self._microseconds))
        if column.sql_type.startswith("DateTime"):
            return START + timedelta(seconds=self._random.randint(0, 7_200), microseconds=next(self._microseconds))
        if column.name in WORDS:
            return self._random.choice(POOLS[WORDS[column.name]])
        if column.name in CHOICES and "Array" not in column.sql_type and not isinstance(
            CHOICES[column.name][0], str
        ) == column.sql_type.startswith(("String", "LowCardinality(String", "Nullable(String")):
            pass
        elif column.name in CHOICES:
            return self._random.choice(CHOICES[column.name])
        if column.sql_type.startswith("Nullable(") and self._random.random() < 0.3:
            return None
        return self._by_type(column)

    def _by_type(self, column: Column) -> Any:
        makers: Mapping[str, Callable[[], Any]] = {
            "String": lambda: self._random.choice(["a", "b", ""]),
            "Bool": lambda: self._random.random() < 0.5,
            "Float": lambda: self._random.randint(0, 8) / 8,
            "UInt": lambda: self._random.randint(0, 3),
            "Int": lambda: self._random.randint(0, 3),
        }
        return next(make for kind, make in makers.items() if kind in column.sql_type)()

    def _completed(self, table: str, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row whose columns that belong together do."""
        if table in {"otel_traces", "otel_logs"}:
            attributes = {name: self._random.choice(POOLS[pool]) for name, pool in SPAN_ATTRIBUTES.items()}
            attributes["gen_ai.operation.name"] = self._random.choice(["chat", "execute_tool"])
            row["SpanAttributes" if table == "otel_traces" else "LogAttributes"] = attributes
            for nested in ("Events", "Links"):
                names = [name for name in row if name.startswith(f"{nested}.")]
                for name in names:
                    column = TABLES[table][name]
                    one = Column(name, column.sql_type.removeprefix("Array(")[:-1], "")
                    row[name] = [self.value(one)] if row["SpanId"] < f"{4:016x}" else []
        if table == "otel_logs":
            row["EventName"] = self._random.choice(["gen_ai.evaluation.result", "gen_ai.user.message", ""])
            row["LogAttributes"] |= {
                "gen_ai.evaluation.name": "reward", "gen_ai.evaluation.score.value": "0.5",
                "spanloop.score.id": f"logged-{next(self._microseconds)}",
            }  # fmt: skip
        if table == "transition_rows":
            row["state"], row["next_state"] = [0, 2], self._random.choice([[0, 0], [0, 3]])
        if table == "trace_summaries":
            row["calls"] = {}
        for number, key in (("number", "failure_id"), ("step", "transition_id"), ("row_number", "trajectory_id")):
            if key in row:
                row[key] = f"{row['episode_id']}/{row.get(number, row.get('step'))}"
        if "generation_id" in row:
            row["generation_id"] = f"{row['response_id']}/0"
        if "sampled_steps" in row:
            steps = row["sampled_steps"] = [0, 1]
            row["sampled_starts"], row["sampled_ends"], row["step_rewards"] = [0, 1], [1, 2], [0.5, None]
            row["response_token_ids"], row["loss_mask"], row["logprobs"] = [7, 8], [1, 1], [-0.5, -0.25]
            row["tokenizers"] = ["t" for _ in steps]
        if "run_id" in row and table == "attempts":
            row["model"], row["grader"] = POOLS["model"][row["run_id"] == "run-1"], "exact"
            row["episode_id"] = self._random.choice(POOLS["key"])
        if table == "replaced_revisions":
            row["revision"] = self._random.choice([400, 1_000])
        if table == "evaluations":
            row["revision"] = 1_000
        if table in {"episodes", "data_set_episodes"}:
            row["trace_ids"] = [row["episode_id"]]
        if "evidence" in row:
            row["evidence"] = json.dumps({"seen": row.get("task_id", "")})
        return row


FILLED_BY_VIEWS: Final = {
    "trace_summaries", "log_summaries", "episode_summaries", "failure_summaries", "step_summaries", "metric_summaries",
}  # fmt: skip


def fill(store: Store, *, rows: int = 150, seed: int = 1) -> None:
    """Insert rows into every table that is not filled by views, those that views join with first."""
    generator = RowGenerator(seed)
    left_out = {*FILLED_BY_VIEWS, "transitions", "schema_migrations", "legacy_transitions"}
    for table in sorted(TABLES.keys() - left_out, key=lambda name: (name in {"episodes", "scores"}, name)):
        # Sessions that a canary has not counted remain.
        frame = generator.frame(table, 2 if table == "canary_sessions" else rows)
        # The pipeline inserts one row of an episode in a block.
        blocks = [frame.filter(pl.col("revision") == number) for number in (1_000, 2_000)] if table == "episodes" else [frame]
        for number, block in enumerate(blocks):
            unique = block.unique("episode_id", keep="first", maintain_order=True) if table == "episodes" else block
            store.insert(table, unique, token=f"generated-{table}-{seed}-{number}")
