"""Retries, splitting and hurrying, against a real receiver."""

import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from http.client import HTTPException

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from spanloop.instrumentation.sending import exporters
from spanloop.instrumentation.sending.endpoint import OtlpSettings, Signal, TlsFiles
from spanloop.instrumentation.sending.exporters import SpanloopSpanExporter, encode_in_chunks
from spanloop.instrumentation.sending.lifetime import EXIT_BUDGET_S, ExitBudget, exit_budget_s
from spanloop.instrumentation.sending.sender import Rejected, Sender
from spanloop.instrumentation.sending.transport import Connection

from .support import Receiver, announce, black_hole, receiving, refused_url

pytestmark = pytest.mark.usefixtures("told")


def _sender(url: str, timeout_s: float = 60.0) -> Sender:
    settings = OtlpSettings(Signal.TRACES, url=f"{url}/v1/traces", timeout_s=timeout_s)
    return Sender(settings, lambda _body: Rejected(0, ""))


@pytest.fixture
def sender(receiver: Receiver) -> Iterator[Sender]:
    made = _sender(receiver.url)
    yield made
    made.close()


def test_one_connection_serves_many_requests(sender: Sender, receiver: Receiver) -> None:
    assert [sender.send(b"") for _ in range(3)] == [True] * 3
    assert len(receiver.requests) == 3


def test_an_idle_connection_that_the_server_closed_is_reopened(receiver: Receiver, sender: Sender) -> None:
    assert sender.send(b"")
    sender._connection.abort()  # pyright: ignore[reportPrivateUsage]
    assert sender.send(b"")
    assert len(receiver.requests) == 2


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_may_pass_is_tried_again(sender: Sender, receiver: Receiver, told: list[str], status: int) -> None:
    receiver.answer = lambda count: (status if count < 3 else 200, b"", {"retry-after": "0.05"})
    assert sender.send(b"")
    assert len(receiver.requests) == 3
    assert told == []


@pytest.mark.parametrize("status", [400, 404, 413, 500])
def test_what_would_fail_again_is_not(sender: Sender, receiver: Receiver, told: list[str], status: int) -> None:
    receiver.answer = lambda _count: (status, b"", {})
    assert not sender.send(b"")
    assert len(receiver.requests) == 1
    (line,) = told
    assert f"HTTP {status}" in line


def test_a_collector_that_asks_for_too_much_patience_is_given_up(
    sender: Sender, receiver: Receiver, told: list[str]
) -> None:
    receiver.answer = lambda _count: (503, b"", {"retry-after": "3600"})
    assert not sender.send(b"")
    assert len(receiver.requests) == 1
    assert len(told) == 1


