"""A store on two shards: blocks, views, mutations, readers and a copy from one server."""
# pyright: reportPrivateUsage=false

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

from spanloop.administration.copying import check_copy, copy_store
from spanloop.administration.forget import forget
from spanloop.administration.retention import retention, set_retention
from spanloop.foundation.errors import ConfigurationError, StoreError
from spanloop.store import Store
from spanloop.store.client import Address
from spanloop.store.model_call_marks import mark_model_calls
from spanloop.store.read_only import DEFAULT_LIMITS, _settings
from spanloop.store.refilled_views import refill_views

from ...clickhouse_cluster import NAME, ClickHouseCluster
from ...conftest import Rows

DAY_NS: Final = 86_400 * 10**9
NOW_NS: Final = 20_000 * DAY_NS


def nothing(*_: object) -> None: ...


def insert(store: Store, table: str, rows: Rows, *, token: str = "") -> None:
    store.insert(table, pl.DataFrame(rows, schema=store.schema(table)), token=token)


def spans(traces: Sequence[int], *, service: str = "shop", name: str = "chat", **attributes: str) -> Rows:
    return [
        {
            "Timestamp": NOW_NS + number,
            "TraceId": f"{number:032x}",
            "SpanId": f"{number:016x}",
            "SpanName": name,
            "ServiceName": service,
            "SpanAttributes": {"gen_ai.operation.name": "chat", **attributes},
        }
        for number in traces
    ]


def counts(store: Store, sql: str) -> list[tuple[Any, ...]]:
    return store.connection.query(sql, doing="counting").rows()


def of_each_server(store: Store, sql: str) -> list[int]:
    return [
        int(connection.query(sql, doing="counting").item())
        for connection in store.connection._connection_of_each_server()
    ]


def test_a_block_is_on_both_shards_and_once(sharded_store: Store) -> None:
    frame = spans(range(1_000, 1_040), **{"session.id": "block"})
    for _ in range(2):
        insert(sharded_store, "otel_traces", frame, token="block-1")
    of_shards = of_each_server(sharded_store, "SELECT count() FROM otel_traces_shard WHERE SessionId = 'block'")
    assert sum(of_shards) == 40
    assert min(of_shards) > 0
    summed = "SELECT count(), sum(length(spans)) FROM trace_summaries WHERE session_id = 'block'"
    assert counts(sharded_store, summed) == [(40, 40)]


def test_scores_of_log_records_are_spread_by_their_own_key(sharded_store: Store) -> None:
    """Two blocks with the same scores and other traces: the same score replaces itself, on whichever shard."""
    rows = [
        {
            "Timestamp": NOW_NS + number,
            "TraceId": f"{number:032x}",
            "ServiceName": "scored",
            "EventName": "gen_ai.evaluation.result",
            "LogAttributes": {
                "gen_ai.evaluation.name": "reward",
                "gen_ai.evaluation.score.value": "1",
                "spanloop.score.id": f"own-{number % 20}",
            },
        }
        for number in range(2_000, 2_040)
    ]
    for _ in range(2):
        insert(sharded_store, "otel_logs", rows, token="scores")
    found = "SELECT count(), uniqExact(score_id) FROM scores FINAL WHERE startsWith(score_id, 'own-')"
    assert counts(sharded_store, found) == [(20, 20)]
    assert counts(sharded_store, "SELECT count() FROM scores WHERE startsWith(score_id, 'own-')") == [(20,)]
    assert counts(sharded_store, "SELECT count() FROM otel_logs WHERE ServiceName = 'scored'") == [(40,)]


def test_log_records_without_a_trace_are_on_both_shards(sharded_store: Store) -> None:
    rows = [{"Timestamp": NOW_NS + number, "ServiceName": "traceless", "Body": str(number)} for number in range(40)]
    insert(sharded_store, "otel_logs", rows)
    assert min(of_each_server(sharded_store, "SELECT count() FROM otel_logs_shard WHERE ServiceName = 'traceless'")) > 0


