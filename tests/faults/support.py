"""Collectors that can be trapped, senders that keep the ledger, and what is found in the end."""

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
from spanloop.datadir import DataDir
from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.store.client import Address, Connection
from spanloop.store.discovery import embedded_address

from ..collector.collectors import NOW_NS, PROTOBUF, SECOND_NS, CollectorProcess
from .ledger import Balance, Ledger, balance

TRAPPED = Path(__file__).with_name("trapped_collector.py")
PATIENCE_S = 120.0
MEMORY_CAP_BYTES = 1 << 30
SMALL_SPOOL = ("--no-grpc", "--spool-limit-bytes", "200000")
"""Segments of 50 kB, so that they are opened, closed and deleted all the time."""
TINY_SPOOL = ("--no-grpc", "--spool-limit-bytes", "40000")
"""Full within a second."""


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Until it is so."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s:.0f} s for {what}"
        time.sleep(0.02)


class Trapped(CollectorProcess):
    """A collector that ends itself at a point; see ``trapped_collector.py``."""

    def __init__(
        self,
        data_dir: DataDir,
        clickhouse_url: str = "",
        *options: str,
        trap: str = "",
        port: int = 0,
        answer_timeout_s: int = 300,
    ) -> None:
        self.died = data_dir.path / "died"
        program = [str(TRAPPED), trap, str(self.died), str(answer_timeout_s)]
        super().__init__(data_dir, clickhouse_url, port, *options, program=program)

    @property
    def has_died(self) -> bool:
        """Whether the process is gone."""
        return self.process.poll() is not None

    def answers(self) -> bool:
        """Whether it can be sent to; waits until it can, or until it is dead."""

        def is_decided() -> bool:
            running = self._data_dir.running("collector")
            return self.has_died or (running is not None and running.pid == self.process.pid)

        wait_for(is_decided, "the collector to answer")
        return not self.has_died

    def waiting_records(self) -> int:
        """How many the spool holds."""
        spool = cast("dict[str, int]", self.health()["spool"])
        return spool["records"]

    def finish(self) -> None:
        """Wait until everything is in ClickHouse, and stop it."""

        def is_drained() -> bool:
            assert not self.has_died, self.log.read_text()
            return self.waiting_records() == 0

        assert self.answers(), self.log.read_text()
        wait_for(is_drained, "the spool to be empty")
        assert self.terminate() == 0


class Scene:
    """A data directory, a ledger over it, and the ClickHouse that its collectors write to.

    Args:
        data_dir: Where the collectors have their spool.
        ledger: The account of all senders.
        address: Where the rows go; None is the embedded server of the data directory.
        say: Takes the line that is printed when the run ends.
    """

    def __init__(self, data_dir: DataDir, ledger: Ledger, address: Address | None, say: Callable[[str], None]) -> None:
        self.data_dir = data_dir
        self.ledger = ledger
        self._address = address
        self._say = say
        self._started: list[Trapped] = []

    @property
    def address(self) -> Address:
        """Where the rows are."""
        return self._address or embedded_address(self.data_dir)

    def launch(
        self, *options: str, url: str | None = None, trap: str = "", port: int = 0, answer_timeout_s: int = 300
    ) -> Trapped:
        """Start a collector; ``url`` is another way to ClickHouse than the scene's own, or an empty one for none."""
        if url is None:
            url = url_of(self._address) if self._address is not None else ""
        collector = Trapped(self.data_dir, url, *options, trap=trap, port=port, answer_timeout_s=answer_timeout_s)
        self._started.append(collector)
        return collector

    def settle(self, scenario: str) -> Balance:
        """Compare the ledger with what is stored, say it, and check it."""
        counted = balance(self.ledger.path, find_ids(self.address))
        self._say(f"ledger {scenario}: {counted}")
        assert counted.is_clean, counted
        assert count_unsummarised(self.address) == 0
        return counted

    def close(self) -> None:
        """End whatever still runs."""
        for collector in self._started:
            collector.kill()


def url_of(address: Address, port: int | None = None) -> str:
    """With the password; through another port if there is one."""
    user = f"{quote(address.user)}:{quote(address.password)}"
    return f"{address.scheme}://{user}@{address.host}:{port or address.port}/{address.database}"


def kill_clickhouse(clickhouse: EmbeddedClickHouse) -> None:
    """kill -9, and wait until its supervisor has started another one."""
    dead, restarts = clickhouse.pid, clickhouse.restarts
    assert dead is not None
    os.kill(dead, signal.SIGKILL)
    wait_for(lambda: clickhouse.restarts > restarts and clickhouse.pid not in {None, dead}, "ClickHouse to come back")