@pytest.mark.parametrize("value", ["", "soon", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_an_unreadable_or_past_retry_after_means_our_own_pace(sender: Sender, receiver: Receiver, value: str) -> None:
    receiver.answer = lambda count: (503 if count == 1 else 200, b"", {"retry-after": value})
    assert sender.send(b"")


def test_no_wait_is_longer_than_the_timeout(told: list[str]) -> None:
    with black_hole() as url:
        started = time.monotonic()
        assert not _sender(url, timeout_s=0.5).send(b"")
        assert time.monotonic() - started > 0.4
    assert len(told) == 1


def test_in_a_hurry_a_failure_is_final() -> None:
    sender = _sender(refused_url(), timeout_s=3600)
    sender.hurry()
    assert not sender.send(b"")  # by the test's own time limit, and not after the hour


def test_hurrying_wakes_a_sender_that_waits() -> None:
    sender = _sender(refused_url(), timeout_s=3600)
    outcome: list[bool] = []
    thread = threading.Thread(target=lambda: outcome.append(sender.send(b"")))
    thread.start()
    time.sleep(0.6)
    sender.hurry()
    thread.join(60)
    assert outcome == [False]


def _wait_until_connected(sender: Sender) -> None:
    while (http := sender._connection._http) is None or http.sock is None:  # pyright: ignore[reportPrivateUsage]
        time.sleep(0.01)


def test_closing_unblocks_a_request_in_flight() -> None:
    with black_hole() as url:
        sender = _sender(url, timeout_s=3600)
        thread = threading.Thread(target=sender.send, args=(b"",))
        thread.start()
        _wait_until_connected(sender)
        sender.close()
        thread.join(60)
        assert not thread.is_alive()


def test_a_collector_that_moved_is_found(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir = tmp_path_factory.mktemp("data")
    monkeypatch.setenv("SPANLOOP_DATA_DIR", str(data_dir))
    sender = Sender(OtlpSettings(Signal.TRACES), lambda _body: Rejected(0, ""))
    for _ in range(2):
        with receiving() as receiver:
            announce(data_dir, receiver.url)
            assert sender.send(b"")
            assert len(receiver.requests) == 1
    sender.close()


@pytest.mark.parametrize("garbage", [b"\x00" * 40, b"SSH-2.0-x\r\n", b"HTTP/1.1 abc\r\n\r\n"])
def test_what_is_no_http_is_an_error_of_the_two_kinds(garbage: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(garbage)

        thread = threading.Thread(target=answer)
        thread.start()
        connection = Connection(TlsFiles())
        with pytest.raises((OSError, HTTPException)):
            connection.post(f"http://127.0.0.1:{listener.getsockname()[1]}/", b"x", {}, 30.0)
        thread.join()


def test_https_is_verified(receiver: Receiver) -> None:
    connection = Connection(TlsFiles())
    with pytest.raises(ssl.SSLError):
        connection.post(receiver.url.replace("http://", "https://"), b"", {}, 30.0)


@given(sizes=st.lists(st.integers(0, 30), max_size=40), limit=st.integers(1, 60))
def test_pieces_fit_keep_the_order_and_lose_nothing(sizes: list[int], limit: int) -> None:
    records = [bytes([index]) * size for index, size in enumerate(sizes)]
    bodies = list(encode_in_chunks(records, b"".join, limit))
    assert b"".join(bodies) == b"".join(records)
    assert all(len(body) <= limit or len(set(body)) == 1 for body in bodies)


@given(bad=st.sets(st.integers(0, 19)))
def test_a_record_that_cannot_be_encoded_costs_itself_only(bad: set[int]) -> None:
    def encode(numbers: Sequence[int]) -> bytes:
        if bad & set(numbers):
            raise ValueError("not encodable")
        return bytes(numbers)

    bodies = list(encode_in_chunks(range(20), encode, 1 << 20))
    assert b"".join(bodies) == bytes(number for number in range(20) if number not in bad)


def test_a_large_batch_goes_out_in_several_requests(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporters, "MAX_REQUEST_BYTES", 40_000)
    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    for number in range(16):
        provider.get_tracer("app").start_span(f"s{number}", attributes={"prompt": "x" * 10_000}).end()
    exporter = SpanloopSpanExporter(OtlpSettings(Signal.TRACES, url=f"{receiver.url}/v1/traces"))
    assert exporter.export(memory.get_finished_spans()) is SpanExportResult.SUCCESS
    exporter.shutdown()
    assert [span.name for span in receiver.spans] == [f"s{number}" for number in range(16)]
    assert 4 <= len(receiver.requests) <= 8
    assert max(request.size_bytes for request in receiver.requests) <= 40_000


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [("", 1), ("5", 5), ("0.25", 0.25), ("soon", 1), ("0", 1), ("-1", 1), ("nan", 1), ("inf", 1), ("3601", 1)],
)
def test_the_environment_may_allow_an_app_more_time_at_its_end(text: str, expected_s: float) -> None:
    assert exit_budget_s(text) == expected_s


def test_the_exit_budget_is_one_clock_and_starts_anew_long_after(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("spanloop.instrumentation.sending.lifetime.time.monotonic", lambda: now)
    budget = ExitBudget()
    assert budget.remaining_s() == EXIT_BUDGET_S
    now += 0.75 * EXIT_BUDGET_S
    assert budget.remaining_s() == pytest.approx(0.25 * EXIT_BUDGET_S)
    now += EXIT_BUDGET_S
    assert 0 < budget.remaining_s() < 0.1
    now += 60
    assert budget.remaining_s() == EXIT_BUDGET_S
