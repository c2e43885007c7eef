"""A page of a range of time reads the range: in a store with nine times the history its queries read no more rows."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, Final, cast

import polars as pl
import pytest

from spanloop.dashboard.queries import (
    agents,
    facets,
    failures,
    lists,
    numbers,
    overview,
    policy_versions,
    previews,
    sessions,
    sources,
)
from spanloop.dashboard.view_models.filters import FIELDS, Filters, TimeRange
from spanloop.foundation.settings import Prices
from spanloop.store import Store
from spanloop.store.client import Connection
from spanloop.store.named_queries import named_query

END_S: Final = 1_760_000_000
STEP_S: Final = 100
DAY: Final = Filters(TimeRange(END_S - 86_400, END_S + STEP_S), "24h")
EPISODES: Final = 8_640
"""Ten days."""
OLDER: Final = 80_000
MARGIN_ROWS: Final = 60_000
"""Rows that are found by the ids of a page's hundred episodes lie in whole granules of 256."""

ID: Final = "lower(hex(MD5(toString(number))))"
AT: Final = f"fromUnixTimestamp64Nano(toInt64({END_S} - number * {STEP_S}) * 1000000000)"
FILLED: Final[Mapping[str, Mapping[str, str]]] = {
    "otel_traces": {
        "Timestamp": AT, "TraceId": ID, "SpanId": "'0'", "SpanName": "'chat'", "ServiceName": "'app'",
        "SpanAttributes": "map('user.id', 'somebody', 'region', 'north', 'gen_ai.operation.name', 'chat', "
        "'session.id', 's')",
        "IngestedAt": AT,
    },
    "episode_messages": {
        "episode_id": ID, "revision": "1", "number": "0",
        "message": """'{"role":"user","parts":[{"type":"text","content":"Where is my order?"}]}'""",
    },
    "transition_rows": {
        "episode_id": ID, "revision": "1", "step": "0", "started_at": AT, "state": "[0, 1]", "model": "'m'",
        "policy_version": "'m@v1'", "task_id": "'task-1'", "error_class": "'c'", "fault_owner": "'tool'",
        "action": """'{"role":"assistant","parts":[{"type":"tool_call","name":"look","arguments":{}}]}'""",
    },
    "failures": {
        "failure_id": ID, "episode_id": ID, "revision": "1", "occurred_at": AT, "fault_owner": "'tool'",
        "error_class": "'c'", "tool_name": "'look'", "message": "'It failed'", "fingerprint": "'f'",
        "policy_version": "'m@v1'", "task_id": "'task-1'",
    },
    "episodes": {
        "episode_id": ID, "revision": "1", "started_at": AT, "trace_ids": f"[{ID}]", "service_name": "'app'",
        "agent_name": "'clerk'", "model": "'m'", "policy_version": "'m@v1'", "task_id": "'task-1'",
        "session_id": "'s'", "outcome": "'failure'", "reward": "0.5", "error_class": "'c'", "fault_owner": "'tool'",
        "marks": "['good']", "step_count": "1", "tool_error_count": "1", "input_tokens": "10",
        "duration_ns": "1000000000",
    },
}  # fmt: skip
"""In the order in which the pipeline writes."""
MERGED: Final = (
    "episode_summaries",
    "failure_summaries",
    "step_summaries",
    "trace_summaries",
    "transition_rows",
    "episode_messages",
)
VALUES: Final = {
    "outcome": "failure", "agent": "clerk", "service": "app", "policy": "m@v1", "model": "m", "called": "m",
    "task": "task-1", "fingerprint": "f",
    "tool": "look", "owner": "tool", "class": "c", "mark": "good", "judged": "yes", "session": "s", "user": "somebody",
    "reward": "0.2..", "duration": "0.5..", "tokens": "1..", "steps": "1..", "errors": "1..", "attr": "region=north",
}  # fmt: skip
BY_WORDS: Final = {"error"}
"""The index of words leads with the episode's id, so its hits lie in all of its granules."""
LISTS: Final[Mapping[str, tuple[sources.Source, Callable[..., lists.ListPage]]]] = {
    "episodes": (sources.EPISODES, lists.fetch_episodes),
    "failures": (sources.FAILURES, lists.fetch_failures),
    "steps": (sources.STEPS, lists.fetch_steps),
    "traces": (sources.TRACES, lists.fetch_traces),
    "sessions": (sources.SESSIONS, lists.fetch_sessions),
}
OF_ALL_TIME: Final = {
    "fetch_task_prefixes": "of the newest 100,000 episodes",
    "fetch_reward_components": "of versions",
    "fetch_task_pairs": "of versions",
    "fetch_snippets": "of words",
    "fetch_all_steps": "of one episode",
}


