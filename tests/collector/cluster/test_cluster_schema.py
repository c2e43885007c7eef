"""The two forms of the schema: what a cluster's statements are, and in what the forms of a cluster differ."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import pytest

from spanloop.foundation.errors import StoreError
from spanloop.foundation.tables import TABLES
from spanloop.store.client import Address, Connection
from spanloop.store.cluster import SHARDINGS, Cluster, Form, cluster_statements, is_schema_statement
from spanloop.store.cluster.sharding import CROSSING_VIEWS
from spanloop.store.migrate import migrations
from spanloop.store.named_queries import named_query, query_names

SERVERS: Final = Cluster("shards", "spanloop", Form.SERVERS, shards=2, servers=2)
KEEPER: Final = SERVERS._replace(form=Form.KEEPER)
CLOUD: Final = SERVERS._replace(form=Form.CLOUD)

STATEMENTS: Final = [statement for migration in migrations() for statement in migration.statements]
MUTATIONS: Final = [
    named_query(name).sql for name in query_names() if is_schema_statement(named_query(name).sql)
]  # fmt: skip
TABLE: Final = """CREATE TABLE IF NOT EXISTS scores (
    score_id String
) ENGINE = ReplacingMergeTree(ingested_at)
ORDER BY score_id
SETTINGS non_replicated_deduplication_window = 1000"""


def test_a_table_is_a_table_of_each_shard_and_a_distributed_one() -> None:
    of_shard, distributed = cluster_statements(TABLE, SERVERS)
    assert of_shard == TABLE.replace(" scores ", " scores_shard ")
    assert distributed == (
        "CREATE TABLE IF NOT EXISTS scores AS scores_shard "
        "ENGINE = Distributed('shards', 'spanloop', 'scores_shard', cityHash64(score_id))"
    )


def test_a_keeper_replicates_the_tables_of_shards() -> None:
    of_shard, distributed = cluster_statements(TABLE, KEEPER)
    assert (
        "ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}',"
        in of_shard
    )
    assert of_shard.endswith(
        "SETTINGS replicated_deduplication_window = 1000, replicated_deduplication_window_seconds = 604800"
    )
    assert distributed.startswith(
        "CREATE TABLE IF NOT EXISTS scores ON CLUSTER 'shards' AS scores_shard ENGINE = Distr"
    )


def test_the_cloud_has_plain_tables() -> None:
    assert cluster_statements(TABLE, CLOUD) == [
        TABLE.replace(
            "non_replicated_deduplication_window = 1000",
            "replicated_deduplication_window = 1000, replicated_deduplication_window_seconds = 604800",
        )
    ]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("CREATE DATABASE IF NOT EXISTS `a`", ["CREATE DATABASE IF NOT EXISTS `a`"]),
        ("ALTER TABLE scores DELETE WHERE 1", ["ALTER TABLE scores_shard DELETE WHERE 1"]),
        ("-- Erase.\nDELETE FROM scores\nWHERE 1", ["DELETE FROM scores_shard\nWHERE 1"]),
        ("ALTER TABLE scores MODIFY TTL a", ["ALTER TABLE scores_shard MODIFY TTL a"]),
        ("ALTER TABLE scores ADD INDEX i", ["ALTER TABLE scores_shard ADD INDEX i"]),
        (
            "ALTER TABLE scores ADD COLUMN a String",
            ["ALTER TABLE scores_shard ADD COLUMN a String", "ALTER TABLE scores ADD COLUMN a String"],
        ),
        ("DROP TABLE IF EXISTS scores", ["DROP TABLE IF EXISTS scores", "DROP TABLE IF EXISTS scores_shard"]),
        ("DROP VIEW IF EXISTS step_summaries_mv", ["DROP VIEW IF EXISTS step_summaries_mv"]),
        ("TRUNCATE TABLE scores", ["TRUNCATE TABLE IF EXISTS scores_shard"]),
        (
            "ALTER TABLE step_summaries_mv MODIFY QUERY\nSELECT 1 FROM transition_rows",
            ["ALTER TABLE step_summaries_mv MODIFY QUERY\nSELECT 1 FROM transition_rows_shard"],
        ),
        (
            "CREATE MATERIALIZED VIEW IF NOT EXISTS v TO failures AS SELECT 1 FROM episodes",
            ["CREATE MATERIALIZED VIEW IF NOT EXISTS v TO failures_shard AS SELECT 1 FROM episodes_shard"],
        ),
    ],
)
def test_statements_act_on_the_tables_of_shards(statement: str, expected: Sequence[str]) -> None:
    assert cluster_statements(statement, SERVERS) == expected


def test_a_renamed_table_gets_a_new_distributed_one() -> None:
    rename, drop, create = cluster_statements("RENAME TABLE legacy_transitions TO failures", KEEPER)
    assert rename == "RENAME TABLE IF EXISTS legacy_transitions_shard TO failures_shard ON CLUSTER 'shards'"
    assert drop == "DROP TABLE IF EXISTS legacy_transitions ON CLUSTER 'shards'"
    assert create.startswith("CREATE TABLE IF NOT EXISTS failures ON CLUSTER 'shards' AS failures_shard")


def test_a_form_that_is_not_translated_is_refused() -> None:
    with pytest.raises(StoreError, match="cluster 'shards': 'ALTER USER me' has a form"):
        cluster_statements("ALTER USER me", SERVERS)


def test_every_table_is_sharded() -> None:
    assert set(SHARDINGS) == {*TABLES, "schema_migrations"}


REPLACING: Final = re.compile(
    r"CREATE TABLE IF NOT EXISTS (\w+).*?\n\) ENGINE = (?:Replacing|Aggregating)\w+.*?\nORDER BY ([^\n]+)", re.DOTALL
)
KEYS: Final = {match[1]: match[2] for match in map(REPLACING.match, STATEMENTS) if match}


@pytest.mark.parametrize("table", sorted(KEYS))
def test_a_row_that_replaces_another_is_on_its_shard(table: str) -> None:
    columns = set(re.findall(r"[A-Za-z_]+", SHARDINGS[table].key.removeprefix("cityHash64")))
    sorting_columns = set(re.findall(r"[A-Za-z_]+", KEYS[table]))
    if table == "generations":
        assert columns == {"response_id"}  # generation_id is the response id, a slash and the number of the choice
        return
    assert columns <= sorting_columns


def test_views_of_one_shard_read_and_fill_tables_that_are_spread_alike() -> None:
    crossing = set[str]()
    for statement in STATEMENTS:
        if match := re.match(r"CREATE MATERIALIZED VIEW IF NOT EXISTS (\w+) TO (\w+) AS", statement):
            tables = {match[2], *re.findall(r"(?:FROM|JOIN)\s+(\w+)", statement)}
            if len({SHARDINGS[table].by for table in tables if table in SHARDINGS}) > 1:
                crossing.add(match[1])
    assert crossing == CROSSING_VIEWS


def without_differences(statement: str) -> str:
    """Return a statement of the form with a Keeper as the form without one has it."""
    text = statement.replace(" ON CLUSTER 'shards'", "")
    text = re.sub(r"Replicated(\w+)\('[^']+', '\{replica\}'(?:, (\w+))?\)", r"\1(\2)", text).replace(
        "MergeTree()", "MergeTree"
    )
    return re.sub(
        r"replicated_deduplication_window = (\d+), replicated_deduplication_window_seconds = 604800",
        r"non_replicated_deduplication_window = \1",
        text,
    )


@pytest.mark.parametrize(
    "statement", [*filter(is_schema_statement, STATEMENTS), *MUTATIONS], ids=lambda text: text[:60]
)
def test_the_form_that_tests_run_differs_in_engine_cluster_clause_and_window_alone(statement: str) -> None:
    """``internal_replication`` of the servers' configuration is the other difference; see `clickhouse_cluster`."""
    for tested, production in zip(
        cluster_statements(statement, SERVERS), cluster_statements(statement, KEEPER), strict=True
    ):
        assert " ON CLUSTER 'shards'" in production
        assert without_differences(production) == tested


@pytest.fixture(scope="module")
def parser(clickhouse: Address) -> Iterator[Connection]:
    connection = Connection(clickhouse, database="default")
    yield connection
    connection.close()


def test_clickhouse_parses_the_statements_of_every_form(parser: Connection) -> None:
    """A statement with parameters is parsed with literals in their place, as ``ON CLUSTER`` sends it."""
    for statement in [*STATEMENTS, *MUTATIONS]:
        for cluster in (KEEPER, CLOUD):
            for translated in cluster_statements(statement, cluster) if is_schema_statement(statement) else [statement]:
                text = re.sub(r"\{\w+:Array[^}]*\}", "['a']", translated)
                text = re.sub(r"\{(\w+):[^}]*\}", "1", text)
                parser.command(f"EXPLAIN AST {text}", doing="parsing")
