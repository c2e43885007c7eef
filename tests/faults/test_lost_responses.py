"""ClickHouse runs an INSERT and its response is lost: the same block is inserted again, at once or after a restart."""

from collections import Counter
from dataclasses import replace
from typing import Final

import pytest

from spanloop.collector.blocks.protobuf_blocks import ProtobufStrategy
from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.errors import StoreError
from spanloop.spool import Batch, Record
from spanloop.store import Store

from ..collector.collector.collectors import trace_request
from .lossy_proxy import Loss, LossyProxy
from .support import (
    MEMORY_CAP_BYTES,
    SMALL_SPOOL,
    FailpointCollector,
    Scene,
    Senders,
    find_ids,
    kill_clickhouse,
    url_of,
    wait_for,
)

ROUNDS: Final = pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.slow)])


def lose_responses(proxy: LossyProxy, loss: Loss, count: int) -> None:
    """Wait until ``count`` more responses are lost."""
    enough = proxy.lost + count
    proxy.loss = loss
    wait_for(lambda: proxy.lost >= enough, "responses to lose")


def wait_for_inserts(collector: FailpointCollector) -> None:
    """Wait for the next confirmed insert."""
    before = collector.health()["last_insert"]
    wait_for(lambda: collector.health()["last_insert"] != before, "an insert")


@pytest.mark.slow
@ROUNDS
def test_a_response_is_lost_and_the_block_is_inserted_again(scene: Scene, times: int, rounds: int) -> None:
    with LossyProxy(scene.address.port) as proxy:
        collector = scene.launch(*SMALL_SPOOL, url=url_of(scene.address, proxy.port))
        with Senders(collector.url, scene.ledger, pause_s=0.02):
            for _ in range(rounds * times):
                lose_responses(proxy, Loss.CLOSED, 2)
                proxy.loss = Loss.NONE
                wait_for_inserts(collector)
        collector.finish()
    assert scene.settle(f"answer-lost-retried-at-once (rounds={rounds * times})").acknowledged > 0


@pytest.mark.slow
@ROUNDS
def test_a_response_is_lost_and_the_collector_is_restarted(scene: Scene, times: int, rounds: int) -> None:
    with LossyProxy(scene.address.port) as proxy:
        for _ in range(rounds * times):
            proxy.loss = Loss.NONE
            collector = scene.launch(*SMALL_SPOOL, url=url_of(scene.address, proxy.port))
            with Senders(collector.url, scene.ledger, pause_s=0.02):
                wait_for_inserts(collector)
                lose_responses(proxy, Loss.SILENT, 1)
                collector.kill()
    scene.launch().finish()
    assert scene.settle(f"answer-lost-collector-restarted (rounds={rounds * times})").acknowledged > 0


def test_a_request_that_ends_between_two_records_stores_none_of_them(scene: Scene) -> None:
    """The truncated body is a valid protobuf request; only HTTP detects it. The retried block is stored once."""
    bodies = [trace_request(each).SerializeToString() for each in scene.ledger.new_ids(10)]
    assert len({len(body) for body in bodies}) <= 2, "ids of one and of two digits"
    batch = Batch("ab" * 16, tuple(Record("traces 1", body, at, 0) for at, body in enumerate(bodies, 1)))
    Store.open(scene.address).close()
    with LossyProxy(scene.address.port) as proxy, Store(replace(scene.address, port=proxy.port)) as store:
        block = ProtobufStrategy().prepare(batch)
        for missing in range(1, 10):
            proxy.cut_bytes = sum(map(len, bodies[-missing:]))
            with pytest.raises(StoreError):
                block.insert(store)
            assert not find_ids(scene.address), f"stored {10 - missing} records of a request that was cut off"
        proxy.cut_bytes = 0
        assert block.insert(store) == (10, 0)
    assert find_ids(scene.address) == Counter(range(1, 11))


@pytest.mark.slow
def test_a_response_is_lost_and_clickhouse_is_restarted(own_scene: Scene, times: int) -> None:
    with EmbeddedClickHouse(own_scene.data_dir, memory_cap_bytes=MEMORY_CAP_BYTES) as clickhouse:
        address = own_scene.address
        with LossyProxy(address.port) as proxy:
            collector = own_scene.launch(*SMALL_SPOOL, url=url_of(address, proxy.port))
            with Senders(collector.url, own_scene.ledger, pause_s=0.02):
                for _ in range(5 * times):
                    wait_for_inserts(collector)
                    lose_responses(proxy, Loss.CLOSED, 1)
                    kill_clickhouse(clickhouse)
                    proxy.loss = Loss.NONE
            collector.finish()
        assert own_scene.settle(f"answer-lost-clickhouse-restarted (rounds={5 * times})").acknowledged > 0