class LoggedStore:
    """A store whose queries the server logs under the name of a case."""

    def __init__(self, connection: Connection, mark: str) -> None:
        self._connection, self._mark, self.case = connection, mark, ""

    @property
    def connection(self) -> "LoggedConnection":
        return LoggedConnection(self._connection, f"{self._mark} {self.case}")

    def query(self, query_name: str, /, **parameters: object) -> pl.DataFrame:
        query = named_query(query_name)
        return self.connection.query(query.sql, doing=query_name, parameters=query.bind(parameters))


class LoggedConnection:
    """Adds to each query that it is logged."""

    def __init__(self, connection: Connection, comment: str) -> None:
        self._connection, self._comment = connection, comment

    def query(self, sql: str, *, doing: str, parameters: Mapping[str, object]) -> pl.DataFrame:
        settings = {"log_queries": "1", "log_comment": self._comment}
        return self._connection.query(sql, doing=doing, parameters=parameters, settings=settings)


def fill(connection: Connection, first: int, episodes: int) -> None:
    """Add episodes, the first of which started ``first`` steps before the end, and merge the tables."""
    for table, columns in FILLED.items():
        connection.command(
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(columns.values())} "
            "FROM numbers({first:UInt64}, {episodes:UInt64})",
            doing="filling",
            parameters={"first": first, "episodes": episodes},
            settings={"async_insert": "0", "max_partitions_per_insert_block": "0"},
        )
    for table in MERGED:
        connection.command(f"OPTIMIZE TABLE {table} FINAL", doing="merging")


def asks(fetch: Callable[..., object], *arguments: object) -> Callable[[Store], object]:
    """Return a function of the store that calls a fetch with these arguments."""
    return lambda store: fetch(store, *arguments)


def cases() -> Iterator[tuple[str, Callable[[Store], object]]]:
    """Yield every question that a page asks about a range of time, with its name."""
    since = DAY.time.start_s
    for name, (source, fetch) in LISTS.items():
        for sort in ("", *source.sorts):
            yield f"{name} by {sort}", asks(fetch, DAY, sort, None)
        for field in (each.name for each in FIELDS if each.name not in BY_WORDS):
            filters = replace(DAY, values={field: (VALUES[field],)})
            yield f"{name} of {field}", asks(fetch, filters, "", None)
    for name in (
        "agent",
        "service",
        "policy",
        "task",
        "class",
        "session",
        "mark",
        "model",
        "called",
        "tool",
        "fingerprint",
    ):
        yield f"fetch_values {name}", asks(facets.fetch_values, DAY, name)
    for name in ("user", "attr"):
        yield f"fetch_values {name}", asks(facets.fetch_values, DAY, name)
    yield "fetch_values of a key", lambda store: facets.fetch_values(store, DAY, "attr", "region")
    yield "fetch_totals", lambda store: overview.fetch_totals(store, since)
    yield "fetch_outcomes_over_time", lambda store: overview.fetch_outcomes_over_time(store, since, 3_600)
    yield "policy_versions.fetch_versions", lambda store: policy_versions.fetch_versions(store, since)
    yield "fetch_latest", lambda store: failures.fetch_latest(store, since)
    for each in (failures.fetch_groups, failures.fetch_rates, failures.fetch_versions, failures.fetch_tools):
        yield each.__name__, asks(each, DAY)
    for by in numbers.LATENCY_BY:
        yield f"fetch_latency {by}", asks(numbers.fetch_latency, DAY, by)
    for by in numbers.COST_BY:
        yield f"fetch_usage {by}", asks(numbers.fetch_usage, DAY, Prices(), by)
    for by in numbers.ERRORS_BY:
        yield f"fetch_errors_over_time {by}", asks(numbers.fetch_errors_over_time, DAY, by, 3_600)
    yield "fetch_cost_over_time", asks(numbers.fetch_cost_over_time, DAY, Prices(), 3_600)
    yield "fetch_time_span", asks(numbers.fetch_time_span, DAY)
    yield "fetch_wasted", asks(numbers.fetch_wasted, DAY, Prices())
    yield "fetch_classes", asks(failures.fetch_classes, DAY)
    yield "fetch_tasks_of_class", asks(failures.fetch_tasks_of_class, DAY, "wrong_answer")
    yield "fetch_group_versions", lambda store: failures.fetch_group_versions(store, DAY, ["f"])
    yield (
        "fetch_previews",
        lambda store: previews.fetch_previews(store, lists.fetch_episodes(store, DAY, "", None).rows),
    )
    yield (
        "fetch_step_previews",
        lambda store: previews.fetch_step_previews(store, lists.fetch_steps(store, DAY, "", None).rows),
    )
    yield (
        "fetch_trace_episodes",
        lambda store: previews.fetch_trace_episodes(store, lists.fetch_traces(store, DAY, "", None).rows),
    )
    yield "fetch_calls", lambda store: agents.fetch_calls(store, DAY)
    yield "fetch_turns", lambda store: sessions.fetch_turns(store, "s", DAY.time)
    yield (
        "fetch_turn_steps",
        lambda store: sessions.fetch_turn_steps(store, sessions.fetch_turns(store, "s", DAY.time).head(20)),
    )