def test_views_are_filled_again(sharded_store: Store) -> None:
    frame = spans(range(3_000, 3_010), **{"session.id": "refilled"})
    insert(sharded_store, "otel_traces", frame)
    sharded_store.connection.command(
        "ALTER TABLE trace_summaries DELETE WHERE session_id = 'refilled' SETTINGS mutations_sync = 2", doing="erasing"
    )
    summed = "SELECT uniqExact(trace_id) FROM trace_summaries WHERE session_id = 'refilled'"
    assert counts(sharded_store, summed) == [(0,)]
    ids = [str(row["TraceId"]) for row in frame]
    refill_views(sharded_store, "otel_traces", ids[:7], NOW_NS, NOW_NS + DAY_NS)
    assert counts(sharded_store, summed) == [(7,)]


def test_a_trace_is_forgotten_on_every_shard(sharded_store: Store) -> None:
    frame = spans(range(4_000, 4_010), **{"session.id": "forgotten", "user.id": "somebody"})
    insert(sharded_store, "otel_traces", frame)
    insert(sharded_store, "scores", [{"score_id": "f", "session_id": "forgotten"}])
    forget(sharded_store, user_id="somebody", session_id="forgotten")
    for table in ("otel_traces", "trace_summaries"):
        column = "TraceId" if table == "otel_traces" else "trace_id"
        ids = [str(row["TraceId"]) for row in frame]
        assert counts(sharded_store, f"SELECT count() FROM {table} WHERE {column} IN {tuple(ids)}") == [(0,)]
    assert counts(sharded_store, "SELECT count() FROM scores WHERE score_id = 'f'") == [(0,)]


def test_model_calls_are_marked_on_every_shard(sharded_store: Store) -> None:
    insert(sharded_store, "otel_traces", spans(range(5_000, 5_010), service="marked", name="odd"))
    while mark_model_calls(sharded_store, "SpanName != 'odd'", max_s=60):
        pass
    sql = "SELECT countIf(IsModelCall), count() FROM otel_traces WHERE ServiceName = 'marked'"
    assert counts(sharded_store, f"{sql} SETTINGS mutations_sync = 2")[0][1] == 10
    assert mark_model_calls(sharded_store, "SpanName != 'odd'", max_s=60) == 0


@pytest.mark.slow
def test_retention_is_that_of_the_tables_of_shards(sharded_store: Store) -> None:
    set_retention(sharded_store, 30_000)
    assert retention(sharded_store) == 30_000
    ttls = of_each_server(
        sharded_store,
        "SELECT count() FROM system.tables WHERE database = currentDatabase() AND engine_full LIKE '%TTL%86400%'",
    )
    assert ttls == [4, 4]


def test_a_limited_reader_sees_the_rows_of_its_services(sharded_store: Store, cluster: ClickHouseCluster) -> None:
    insert(sharded_store, "otel_traces", spans(range(6_000, 6_020), service="visible"))
    insert(sharded_store, "otel_traces", spans(range(6_020, 6_040), service="hidden"))
    address = cluster.address("shared")
    with Store(address, _settings(address, DEFAULT_LIMITS, ["visible"])) as reader:
        seen = "SELECT ServiceName, count() FROM {} WHERE TraceId >= {} AND TraceId < {} GROUP BY ServiceName"
        for table in ("otel_traces", "otel_traces_shard", f"cluster('{NAME}', currentDatabase(), otel_traces_shard)"):
            found = reader.connection.query(
                seen.format(table, f"'{6_000:032x}'", f"'{6_040:032x}'"), doing="reading"
            ).rows()
            assert [name for name, _ in found] == ["visible"]
        assert reader.connection.query(
            "SELECT uniqExact(service_name), count() FROM trace_summaries WHERE service_name IN ('visible', 'hidden')",
            doing="reading",
        ).rows() == [(1, 20)]
        with pytest.raises(StoreError):
            reader.connection.command("INSERT INTO scores (score_id) VALUES ('x')", doing="writing")


def test_what_one_server_lacks_is_made_again(cluster: ClickHouseCluster) -> None:
    """As when a migration was interrupted between two servers, or a copy was added."""
    with Store.open(cluster.address("lacking")) as store:
        second = store.connection._connection_of_each_server()[1]
        for statement in ("DROP TABLE step_summaries_mv", "DROP TABLE scores", "DROP TABLE failures_shard SYNC"):
            second.command(statement, doing="dropping")
    with Store.open(cluster.address("lacking")) as store:
        insert(store, "failures", [{"episode_id": f"e{number}", "failure_id": "f"} for number in range(20)])
        assert min(of_each_server(store, "SELECT count() FROM failures_shard")) > 0
        assert min(of_each_server(store, "SELECT count() FROM failure_summaries_shard")) > 0
        columns = "SELECT count() FROM system.columns WHERE database = currentDatabase()"
        assert len(set(of_each_server(store, columns))) == 1


