"""A block that ClickHouse had noted and lost when it was killed is stored whole when it is sent again."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest
from clickhouse_connect.driver.exceptions import DatabaseError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from spanloop.collector import Writer, dead_letters
from spanloop.collector.blocks import lost_rows
from spanloop.collector.blocks.frame_blocks import BlockStrategy, PolarsStrategy
from spanloop.collector.blocks.protobuf_blocks import ProtobufStrategy
from spanloop.collector.dead_letters import DeadLetter, RejectReason, Signal
from spanloop.collector.health import Health
from spanloop.collector.metrics import Metrics
from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.errors import StoreError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import CollectorSettings
from spanloop.spool import Spool
from spanloop.store import Store
from spanloop.store.client import Address, Chunks, Connection
from spanloop.store.discovery import embedded_address

from .collectors import NOW_NS, SECOND_NS, TIMEOUT_S, trace_request

DAY_NS = 86_400 * SECOND_NS
SETTINGS = CollectorSettings(linger_s=0.01, drain_timeout_s=60)
SERVER_WITHOUT_REPAIR = (
    "from spanloop.embedded_clickhouse import server; server.drop_unstored_blocks = lambda data_dir: 0; "
    "raise SystemExit(server.main())"
)


class Losing(Store):
    """A real store that loses rows of its first block after it was inserted, and the answer with them."""

    lost: list[str]
    """Conditions of rows by table, as statements; empty once they were lost."""

    def insert(self, table: str, frame: pl.DataFrame, *, token: str = "", until_us: int | None = None) -> int:
        rows = super().insert(table, frame, token=token, until_us=until_us)
        self._lose(table)
        return rows

    def insert_from(self, query_name: str, /, data: Sequence[bytes] | Chunks, *, token: str = "") -> None:
        super().insert_from(query_name, data, token=token)
        self._lose("")

    def _lose(self, table: str) -> None:
        if self.lost and table == "dead_letters":  # a block's last insert
            while self.lost:
                statement = f"ALTER TABLE {self.lost.pop()}"
                self.connection.command(statement, doing="losing rows", settings={"mutations_sync": "2"})
            raise StoreError("the server was killed")


def log_request() -> ExportLogsServiceRequest:
    """Two equal records that tell of a span, and another one."""
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    for body in ("equal", "equal", "other"):
        record = records.add(
            time_unix_nano=NOW_NS, trace_id=(1).to_bytes(16), span_id=(1).to_bytes(8), event_name="gen_ai.choice"
        )
        record.body.string_value = body
    return request


async def fill(spool: Spool) -> None:
    """Append four spans of two traces and two days, three log records and a dead letter."""
    for trace_id in (1, 2):
        request = trace_request(1, 2, trace_id=trace_id)
        request.resource_spans[0].scope_spans[0].spans[1].start_time_unix_nano += DAY_NS
        await spool.append("traces 2", request.SerializeToString())
    await spool.append("logs", log_request().SerializeToString())
    letter = DeadLetter(Signal.TRACES, RejectReason.UNREADABLE_RECORD, "not a request", "text/plain", b"body")
    await spool.append(dead_letters.KIND, dead_letters.encode([letter]))


async def drain(spool: Spool, writer: Writer) -> None:
    """Run the writer until the spool is empty."""
    running = asyncio.create_task(writer.run())
    async with asyncio.timeout(TIMEOUT_S):
        while spool.stats.records:
            if running.done():
                await running
            await asyncio.sleep(0.01)
    writer.stop()
    await running
    spool.close()


def stored(connection: Connection) -> dict[str, list[tuple[object, ...]]]:
    """Return what the block stores."""
    queries = {
        "spans": "SELECT TraceId, SpanId FROM otel_traces ORDER BY ALL",
        "logs": "SELECT TraceId, Body FROM otel_logs ORDER BY ALL",
        "traces": (
            "SELECT trace_id, length(groupUniqArrayArray(spans)) FROM trace_summaries GROUP BY ALL ORDER BY ALL"
        ),
        "dead_letters": "SELECT detail FROM dead_letters",
        "log_traces": "SELECT trace_id, count() > 0 FROM log_summaries GROUP BY ALL",
    }
    return {name: connection.query(sql, doing="reading").rows() for name, sql in queries.items()}


WHOLE = {
    "spans": [(f"{trace:032x}", f"{span:016x}") for trace in (1, 2) for span in (1, 2)],
    "logs": [(f"{1:032x}", body) for body in ("equal", "equal", "other")],
    "traces": [(f"{trace:032x}", 2) for trace in (1, 2)],
    "log_traces": [(f"{1:032x}", 1)],
    "dead_letters": [("not a request",)],
}


@pytest.mark.parametrize(
    ("lost", "restored", "strategy"),
    [
        (["otel_traces DELETE WHERE 1", "trace_summaries DELETE WHERE 1"], 4, ProtobufStrategy),
        (["dead_letters DELETE WHERE 1"], 0, ProtobufStrategy),
        (["otel_traces DELETE WHERE SpanId LIKE '%2'", "otel_logs DELETE WHERE Body = 'equal'"], 4, PolarsStrategy),
        (["trace_summaries DELETE WHERE 1", "log_summaries DELETE WHERE 1"], 0, ProtobufStrategy),
        (["otel_logs DELETE WHERE Body = 'other'", "otel_traces DELETE WHERE TraceId LIKE '%1'"], 3, ProtobufStrategy),
        (["otel_traces DELETE WHERE 0"], 0, ProtobufStrategy),
    ],
)
async def test_what_was_lost_of_a_block_is_stored_again(
    *,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    address: Address,
    store: Store,
    lost: list[str],
    restored: int,
    strategy: type[BlockStrategy],
) -> None:
    def open_store() -> Store:
        store = Losing(address)
        store.lost = lost
        return store

    lost = lost.copy()
    # as if the tests' server had started just now
    monkeypatch.setattr(lost_rows, "_CLOCKS_DIFFER_S", 86_400)
    spool, metrics = Spool(tmp_path / "spool", max_bytes=1 << 20), Metrics()
    writer = Writer(spool, open_store, metrics, Health(), settings=SETTINGS, strategy=strategy())
    await fill(spool)
    await drain(spool, writer)
    assert stored(store.connection) == WHOLE
    assert metrics.get("restored_rows_total") == restored
    assert metrics.get("inserted_total") == 7


def wait_for_insert(store: Store) -> None:
    running = "SELECT count() AS n FROM system.processes WHERE query LIKE 'INSERT INTO otel_logs%sleepEachRow%'"
    deadline_s = time.monotonic() + TIMEOUT_S
    while not store.connection.query(running, doing="waiting")["n"].item():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


async def test_nothing_is_compared_while_an_earlier_insert_of_the_block_runs(
    tmp_path: Path, address: Address, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path / "spool", max_bytes=1 << 20)
    await fill(spool)
    batch = spool.read(1 << 20)
    spool.close()
    assert batch is not None
    slow = "INSERT INTO otel_logs (Body) SELECT 'slow' FROM numbers(20) WHERE sleepEachRow(0.1) = 0"
    settings = {"insert_deduplication_token": f"{batch.block_id}-otel_traces", "max_block_size": "1"}
    monkeypatch.setattr(lost_rows, "_CLOCKS_DIFFER_S", 86_400)

    def insert_slowly() -> None:
        with Store(address) as other:
            other.connection.command(slow, doing="inserting slowly", settings=settings)

    earlier = asyncio.get_running_loop().run_in_executor(None, insert_slowly)
    await asyncio.to_thread(wait_for_insert, store)
    with pytest.raises(StoreError, match=f"An earlier insert of block {batch.block_id} still runs"):
        lost_rows.may_have_lost_rows(store, batch)
    await earlier
    assert lost_rows.may_have_lost_rows(store, batch)
    monkeypatch.setattr(lost_rows, "_CLOCKS_DIFFER_S", -86_400)  # the server is older than the block
    assert not lost_rows.may_have_lost_rows(store, batch)


class Restricted(Store):
    """A real store of a user who may not read the server's processes."""

    def query(self, query_name: str, /, **parameters: object) -> pl.DataFrame:
        if query_name == "collector_server_start":
            raise StoreError("not enough privileges") from DatabaseError("not enough privileges", code=497)
        return super().query(query_name, **parameters)