def traces_body(ids: Sequence[int]) -> bytes:
    """A request with one span for each id, with the array that nearly every LLM span has."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for each in ids:
        span = scope.spans.add(
            trace_id=(each // 8 + 1).to_bytes(16), span_id=each.to_bytes(8), name=f"span {each}",
            start_time_unix_nano=NOW_NS + each, end_time_unix_nano=NOW_NS + each + SECOND_NS,
        )  # fmt: skip
        reasons = span.attributes.add(key="gen_ai.response.finish_reasons").value.array_value
        reasons.values.add(string_value="stop")
        span.attributes.add(key="text").value.string_value = "x" * 200
    return serialize(request)


def half_bad_body(ids: Sequence[int]) -> bytes:
    """The same, with every other span's parent id too short: those become dead letters."""
    request = ExportTraceServiceRequest.FromString(traces_body(ids))
    for span in request.resource_spans[0].scope_spans[0].spans[::2]:
        span.parent_span_id = b"abc"
    return serialize(request)


def logs_body(ids: Sequence[int]) -> bytes:
    """A request with one log record for each id."""
    request = ExportLogsServiceRequest()
    scope = request.resource_logs.add().scope_logs.add()
    for each in ids:
        scope.log_records.add(
            trace_id=(each // 8 + 1).to_bytes(16), span_id=each.to_bytes(8), time_unix_nano=NOW_NS + each
        )
    return serialize(request)


_KINDS = (("/v1/traces", traces_body, 8), ("/v1/traces", half_bad_body, 1), ("/v1/logs", logs_body, 1))


class Senders:
    """Threads that send until they are stopped; each request has new ids.

    Args:
        url: Of the collector; it may go away and come back.
        ledger: Gets every attempt and its outcome.
        threads: How many send at once.
        pause_s: What each thread waits after a request.
        size: Items of a request.
        is_stubborn: Send what was refused again until it is taken, as exporters do with a 503. What was not answered
            is never sent again.
    """

    def __init__(
        self,
        url: str,
        ledger: Ledger,
        *,
        threads: int = 4,
        pause_s: float = 0.0,
        size: int = 3,
        is_stubborn: bool = False,
    ) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 0)
        self._ledger = ledger
        self._pause_s = pause_s
        self._size = size
        self._is_stubborn = is_stubborn
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(at,)) for at in range(threads)]
        self.statuses: Counter[int] = Counter()
        """Answers, by status; 0 stands for a request without one."""

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self._is_stubborn = False  # nobody will take what is refused any more
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self, seed: int) -> None:
        rng = random.Random(seed)
        connection = http.client.HTTPConnection(*self._address, timeout=PATIENCE_S)
        refused: tuple[int, ...] = ()
        with closing(connection):
            while (refused and self._is_stubborn) or not self._stopping.is_set():
                if not _is_connected(connection):
                    self._stopping.wait(0.05)
                    continue
                ids = refused or self._ledger.new_ids(self._size)
                self._ledger.attempted(ids)
                status = self._send(connection, rng, ids)
                self.statuses[status] += 1
                settle = self._ledger.acknowledged if status == 200 else self._ledger.refused
                (settle if status else self._ledger.unknown)(ids)
                refused = ids if status == 503 and self._is_stubborn else ()
                if not status:
                    connection.close()
                time.sleep(self._pause_s if status == 200 else max(0.05, self._pause_s))

    def _send(self, connection: http.client.HTTPConnection, rng: random.Random, ids: Sequence[int]) -> int:
        path, make_body, _ = rng.choices(_KINDS, weights=[weight for _, _, weight in _KINDS])[0]
        try:
            connection.request("POST", path, make_body(ids), {"Content-Type": PROTOBUF})
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            return 0
        return answer.status


def _is_connected(connection: http.client.HTTPConnection) -> bool:
    """Whether somebody is there to send to: an attempt that nobody can have heard of would be no news."""
    if connection.sock is None:
        try:
            connection.connect()
        except OSError:
            return False
    return True


def find_ids(address: Address) -> Counter[int]:
    """How often each id is stored: spans, log records and dead letters."""
    database = f"`{address.database}`"
    sql = f"""
        SELECT id, count() AS copies FROM (
            SELECT SpanId AS id FROM {database}.otel_traces
            UNION ALL SELECT SpanId FROM {database}.otel_logs
            UNION ALL SELECT arrayJoin(span_ids) FROM {database}.dead_letters
        ) GROUP BY id"""
    with closing(Connection(address, database="default")) as connection:
        found = connection.query(sql, doing="reading what is stored")
    return Counter({int(span_id, 16): copies for span_id, copies in found.iter_rows()})


def count_unsummarised(address: Address) -> int:
    """Stored spans that the summary of their trace does not know, and the other way round: what a view has missed."""
    database = f"`{address.database}`"
    sql = f"""
        SELECT trace, span FROM (
            SELECT DISTINCT TraceId AS trace, cityHash64(SpanId) AS span, 1 AS place FROM {database}.otel_traces
            UNION ALL
            SELECT DISTINCT trace_id, arrayJoin(spans), 2 FROM {database}.trace_summaries
        ) GROUP BY trace, span HAVING sum(place) != 3"""
    with closing(Connection(address, database="default")) as connection:
        return connection.query(sql, doing="comparing spans with summaries").height
