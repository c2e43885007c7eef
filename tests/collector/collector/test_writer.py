"""The writer between a real spool and a real store, with faults between insert and commit."""

import asyncio
import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

from spanloop.collector import Writer
from spanloop.collector.blocks.frame_blocks import BlockStrategy, PolarsStrategy
from spanloop.collector.blocks.protobuf_blocks import ProtobufBlock, ProtobufStrategy
from spanloop.collector.health import Health
from spanloop.collector.metrics import Metrics
from spanloop.foundation.errors import NotRunningError, StoreError
from spanloop.foundation.settings.roles import CollectorSettings
from spanloop.spool import Batch, Spool, StoredRecord
from spanloop.store import Store
from spanloop.store.client import Address, Chunks, Connection

from .collectors import trace_request

MIB = 2**20
SETTINGS = CollectorSettings(linger_s=0.01, block_bytes=300, drain_timeout_s=60)


class Faults(Store):
    """A real store whose inserts fail as planned: before they run, or after, with the response lost."""

    plan: list[str]
    log: list[tuple[str, str]]

    def insert(self, table: str, frame: pl.DataFrame, *, token: str = "", until_us: int | None = None) -> int:
        with self._fault(token):
            return super().insert(table, frame, token=token, until_us=until_us)

    def insert_from(self, query_name: str, /, data: Sequence[bytes] | Chunks, *, token: str = "") -> None:
        with self._fault(token):
            super().insert_from(query_name, data, token=token)

    @contextmanager
    def _fault(self, token: str) -> Generator[None]:
        fault = self.plan.pop(0) if self.plan else ""
        self.log.append((token, fault))
        if fault == "before":
            raise StoreError("refused before it was made")
        yield
        if fault == "answer lost":
            raise StoreError("made, but the answer was lost")


class Rig:
    """One spool and one writer, with the writer's state."""

    def __init__(
        self, directory: Path, address: Address, plan: list[str], *, strategy: BlockStrategy | None = None
    ) -> None:
        self.spool = Spool(directory, max_bytes=MIB)
        self.metrics, self.health = Metrics(), Health()
        self.plan, self.log = plan, list[tuple[str, str]]()
        self._address = address
        self.writer = Writer(self.spool, self._open, self.metrics, self.health, settings=SETTINGS, strategy=strategy)

    def _open(self) -> Store:
        store = Faults.open(self._address)
        store.plan, store.log = self.plan, self.log
        return store

    async def drain(self) -> None:
        """Run the writer until the spool is empty."""
        running = asyncio.create_task(self.writer.run())
        async with asyncio.timeout(60):
            while self.spool.stats.records:
                if running.done():
                    await running
                await asyncio.sleep(0.01)
        self.writer.stop()
        await running
        self.spool.close()


def stored(connection: Connection, address: Address) -> list[int]:
    sql = f"SELECT SpanId AS id FROM `{address.database}`.otel_traces ORDER BY id"
    return [int(found, 16) for found in connection.query(sql, doing="reading")["id"]]


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.01)


async def append(spool: Spool, *span_ids: int) -> None:
    for span_id in span_ids:
        await spool.append("traces 1", trace_request(span_id).SerializeToString())


@pytest.mark.parametrize(
    "plan",
    [
        *(pytest.param(plan, marks=pytest.mark.slow) for plan in ([], ["before"], ["answer lost"])),
        ["before", "answer lost", "answer lost", ""],
        ["", "answer lost", "", "before", "before"],
    ],
)
async def test_every_span_is_stored_once_whatever_an_insert_does(
    tmp_path: Path, address: Address, connection: Connection, plan: list[str]
) -> None:
    failures = sum(bool(fault) for fault in plan)
    rig = Rig(tmp_path / "spool", address, plan)
    await append(rig.spool, *range(1, 9))
    await rig.drain()
    assert stored(connection, address) == list(range(1, 9))
    assert rig.metrics.get("inserted_total") == 8
    assert rig.metrics.get("insert_failures_total") == failures
    assert rig.health.error == ""


async def test_nothing_newer_is_sent_before_an_unknown_outcome_is_resolved(
    tmp_path: Path, address: Address, connection: Connection
) -> None:
    rig = Rig(tmp_path / "spool", address, ["", "answer lost", "answer lost", ""])
    await append(rig.spool, *range(1, 9))
    await rig.drain()
    tokens = [token for token, _ in rig.log]
    assert tokens[1] == tokens[2] == tokens[3]
    later = tokens[4:]
    assert later
    assert len(set(tokens)) == len(later) + 2
    assert stored(connection, address) == list(range(1, 9))