async def test_a_block_goes_on_where_the_server_may_not_be_asked(
    tmp_path: Path, address: Address, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    spool, metrics = Spool(tmp_path / "spool", max_bytes=1 << 20), Metrics()
    await fill(spool)
    await drain(spool, Writer(spool, lambda: Restricted(address), metrics, Health(), settings=SETTINGS))
    assert stored(store.connection) == WHOLE
    assert "is not compared with its tables" in caplog.text


@contextmanager
def server_without_repair(data_dir: DataDir) -> Generator[Address]:
    """The embedded server as a ClickHouse of one's own, which starts with whatever its logs note."""
    command = [sys.executable, "-c", SERVER_WITHOUT_REPAIR, "--supervised", "--data-dir", str(data_dir.path)]
    with (data_dir.path / "server.log").open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
    try:
        deadline_s = time.monotonic() + TIMEOUT_S
        while (running := data_dir.running("clickhouse")) is None or running.pid != process.pid:
            assert process.poll() is None, (data_dir.path / "server.log").read_text()
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        yield embedded_address(data_dir)
    finally:
        process.terminate()
        process.communicate()


async def test_a_block_that_a_killed_server_of_ones_own_noted_is_stored(tmp_path: Path, data_dir: DataDir) -> None:
    spool = Spool(tmp_path / "spool", max_bytes=1 << 20)
    await fill(spool)
    batch = spool.read(1 << 20)
    assert batch is not None
    with EmbeddedClickHouse(data_dir), Store.open(embedded_address(data_dir)) as store:
        ProtobufStrategy().prepare(batch).insert(store)
        assert stored(store.connection) == WHOLE
    # what a kill -9 leaves: the blocks are noted, and their parts have their temporary names
    parts = [path for name in ("2*", "all") for path in data_dir.clickhouse.glob(f"store/*/*/{name}_*_*_[01]")]
    noted = [part for part in parts if (part.parent / "deduplication_logs").exists()]
    assert len(noted) == 6  # spans of two days, logs, a dead letter, and two summaries
    for part in noted:
        part.rename(part.with_name(f"tmp_insert_{part.name}"))
    with server_without_repair(data_dir) as address, Store(address) as store:
        ProtobufStrategy().prepare(batch).insert(store)
        assert stored(store.connection) == {name: [] for name in WHOLE}  # it ignores what it has noted
        metrics = Metrics()
        # a new process: the spool holds the block, and nobody knows whether it was sent
        await drain(spool, Writer(spool, lambda: Store(address), metrics, Health(), settings=SETTINGS))
        assert stored(store.connection) == WHOLE
        assert metrics.get("restored_rows_total") == 7
