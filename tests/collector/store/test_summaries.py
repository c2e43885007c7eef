"""Summaries say what the rows that they stand for say, and lists read nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

import polars as pl

from spanloop.dashboard.queries import lists
from spanloop.dashboard.view_models.filters import Filters, TimeRange
from spanloop.store import Store
from spanloop.store.client import Address, Connection
from spanloop.store.named_queries import named_query

from ...conftest import MakeFrame

SECOND = 10**9
START = 1_760_000_000 * SECOND
TRACE = "a" * 32
EVERYTHING = Filters()
CALL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.response.model": "m",
    "gen_ai.usage.input_tokens": "7",
    "gen_ai.usage.output_tokens": "3",
    "session.id": "s",
}
ROOT = {"TraceId": TRACE, "SpanId": "1" * 16, "SpanName": "run", "ServiceName": "app", "Timestamp": START}
CHILD = {
    **ROOT,
    "SpanId": "2" * 16,
    "ParentSpanId": "1" * 16,
    "SpanName": "chat m",
    "Timestamp": START + SECOND,
    "Duration": 2 * SECOND,
    "SpanAttributes": CALL,
}
FAILED = {**CHILD, "SpanId": "3" * 16, "StatusCode": "Error", "SpanAttributes": {"error.type": "Timeout"}}


def insert(store: Store, frame_of: MakeFrame, *rows: Mapping[str, object], token: str = "") -> None:
    store.insert("otel_traces", frame_of("otel_traces", rows).drop("IngestedAt"), token=token)


def listed(store: Store, filters: Filters = EVERYTHING) -> list[dict[str, Any]]:
    return lists.fetch_traces(store, filters, "", None).rows.to_dicts()


def test_late_spans_retries_and_duplicates_are_one_trace(store: Store, frame_of: MakeFrame) -> None:
    insert(store, frame_of, CHILD, token="one")
    insert(store, frame_of, CHILD, token="one")  # the same block again
    insert(store, frame_of, FAILED, CHILD, token="two")  # a span that its sender sent twice
    insert(store, frame_of, ROOT)
    (row,) = listed(store)
    expected = {
        "trace_id": TRACE,
        "duration_ns": 3 * SECOND,
        "root_name": "run",
        "service_name": "app",
        "model": "m",
        "session_id": "s",
        "span_count": 3,
        "failed_span_count": 1,
        "model_calls": 1,
    }
    assert {key: row[key] for key in expected} == expected
    assert row["tokens"] == 10
    assert int(row["started_at"].timestamp()) == START // SECOND
    one = store.query("dashboard_trace", trace_id=TRACE).row(0, named=True)
    assert (one["input_tokens"], one["output_tokens"]) == (7, 3)
    assert {key: one[key] for key in expected if key != "trace_id"} == {
        key: value for key, value in expected.items() if key != "trace_id"
    }
    assert one["episode_ids"] == []
    assert store.query("dashboard_trace", trace_id="b" * 32).is_empty()


def test_a_trace_whose_rows_lie_apart_is_listed_once_and_whole(store: Store, frame_of: MakeFrame) -> None:
    later = {**ROOT, "TraceId": "b" * 32, "Timestamp": START + 3_600 * SECOND}
    insert(store, frame_of, ROOT, later)
    insert(store, frame_of, {**CHILD, "Timestamp": START + 5_000 * SECOND})
    first, second = listed(store)
    assert (first["trace_id"], second["trace_id"]) == ("b" * 32, TRACE)
    assert (second["span_count"], second["duration_ns"]) == (2, 5_002 * SECOND)


def test_filters_choose_traces_and_not_rows(store: Store, frame_of: MakeFrame) -> None:
    insert(store, frame_of, ROOT, FAILED)
    insert(store, frame_of, CHILD)
    insert(store, frame_of, {**ROOT, "TraceId": "b" * 32, "ServiceName": "other", "SpanName": "walk"})
    assert {row["trace_id"]: row["span_count"] for row in listed(store)} == {TRACE: 3, "b" * 32: 1}
    assert [row["trace_id"] for row in listed(store, Filters(values={"service": ("other",)}))] == ["b" * 32]
    assert [row["trace_id"] for row in listed(store, Filters(text="WALK"))] == ["b" * 32]
    assert listed(store, Filters(TimeRange(START // SECOND + 86_400), "7d")) == []


def test_the_greatest_values_are_summarized(store: Store, frame_of: MakeFrame) -> None:
    extreme = {
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": str(2**32 - 1),
        "gen_ai.usage.output_tokens": str(2**32 - 1),
    }
    insert(store, frame_of, {**ROOT, "Timestamp": 2**32 * SECOND - 1, "Duration": 2**64 - 1, "SpanAttributes": extreme})
    insert(store, frame_of, {**ROOT, "TraceId": "b" * 32, "Timestamp": 0})
    first, second = listed(store)
    assert first["tokens"] == 2 * (2**32 - 1)
    assert first["started_at"].year == 2106
    assert second["started_at"].year == 1970


def insert_rows(store: Store, frame_of: MakeFrame, table: str, rows: Sequence[Mapping[str, object]]) -> None:
    frame = frame_of(table, rows)
    store.insert(table, frame.drop("converted_at"))


def current(store: Store) -> list[tuple[str, int, int]]:
    """Episodes as the list shows them: id, seconds after the start, steps."""
    episodes = lists.fetch_episodes(store, EVERYTHING, "", None).rows
    return [
        (row["episode_id"], int(row["started_at"].timestamp()) - START // SECOND, row["step_count"])
        for row in episodes.iter_rows(named=True)
    ]


def test_an_episode_is_listed_where_its_newest_revision_lies(store: Store, frame_of: MakeFrame) -> None:
    def write(episode_id: str, revision: int, after_s: int, steps: int, is_deleted: int = 0) -> None:
        started = 0 if is_deleted else START + after_s * SECOND
        row = {"episode_id": episode_id, "revision": revision, "started_at": started, "step_count": steps}
        insert_rows(store, frame_of, "episodes", [row | {"is_deleted": is_deleted}])

    write("moves", 1, 50, 1)
    write("stays", 1, 20, 1)
    assert current(store) == [("moves", 50, 1), ("stays", 20, 1)]
    write("moves", 2, 10, 2)
    write("stays", 2, 20, 2)
    assert current(store) == [("stays", 20, 2), ("moves", 10, 2)]
    write("moves", 3, 50, 3)  # and back again
    assert current(store) == [("moves", 50, 3), ("stays", 20, 2)]
    write("moves", 2, 30, 2)  # by a run with an older view
    assert current(store) == [("moves", 50, 3), ("stays", 20, 2)]
    write("moves", 4, 0, 0, is_deleted=1)
    write("moves", 3, 40, 3)  # the older view again, after the end
    assert current(store) == [("stays", 20, 2)]
    assert store.query("dashboard_totals", since_s=0)["episodes"].to_list() == [1]


MESSAGES = {
    "otel_traces.SpanAttributes", "otel_traces.Events.Attributes", "otel_logs.Body", "otel_logs.LogAttributes",
    "episode_messages.message", "transition_rows.action", "transition_rows.tools", "transition_rows.tool_results",
    "failures.message", "failures.evidence", "dead_letters.raw_base64",
}  # fmt: skip
"""Columns whose size has no limit; lists read none of them."""

SINCE = START // SECOND
LISTS: Mapping[str, Mapping[str, object]] = {
    "dashboard_totals": {"since_s": SINCE},
    "dashboard_outcomes_over_time": {"since_s": SINCE, "bucket_s": 60},
    "dashboard_policy_versions": {"since_s": SINCE, "task_prefix": ""},
    "dashboard_latest_failures": {"since_s": SINCE, "fingerprint": "", "max_rows": 8},
    "dashboard_task_sets": {"max_rows": 50},
    "dashboard_metric_jobs": {"max_rows": 50},
    "evaluation_list": {"evaluation_id": "", "name": "", "model": ""},
    "evaluation_models": {},
    "dead_letter_list": {"reason": "", "with_replayed": 0, "limit": 50},
    "scores_list": {"trace_id": "", "response_id": "", "session_id": "", "episode_id": "", "limit": 50},
    "scores_newest": {"limit": 50},
    "store_newest_span": {},
}  # fmt: skip
NEWEST = {"traces", "episodes", "failures", "transitions", "dashboard_latest_failures"}
"""Those that show the newest rows; however many there are, of all time they read no more."""

OLD_ROWS = 60_000
AT = "fromUnixTimestamp64Nano({at:Int64} + toInt64(number) * 100000000000)"
FILLED: Mapping[str, Mapping[str, str]] = {
    "otel_traces": {"Timestamp": AT, "TraceId": "hex(number)", "SpanId": "''"},
    "episodes": {"episode_id": "hex(number)", "revision": "1", "started_at": AT},
    "failures": {"failure_id": "hex(number)", "episode_id": "hex(number)", "revision": "1", "occurred_at": AT},
    "transition_rows": {"episode_id": "hex(number)", "revision": "1", "step": "0", "started_at": AT},
}


PAGES = {
    "traces": lists.fetch_traces,
    "episodes": lists.fetch_episodes,
    "failures": lists.fetch_failures,
    "transitions": lists.fetch_steps,
}


class Recorder:
    """Stands between a list and its store, and keeps what the list asks."""

    def __init__(self, store: Store) -> None:
        self._connection = store.connection
        self.asked: list[tuple[str, str, Mapping[str, object]]] = []

    @property
    def connection(self) -> Self:
        return self

    def query(self, sql: str, *, doing: str, parameters: Mapping[str, object]) -> pl.DataFrame:
        self.asked.append((doing, sql, dict(parameters)))
        return self._connection.query(sql, doing=doing, parameters=parameters)


def recorded_pages(store: Store) -> list[tuple[str, str, Mapping[str, object]]]:
    """The query of each list's first page of all time."""
    pages: list[tuple[str, str, Mapping[str, object]]] = []
    for name, fetch in PAGES.items():
        recorder = Recorder(store)
        fetch(cast("Store", recorder), EVERYTHING, "", None)
        pages += [(name, sql, given) for doing, sql, given in recorder.asked if doing == "reading a page of a list"]
    return pages