async def test_a_crash_between_insert_and_commit_stores_nothing_twice(
    tmp_path: Path, address: Address, connection: Connection, store: Store
) -> None:
    spool = Spool(tmp_path / "spool", max_bytes=MIB)
    await append(spool, 1, 2, 3)
    batch = spool.read(MIB)
    assert batch is not None
    assert PolarsStrategy().prepare(batch).insert(store).rows == 3
    spool.close()
    rig = Rig(tmp_path / "spool", address, [])
    await append(rig.spool, 4)
    await rig.drain()
    assert stored(connection, address) == [1, 2, 3, 4]


async def test_a_record_that_became_unreadable_is_counted_and_skipped(
    tmp_path: Path, address: Address, connection: Connection
) -> None:
    rig = Rig(tmp_path / "spool", address, [])
    await append(rig.spool, 1)
    await rig.spool.append("traces", b"\xff no protobuf")
    await append(rig.spool, 2)
    await rig.drain()
    assert stored(connection, address) == [1, 2]
    assert rig.metrics.get("unreadable_records_total") == 1


class Flipping(ProtobufStrategy):
    """Flips the last byte of the second record behind the first block that it sees: it was whole when it was read."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self.seen = list[str]()

    def prepare(self, batch: Batch) -> ProtobufBlock:
        if not self.seen:
            (segment,) = self._directory.glob("*.segment")
            second = batch.records[1]
            assert isinstance(second, StoredRecord)
            with segment.open("r+b") as file:
                file.seek(second.offset + second.body_bytes - 1)
                file.write(bytes([second.body[-1] ^ 1]))
        self.seen.append(batch.block_id)
        return super().prepare(batch)


async def test_a_record_that_changes_before_its_insert_is_skipped_alone(
    tmp_path: Path, address: Address, connection: Connection
) -> None:
    strategy = Flipping(tmp_path / "spool")
    rig = Rig(tmp_path / "spool", address, [], strategy=strategy)
    await append(rig.spool, 1, 2, 3)
    quarantined = rig.spool.stats.quarantined
    await rig.drain()
    assert stored(connection, address) == [1, 3]
    assert len(set(strategy.seen)) == 1
    assert rig.spool.stats.quarantined == quarantined + 1


async def test_a_disk_that_fails_commits_for_a_while_duplicates_nothing(
    tmp_path: Path, address: Address, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path / "spool", address, [])
    await append(rig.spool, 1)
    real = os.fdatasync
    calls = 0

    def failing_second_and_third(fd: int) -> None:
        nonlocal calls
        calls += 1
        if calls in {2, 3}:
            raise OSError(28, "No space left on device")
        real(fd)

    monkeypatch.setattr(os, "fdatasync", failing_second_and_third)
    await rig.drain()
    assert calls == 4
    assert stored(connection, address) == [1]
    assert rig.health.error == ""


async def test_a_stopping_writer_sends_every_block_that_waits(
    tmp_path: Path, address: Address, connection: Connection
) -> None:
    rig = Rig(tmp_path / "spool", address, [])
    await append(rig.spool, *range(1, 9))
    rig.health.mark_connected()
    rig.writer.stop()
    async with asyncio.timeout(60):
        await rig.writer.run()
    rig.spool.close()
    assert len(rig.log) > 1
    assert stored(connection, address) == list(range(1, 9))


@pytest.mark.slow
async def test_a_disk_that_keeps_failing_stops_the_writer_without_an_error(
    tmp_path: Path, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path / "spool", address, [])
    await append(rig.spool, 1)

    def failing(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", failing)
        running = asyncio.create_task(rig.writer.run())
        async with asyncio.timeout(60):
            await asyncio.to_thread(wait_until, lambda: "No space left" in rig.health.error)
            rig.writer.stop()
            await running
    assert rig.spool.stats.records == 1
    rig.spool.close()


async def test_without_a_store_the_spool_keeps_everything_and_the_writer_stops_at_once(tmp_path: Path) -> None:
    def refuse() -> Store:
        raise NotRunningError("No ClickHouse runs.")

    health, metrics = Health(), Metrics()
    with Spool(tmp_path / "spool", max_bytes=MIB) as spool:
        await append(spool, 1, 2)
        writer = Writer(spool, refuse, metrics, health, settings=SETTINGS)
        running = asyncio.create_task(writer.run())
        async with asyncio.timeout(60):
            await asyncio.to_thread(wait_until, lambda: metrics.get("insert_failures_total") > 0)
            assert "No ClickHouse runs" in health.error
            writer.stop()
            await running
        assert spool.stats.records == 2
