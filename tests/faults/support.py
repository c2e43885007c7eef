"""Collectors with failpoints, clients that write the ledger, and queries of what is stored."""

import http.client
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self, cast
from urllib.parse import quote, urlsplit

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from spanloop.collector.otlp.wire import serialize
from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.paths import DataDir
from spanloop.store.client import Address, Connection
from spanloop.store.discovery import embedded_address

from ..collector.collector.collectors import NOW_NS, PROTOBUF, SECOND_NS, CollectorProcess
from .ledger import Balance, Ledger, balance

FAILPOINT_PROGRAM = Path(__file__).with_name("failpoint_collector.py")
TIMEOUT_S = 120.0
MEMORY_CAP_BYTES = 1 << 30
SMALL_SPOOL = ("--no-grpc", "--spool-limit-bytes", "200000")
"""Segments of 50 kB, so that they are opened, closed and deleted often."""
TINY_SPOOL = ("--no-grpc", "--spool-limit-bytes", "40000")
"""Full within a second."""


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """Poll until the condition holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s:.0f} s for {what}"
        time.sleep(0.02)


class FailpointCollector(CollectorProcess):
    """A collector that kills itself at a failpoint; see ``failpoint_collector.py``."""

    def __init__(
        self,
        data_dir: DataDir,
        clickhouse_url: str = "",
        *options: str,
        trap: str = "",
        port: int = 0,
        response_timeout_s: int = 300,
    ) -> None:
        self.died = data_dir.path / "died"
        program = [str(FAILPOINT_PROGRAM), trap, str(self.died), str(response_timeout_s)]
        super().__init__(data_dir, clickhouse_url, port, *options, program=program)

    @property
    def has_exited(self) -> bool:
        """Whether the process has exited."""
        return self.process.poll() is not None

    def is_listening(self) -> bool:
        """Wait until the collector listens or has exited; return whether it listens."""

        def is_listening_or_exited() -> bool:
            running = self._data_dir.running("collector")
            return self.has_exited or (running is not None and running.pid == self.process.pid)

        wait_for(is_listening_or_exited, "the collector to listen")
        return not self.has_exited

    def waiting_records(self) -> int:
        """Return the number of records in the spool."""
        spool = cast("dict[str, int]", self.health()["spool"])
        return spool["records"]

    def finish(self) -> None:
        """Wait until the spool is empty, and stop the collector."""

        def is_drained() -> bool:
            assert not self.has_exited, self.log.read_text()
            return self.waiting_records() == 0

        assert self.is_listening(), self.log.read_text()
        wait_for(is_drained, "the spool to be empty")
        assert self.terminate() == 0


class Scene:
    """A data directory, its ledger, and the ClickHouse that its collectors write to.

    Args:
        data_dir: The data directory of the collectors.
        ledger: The ledger of all clients.
        address: The ClickHouse server; None is the embedded server of the data directory.
        print_at_end: Prints a line when the test run ends.
    """

    def __init__(
        self, data_dir: DataDir, ledger: Ledger, address: Address | None, print_at_end: Callable[[str], None]
    ) -> None:
        self.data_dir = data_dir
        self.ledger = ledger
        self._address = address
        self._print_at_end = print_at_end
        self._started: list[FailpointCollector] = []

    @property
    def address(self) -> Address:
        """The ClickHouse server."""
        return self._address or embedded_address(self.data_dir)

    def launch(
        self, *options: str, url: str | None = None, trap: str = "", port: int = 0, response_timeout_s: int = 300
    ) -> FailpointCollector:
        """Start a collector; ``url`` overrides ClickHouse's URL, and an empty one means no ClickHouse."""
        if url is None:
            url = url_of(self._address) if self._address is not None else ""
        collector = FailpointCollector(
            self.data_dir, url, *options, trap=trap, port=port, response_timeout_s=response_timeout_s
        )
        self._started.append(collector)
        return collector

    def settle(self, scenario: str) -> Balance:
        """Compare the ledger with what is stored, print the balance, and check it."""
        balance_of_run = balance(self.ledger.path, find_ids(self.address))
        self._print_at_end(f"ledger {scenario}: {balance_of_run}")
        assert balance_of_run.is_clean, balance_of_run
        assert count_unsummarised(self.address) == 0
        return balance_of_run

    def close(self) -> None:
        """Kill the collectors that still run."""
        for collector in self._started:
            collector.kill()


def url_of(address: Address, port: int | None = None) -> str:
    """Return a URL with the password, and another port if given."""
    user = f"{quote(address.user)}:{quote(address.password)}"
    return f"{address.scheme}://{user}@{address.host}:{port or address.port}/{address.database}"


def kill_clickhouse(clickhouse: EmbeddedClickHouse) -> None:
    """Send kill -9, and wait until the supervisor has started another server."""
    dead, restarts = clickhouse.pid, clickhouse.restarts
    assert dead is not None
    os.kill(dead, signal.SIGKILL)
    wait_for(lambda: clickhouse.restarts > restarts and clickhouse.pid not in {None, dead}, "ClickHouse to come back")


