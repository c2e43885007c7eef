"""Several collectors, each with a spool of its own, that write to one ClickHouse."""

from pathlib import Path

import pytest

from spanloop.collector.blocks.protobuf_blocks import ProtobufStrategy
from spanloop.spool import Spool
from spanloop.store import Store

from .collectors import trace_request

MIB = 2**20


async def test_equal_requests_in_two_spools_are_stored_twice_and_their_retries_not(
    tmp_path: Path, store: Store
) -> None:
    body = trace_request(1, 2).SerializeToString()
    strategy = ProtobufStrategy()
    blocks: set[str] = set()
    for name in ("first", "second"):
        with Spool(tmp_path / name, max_bytes=MIB) as spool:
            await spool.append("traces 2", body)
            batch = spool.read(MIB)
            assert batch is not None
            blocks.add(batch.block_id)
            for _ in range(3):
                strategy.prepare(batch).insert(store)
    assert len(blocks) == 2
    assert store.query("demo_totals").row(0, named=True)["spans"] == 4


@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_a_retry_is_recognised_after_a_thousand_blocks_of_another_collector(tmp_path: Path, store: Store) -> None:
    strategy = ProtobufStrategy()
    with Spool(tmp_path / "killed", max_bytes=MIB) as killed, Spool(tmp_path / "other", max_bytes=MIB) as other:
        await killed.append("traces 1", trace_request(1).SerializeToString())
        unanswered = killed.read(MIB)
        assert unanswered is not None
        strategy.prepare(unanswered).insert(store)
        for number in range(2, 1052):
            await other.append("traces 1", trace_request(number).SerializeToString())
            batch = other.read(1)
            assert batch is not None
            strategy.prepare(batch).insert(store)
            other.commit(batch)
        strategy.prepare(unanswered).insert(store)
    assert store.query("demo_totals").row(0, named=True)["spans"] == 1051
