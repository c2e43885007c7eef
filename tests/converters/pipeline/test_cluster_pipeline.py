"""The pipeline on a ClickHouse cluster: the same episodes as on one server, also when a copy gets rows late."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from spanloop.foundation.tables import TABLES
from spanloop.pipeline import run
from spanloop.store import Store
from spanloop.store.client import Connection

from ...clickhouse_cluster import PASSWORD, USER, ClickHouseCluster
from ..converters.converters_world import trace_id
from ..converters.pipeline_feed import Feed
from .test_concurrent import assert_converted
from .test_order_of_arrival import fill

pytestmark = pytest.mark.slow
CONVERTED = ("episodes", "transitions", "failures", "trajectories", "episode_messages")
SUMMARIES = ("episode_summaries", "failure_summaries", "trace_summaries")
LATE_MINUTES = 10 / 60
NOT_COPIED = {"schema_migrations", "transitions"}


@pytest.fixture
def sharded_feed(tmp_path: Path) -> Iterator[Feed]:
    with ClickHouseCluster(tmp_path / "cluster") as cluster, Store.open(cluster.address("converted")) as store:
        connection = Connection(cluster.address("converted"))
        yield Feed(store, connection)
        connection.close()


def test_two_shards_have_the_episodes_of_one_server(feed: Feed, sharded_feed: Feed) -> None:
    for each in (feed, sharded_feed):
        chance = random.Random(3)
        fill(each.world, chance)
        order = chance.sample(range(len(each.world.spans)), len(each.world.spans))
        while order:
            size = chance.randint(4, 12)
            each.send(order[:size])
            order = order[size:]
            each.world.score(chance.choice([0.0, 1.0]), trace_id=trace_id("l2"))
            run(each.store, batch_spans=chance.choice([7, 100]))
        each.send([0])
        run(each.store)
    assert_converted(sharded_feed)
    for table in CONVERTED:
        assert sharded_feed.current(table).equals(feed.current(table)), table
    for table in SUMMARIES:
        statement = f"SELECT count(), sum(cityHash64({summarised(table)})) FROM {table} FINAL"
        assert sharded_feed.sql(statement).row(0) == feed.sql(statement).row(0), table


def summarised(table: str) -> str:
    return "trace_id, started_at, ended_at, length(spans)" if table == "trace_summaries" else "episode_id, revision"


def test_a_copy_that_gets_rows_ten_seconds_late_skips_no_span(tmp_path: Path) -> None:
    """The first copy takes a block and dies; the pipeline goes on with the second, which gets the block later."""
    with ClickHouseCluster(tmp_path / "cluster", shards=1, copies=2, internal_replication=True) as cluster:
        first = cluster.servers[0]
        address = cluster.address("late")
        with Store.open(address) as store:
            connection = Connection(address)
            feed = Feed(store, connection)
            fill(feed.world, random.Random(4))
            positions = range(len(feed.world.spans))
            feed.send(positions[0::3])
            run(store)
            copied = Connection(address.servers[1])
            for table in sorted(TABLES.keys() - NOT_COPIED):
                source = f"remote('127.0.0.1:{first.folder.name}', late, {table}_shard, '{USER}', '{PASSWORD}')"
                copied.command(f"INSERT INTO {table}_shard SELECT * FROM {source}", doing="replicating")
            feed.send(positions[1::3])  # the second copy lags: it does not get this block now
            blocks = connection.read(
                "SELECT * FROM otel_traces_shard ORDER BY IngestedAt DESC LIMIT 1 BY SpanId", "Native", doing="reading"
            )
            first.kill()
            store.query("store_clock")  # a query takes the next server
            feed.send(positions[2::3], minutes=LATE_MINUTES)
            run(store)
            missing = len(positions) - feed.sql("SELECT uniqExact(SpanId) FROM otel_traces").item()
            assert missing > 0
            copied.insert_bytes("otel_traces_shard", list(store.schema("otel_traces")), blocks, "Native")
            run(store)
            assert feed.sql("SELECT uniqExact(SpanId) FROM otel_traces").item() == len(positions)
            assert_converted(feed)
            copied.close()
            connection.close()
