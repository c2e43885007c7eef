"""Rows for every table of the store, drawn at random from few values: tables share ids, and rows replace others."""

from collections.abc import Callable, Iterator, Mapping
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
    "span_id": "span", "span_ids": "span", "Links.SpanId": "span", "response_id": "response",
    "response_ids": "response",
    "session_id": "session", "session": "session", "session_ids": "session", "episode_key": "key",
    "episode_keys": "key",
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
    "revision": [1_000, 2_000], "evaluation_revision": [1_000], "step": [0, 1, 2], "sample": [0, 1],
    "number": [0, 1, 2, 3],
    "row_number": [0, 1], "attempt": [1, 2], "version": [1, 2], "position": [0, 1, 2, 3], "is_deleted": [0, 0, 0, 1],
    "is_withdrawn": [0, 0, 1], "outcome": ["success", "failure", "unknown"], "name": ["reward", "helpful"],
    "fault_owner": ["policy", "environment", ""], "scope": ["episode", "step", "failure"], "verdict": ["good",
    "bad", ""],
    "rule": ["", "some_rule"], "rule_outcome": ["success", "failure"], "state": ["finished", "crashed"],
    "left_out": ["", "", "again"], "arm": ["candidate", "champion"], "row_start": ["episode", "edited"],
    "untrainable_reason": ["", "no_tokens"], "label": ["", "bug"], "marks": ["bug", "good"],
    "StatusCode": ["Ok", "Error"],
    "SpanName": ["chat", "tool"], "agreement": ["same", "different", ""], "reason": ["too large", "not OTLP"],
    "prompt_step": [0, 1, 2], "prompt_length": [1, 2], "first_step": [0, 1], "last_step": [1, 2],
    "raw_base64": ["bWVzc2FnZQ=="],
    "message": ['{"role":"user","parts":[{"type":"text","content":"a refund please"}]}'],
    "action": [
        '{"role":"assistant","parts":[{"type":"tool_call","name":"refund","arguments":"{}"}]}',
        '{"role":"assistant","parts":[{"type":"text","content":"the refund is done"}]}',
    ],
    "tool_results": ['[{"status":"error","name":"refund"}]', "[]"], "tools": ['[{"name":"refund"}]'],
    "role": ["user", "assistant"],
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
        drawn = [{column.name: self._value(column) for column in columns} for _ in range(rows)]
        complete = {
            "otel_traces": self._complete_span,
            "otel_logs": self._complete_log,
            "attempts": self._complete_attempt,
        }
        for row in drawn:
            complete.get(table, self._complete)(row)
        return pl.DataFrame(drawn, schema=TABLES[table].schema)

    def _value(self, column: Column) -> Any:
        if column.sql_type.startswith("Array("):
            inner = Column(column.name, column.sql_type.removeprefix("Array(")[:-1], "")
            return [self._value(inner) for _ in range(self._random.randint(0, 3))]
        if column.sql_type.startswith("Map("):
            is_text = column.sql_type.endswith("String)")
            return {f"k{number}": f"v{number}" if is_text else number for number in range(self._random.randint(0, 2))}
        if column.sql_type.startswith("DateTime"):
            seconds = 86_400 if column.name in VERSIONS else self._random.randint(0, 7_200)
            return START + timedelta(seconds=seconds, microseconds=next(self._microseconds))
        return self._scalar(column)

    def _scalar(self, column: Column) -> Any:
        if column.name in WORDS:
            return self._random.choice(POOLS[WORDS[column.name]])
        choices = CHOICES.get(column.name, [])
        if choices and isinstance(choices[0], str) == ("String" in column.sql_type):
            return self._random.choice(choices)
        if column.sql_type.startswith("Nullable(") and self._random.random() < 0.3:
            return None
        makers: Mapping[str, Callable[[], Any]] = {
            "String": lambda: self._random.choice(["a", "b", ""]),
            "Bool": lambda: self._random.random() < 0.5,
            "Float": lambda: self._random.randint(0, 8) / 8,
            "Int": lambda: self._random.randint(0, 3),
        }
        return next(make for kind, make in makers.items() if kind in column.sql_type)()

    def _attributes(self) -> dict[str, str]:
        drawn = {name: self._random.choice(POOLS[pool]) for name, pool in SPAN_ATTRIBUTES.items()}
        return drawn | {"gen_ai.operation.name": self._random.choice(["chat", "execute_tool"])}

    def _complete_span(self, row: dict[str, Any]) -> None:
        row["SpanAttributes"] = self._attributes()
        for name in [name for name in row if "." in name]:
            column = TABLES["otel_traces"][name]
            value = self._value(Column(name, column.sql_type.removeprefix("Array(")[:-1], ""))
            row[name] = [value] if row["SpanId"] < f"{4:016x}" else []

    def _complete_log(self, row: dict[str, Any]) -> None:
        row["EventName"] = self._random.choice(["gen_ai.evaluation.result", "gen_ai.user.message", ""])
        row["LogAttributes"] = self._attributes() | {
            "gen_ai.evaluation.name": "reward",
            "gen_ai.evaluation.score.value": "0.5",
            "spanloop.score.id": f"logged-{next(self._microseconds)}",
        }

    def _complete_attempt(self, row: dict[str, Any]) -> None:
        """A run has one model and one grader."""
        row["model"], row["grader"] = POOLS["model"][row["run_id"] == "run-1"], "exact"
        row["episode_id"] = self._random.choice(POOLS["key"])

    def _complete(self, row: dict[str, Any]) -> None:
        """Make columns fit that depend on one another."""
        for name, number in (("failure_id", "step"), ("transition_id", "step"), ("trajectory_id", "row_number")):
            if name in row:
                row[name] = f"{row['episode_id']}/{row[number]}"
        if "transition_id" in row:
            row["state"], row["next_state"] = [0, 2], self._random.choice([[0, 0], [0, 3]])
        if "generation_id" in row:
            row["generation_id"] = f"{row['response_id']}/0"
        if "sampled_steps" in row:
            row["sampled_steps"], row["tokenizers"] = [0, 1], ["t", "t"]
            row["sampled_starts"], row["sampled_ends"], row["step_rewards"] = [0, 1], [1, 2], [0.5, None]
            row["response_token_ids"], row["loss_mask"], row["logprobs"] = [7, 8], [1, 1], [-0.5, -0.25]
        if "trace_ids" in row and "episode_id" in row:
            row["trace_ids"] = [row["episode_id"]]
        if "replaced_at" in row:
            row["revision"] = self._random.choice([400, 1_000])
        if "resamples" in row:
            row["revision"] = 1_000  # that of the evaluation's episodes


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
        for number, block in enumerate(_blocks(table, frame)):
            store.insert(table, block, token=f"generated-{table}-{seed}-{number}")


def _blocks(table: str, frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the blocks of a table: as the pipeline does, one row of an episode in each."""
    if table != "episodes":
        yield frame
        return
    for _, block in frame.group_by("revision", maintain_order=True):
        yield block.unique("episode_id", keep="first", maintain_order=True)
