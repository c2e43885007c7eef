"""The client's questions have the same answers on two shards as on one server."""

import time
from collections.abc import Iterator

import pytest
from asking.questions import QUESTIONS, Question, World, ask_client, ask_tables
from asking.store import choose_world, fill_to_ask

from spanloop.client import Client
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_CLUSTER_ENV, CLICKHOUSE_URL_ENV, DATA_DIR_ENV
from spanloop.store import Store

from ...clickhouse_cluster import NAME, ClickHouseCluster

pytestmark = pytest.mark.slow
EPISODES = 600


@pytest.fixture(scope="module")
def generated_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ClickHouseCluster, World]]:
    """Two shards with generated spans, and what is in them."""
    end_s = int(time.time()) // 3_600 * 3_600
    with ClickHouseCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        with Store.open(cluster.address("asked")) as store:
            fill_to_ask(store.connection, EPISODES, end_s * 10**9)
            world = choose_world(store.connection, start_s=end_s - 40_000, end_s=end_s - 5_000)
        yield cluster, world


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.text)
def test_answers_on_two_shards_are_those_of_plain_sql(
    question: Question,
    generated_cluster: tuple[ClickHouseCluster, World],
    data_dir: DataDir,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, world = generated_cluster
    monkeypatch.setenv(DATA_DIR_ENV, str(data_dir.path))
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, cluster.urls("asked"))
    monkeypatch.setenv(CLICKHOUSE_CLUSTER_ENV, NAME)
    with Client() as client, Store(cluster.address("asked")) as store:
        expected = ask_tables(store.connection, question, world)
        assert expected not in ([], [(0,)])
        assert ask_client(client, question, world) == expected