def traces_body(ids: Sequence[int]) -> bytes:
    """Make a request with one span for each id, with the array that nearly every LLM span has."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for span_id in ids:
        span = scope.spans.add(
            trace_id=(span_id // 8 + 1).to_bytes(16), span_id=span_id.to_bytes(8), name=f"span {span_id}",
            start_time_unix_nano=NOW_NS + span_id, end_time_unix_nano=NOW_NS + span_id + SECOND_NS,
        )  # fmt: skip
        reasons = span.attributes.add(key="gen_ai.response.finish_reasons").value.array_value
        reasons.values.add(string_value="stop")
        span.attributes.add(key="text").value.string_value = "x" * 200
    return serialize(request)


def half_bad_body(ids: Sequence[int]) -> bytes:
    """Make the same request with an invalid parent id in every second span; those spans become dead letters."""
    request = ExportTraceServiceRequest.FromString(traces_body(ids))
    for span in request.resource_spans[0].scope_spans[0].spans[::2]:
        span.parent_span_id = b"abc"
    return serialize(request)


def logs_body(ids: Sequence[int]) -> bytes:
    """Make a request with one log record for each id."""
    request = ExportLogsServiceRequest()
    scope = request.resource_logs.add().scope_logs.add()
    for span_id in ids:
        scope.log_records.add(
            trace_id=(span_id // 8 + 1).to_bytes(16), span_id=span_id.to_bytes(8), time_unix_nano=NOW_NS + span_id
        )
    return serialize(request)


_KINDS = (("/v1/traces", traces_body, 8), ("/v1/traces", half_bad_body, 1), ("/v1/logs", logs_body, 1))


class Senders:
    """Threads that send requests until they are stopped; each request has new ids.

    Args:
        url: The collector's URL; the collector may be restarted.
        ledger: Records every attempt and its outcome.
        threads: Number of concurrent clients.
        pause_s: Pause of each thread after a request.
        size: Items of a request.
        is_retrying: Send a refused request again until it is accepted, as exporters do after a 503. A request without
            a response is never sent again.
    """

    def __init__(
        self,
        url: str,
        ledger: Ledger,
        *,
        threads: int = 4,
        pause_s: float = 0.0,
        size: int = 3,
        is_retrying: bool = False,
    ) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 0)
        self._ledger = ledger
        self._pause_s = pause_s
        self._size = size
        self._is_retrying = is_retrying
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(at,)) for at in range(threads)]
        self.statuses: Counter[int] = Counter()
        """Responses by status; 0 is a request without a response."""

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self._is_retrying = False  # refused requests cannot be accepted any more
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self, seed: int) -> None:
        rng = random.Random(seed)
        connection = http.client.HTTPConnection(*self._address, timeout=TIMEOUT_S)
        refused: tuple[int, ...] = ()
        with closing(connection):
            while (refused and self._is_retrying) or not self._stopping.is_set():
                if not _is_connected(connection):
                    self._stopping.wait(0.05)
                    continue
                ids = refused or self._ledger.new_ids(self._size)
                self._ledger.attempted(ids)
                status = self._send(connection, rng, ids)
                self.statuses[status] += 1
                settle = self._ledger.acknowledged if status == 200 else self._ledger.refused
                (settle if status else self._ledger.unknown)(ids)
                refused = ids if status == 503 and self._is_retrying else ()
                if not status:
                    connection.close()
                time.sleep(self._pause_s if status == 200 else max(0.05, self._pause_s))

    def _send(self, connection: http.client.HTTPConnection, rng: random.Random, ids: Sequence[int]) -> int:
        path, make_body, _ = rng.choices(_KINDS, weights=[weight for _, _, weight in _KINDS])[0]
        try:
            connection.request("POST", path, make_body(ids), {"Content-Type": PROTOBUF})
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            return 0
        return response.status


def _is_connected(connection: http.client.HTTPConnection) -> bool:
    """Return whether the collector accepts connections; an attempt without a connection is not recorded."""
    if connection.sock is None:
        try:
            connection.connect()
        except OSError:
            return False
    return True


def find_ids(address: Address) -> Counter[int]:
    """Count how often each id is stored: spans, log records and dead letters."""
    database = f"`{address.database}`"
    sql = f"""
        SELECT id, count() AS copies FROM (
            SELECT SpanId AS id FROM {database}.otel_traces
            UNION ALL SELECT SpanId FROM {database}.otel_logs
            UNION ALL SELECT arrayJoin(span_ids) FROM {database}.dead_letters
        ) GROUP BY id"""
    with closing(Connection(address, database="default")) as connection:
        rows = connection.query(sql, doing="reading what is stored")
    return Counter({int(span_id, 16): copies for span_id, copies in rows.iter_rows()})


def count_unsummarised(address: Address) -> int:
    """Count the stored spans without a trace summary, and summaries without a span: rows that a view has missed."""
    database = f"`{address.database}`"
    sql = f"""
        SELECT trace, span FROM (
            SELECT DISTINCT TraceId AS trace, cityHash64(SpanId) AS span, 1 AS place FROM {database}.otel_traces
            UNION ALL
            SELECT DISTINCT trace_id, arrayJoin(spans), 2 FROM {database}.trace_summaries
        ) GROUP BY trace, span HAVING sum(place) != 3"""
    with closing(Connection(address, database="default")) as connection:
        return connection.query(sql, doing="comparing spans with summaries").height