def test_lists_read_no_message_column_and_only_the_newest_rows(address: Address, connection: Connection) -> None:
    """Sixty thousand rows from the seventy days before; the server's own log says what is read."""
    for table, columns in FILLED.items():
        values = f"SELECT {', '.join(columns.values())} FROM numbers({{rows:UInt64}})"
        statement = f"INSERT INTO {table} ({', '.join(columns)}) {values}"
        where = {"at": START - 80 * 86_400 * SECOND, "rows": OLD_ROWS}
        connection.command(statement, doing="filling", parameters=where, settings={"async_insert": "0"})
    with Store(address) as store:
        for name, sql, bound in recorded_pages(store):
            settings = {"log_queries": "1", "log_comment": f"{address.database} {name}"}
            connection.query(sql, doing=name, parameters=bound, settings=settings)
    for name, parameters in LISTS.items():
        query = named_query(name)
        asked = {**parameters, "since_s": 0} if name in NEWEST else parameters
        settings = {"log_queries": "1", "log_comment": f"{address.database} {name}"}
        connection.query(query.sql, doing=name, parameters=query.bind(asked), settings=settings)
    connection.command("SYSTEM FLUSH LOGS query_log", doing="reading the log")
    logged = connection.query(
        "SELECT log_comment, read_rows, columns FROM system.query_log "
        "WHERE type = 'QueryFinish' AND startsWith(log_comment, {mark:String})",
        doing="reading the log",
        parameters={"mark": f"{address.database} "},
    )
    assert logged.height == len(LISTS) + len(PAGES)
    for comment, rows, columns in logged.iter_rows():
        name = str(comment).split()[1]
        read = {str(column).removeprefix(f"{address.database}.") for column in columns}
        assert not read & MESSAGES, name
        assert name not in NEWEST or rows < OLD_ROWS / 4, (name, rows)


def test_the_column_check_detects_a_message_column(address: Address, connection: Connection) -> None:
    settings = {"log_queries": "1", "log_comment": f"{address.database} seen"}
    connection.query("SELECT SpanAttributes FROM otel_traces", doing="reading", settings=settings)
    connection.command("SYSTEM FLUSH LOGS query_log", doing="reading the log")
    query_log = connection.query(
        "SELECT columns FROM system.query_log WHERE type = 'QueryFinish' AND log_comment = {mark:String}",
        doing="reading the log",
        parameters={"mark": f"{address.database} seen"},
    )
    assert f"{address.database}.otel_traces.SpanAttributes" in query_log["columns"][0].to_list()


def test_a_policy_version_of_long_ago_is_known(store: Store, connection: Connection) -> None:
    statement = (
        "INSERT INTO episodes (episode_id, revision, started_at, policy_version) SELECT hex(number), 1, "
        "fromUnixTimestamp64Nano(toInt64(number) * 1000000), if(number = 0, 'old', 'new') FROM numbers(150000)"
    )
    connection.command(statement, doing="filling", settings={"async_insert": "0"})
    assert store.query("evaluation_models").rows() == [("old", 1), ("new", 149_999)]