def test_a_store_opens_while_a_copy_is_down(tmp_path: Path) -> None:
    with ClickHouseCluster(tmp_path / "cluster", shards=1, copies=2) as cluster:
        Store.open(cluster.address("opened")).close()
        cluster.servers[0].kill()
        with Store.open(cluster.address("opened")) as store:
            assert store.query("store_counts").height > 10
        with pytest.raises(StoreError, match=r"unreachable while connecting to .*/new: Connection refused"):
            Store.open(cluster.address("new"))


def test_another_number_of_shards_is_refused(cluster: ClickHouseCluster) -> None:
    with Store.open(cluster.address("resharded")) as store:
        store.connection.command(
            "ALTER TABLE schema_migrations UPDATE name = '3' WHERE state = 'shards' SETTINGS mutations_sync = 2",
            doing="changing the number of shards",
        )
    with pytest.raises(StoreError, match="was made on 3 shards; the cluster 'two_shards' has 2"):
        Store.open(cluster.address("resharded"))


def test_a_cluster_that_the_server_does_not_know_is_refused(cluster: ClickHouseCluster) -> None:
    with pytest.raises(ConfigurationError, match=r"has no cluster 'three_shards'; it has .*'two_shards'"):
        Store(replace(cluster.address("shared"), cluster="three_shards"))


def test_without_a_keeper_all_servers_are_named(cluster: ClickHouseCluster) -> None:
    with Store(replace(cluster.address("shared"), others=())) as store:
        assert store.query("store_counts").height > 10
        with pytest.raises(StoreError, match=r"has 2 servers and no Keeper, so .* names 1"):
            store.connection.command("TRUNCATE TABLE scores", doing="emptying")


def test_the_next_server_takes_over(cluster: ClickHouseCluster) -> None:
    address = cluster.address("shared")
    (host, port), *_ = address.others
    first_is_away = replace(address, port=9, others=((host, port),))
    with Store(first_is_away) as store:
        assert store.query("store_counts").height > 10
    with pytest.raises(StoreError, match=r"None of 2 ClickHouse servers answers: .*127\.0\.0\.1:9/.*127\.0\.0\.1:10/"):
        Store(replace(address, port=9, others=((host, 10),)))


@pytest.mark.slow
def test_a_store_of_one_server_is_copied_into_a_cluster_and_back(
    store: Store, address: Address, cluster: ClickHouseCluster
) -> None:
    insert(store, "otel_traces", spans(range(7_000, 7_040)))
    insert(store, "scores", [{"score_id": "c"}])
    with Store.open(cluster.address("copied")) as target:
        check_copy(copy_store(store, target, on_progress=nothing), target)
        again = copy_store(store, target, on_progress=nothing)
        assert {table.name: table.sent for table in again if table.sent} == {}
        assert counts(target, "SELECT count(), uniqExact(TraceId) FROM otel_traces") == [(40, 40)]
        with Store.open(replace(address, database=f"{address.database}_back")) as back:
            check_copy(copy_store(target, back, on_progress=nothing), back)
            assert counts(back, "SELECT count() FROM otel_traces") == [(40,)]


def test_the_index_of_words_and_the_filter_of_a_view_reach_the_shards(sharded_store: Store) -> None:
    insert(sharded_store, "episode_messages", [{"episode_id": "words", "revision": 1, "message": '"refund"'}])
    for statement, expected in (
        ("SELECT count() FROM episode_messages WHERE hasAllTokens(words, ['refund'])", "idx_words"),
        ("SELECT * FROM transitions WHERE episode_id = 'words'", "episode_id in ['words', 'words']"),
    ):
        plan = counts(sharded_store, f"EXPLAIN PLAN distributed = 1, indexes = 1 {statement}")
        assert any(expected in line for (line,) in plan)