def rows_read(connection: Connection, mark: str) -> Mapping[str, int]:
    """Ask every question, and return the rows that the server read for each."""
    store = LoggedStore(connection, mark)
    for name, ask in cases():
        store.case = name
        ask(cast("Store", store))
    connection.command("SYSTEM FLUSH LOGS query_log", doing="reading the log")
    logged = connection.query(
        "SELECT substring(log_comment, length({mark:String}) + 2) AS name, sum(read_rows) AS rows "
        "FROM system.query_log WHERE type = 'QueryFinish' AND startsWith(log_comment, {mark:String}) GROUP BY name",
        doing="reading the log",
        parameters={"mark": mark},
    )
    return {str(name): int(rows) for name, rows in logged.iter_rows()}


def test_a_range_of_time_reads_its_rows_however_old_the_store_is(store: Store, connection: Connection) -> None:
    fill(connection, 0, EPISODES)
    before = rows_read(connection, f"{store.database} young")
    fill(connection, EPISODES, OLDER)
    after = rows_read(connection, f"{store.database} old")
    assert set(before) == set(after) == {name for name, _ in cases()}
    grown = {name: (before[name], after[name]) for name in after if after[name] > before[name] + MARGIN_ROWS}
    assert not grown


def test_rows_of_revisions_are_read_from_the_parts_that_have_them(store: Store, connection: Connection) -> None:
    for table in ("transition_rows", "episode_messages"):
        connection.command(f"SYSTEM STOP MERGES {table}", doing="keeping parts apart")
        columns = {**FILLED[table], "revision": "number"}
        for first in (0, EPISODES, 2 * EPISODES):
            connection.command(
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(columns.values())} "
                "FROM numbers({first:UInt64}, {episodes:UInt64})",
                doing="filling",
                parameters={"first": first, "episodes": EPISODES},
                settings={"async_insert": "0"},
            )
    asked = connection.query(
        f"SELECT {ID} AS episode_id, number AS revision, toUInt32(0) AS step FROM numbers(100)", doing="choosing"
    )
    logged = LoggedStore(connection, f"{store.database} parts")
    for logged.case, fetch in (("episodes", previews.fetch_previews), ("steps", previews.fetch_step_previews)):
        assert len(fetch(cast("Store", logged), asked)) == asked.height
    connection.command("SYSTEM FLUSH LOGS query_log", doing="reading the log")
    parts = connection.query(
        "SELECT log_comment, sum(ProfileEvents['SelectedRows']) AS rows FROM system.query_log "
        "WHERE type = 'QueryFinish' AND startsWith(log_comment, {mark:String}) GROUP BY log_comment",
        doing="reading the log",
        parameters={"mark": f"{store.database} parts"},
    )
    tables = {"episodes": 2, "steps": 1}
    for name, rows in parts.iter_rows():
        assert 0 < rows <= tables[name.rsplit(maxsplit=1)[1]] * EPISODES


@pytest.mark.parametrize(
    "module", [agents, facets, failures, lists, numbers, overview, policy_versions, previews, sessions]
)
def test_every_query_of_these_pages_is_asked(module: ModuleType) -> None:
    names = " ".join(name for name, _ in cases())
    public: dict[str, Any] = dict(inspect.getmembers(module, inspect.isfunction))
    fetches = {
        name for name, each in public.items() if name.startswith("fetch_") and each.__module__ == module.__name__
    }
    asked = {name for name in fetches if name in names} | {each.__name__ for _, each in LISTS.values()}
    assert fetches <= asked | OF_ALL_TIME.keys()
