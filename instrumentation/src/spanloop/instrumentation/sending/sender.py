"""Send one signal's encoded batches to the collector, with retries until a deadline.

Invariant: ``send()`` never raises; it does not retry after the configured timeout, which also bounds each single
wait on the network. Once the process exits, it does not retry at all. A loss is reported once.
"""

import gzip
import random
import threading
import time
import zlib
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Final, NamedTuple

from spanloop.instrumentation.notice import print_once
from spanloop.instrumentation.sending.endpoint import Compression, OtlpSettings
from spanloop.instrumentation.sending.transport import Connection, Response

_RETRYABLE: Final = frozenset({429, 502, 503, 504})
_NEXT_STEPS: Final = {
    401: "Send an API key: OTEL_EXPORTER_OTLP_HEADERS='Authorization=Bearer KEY'. "
    "`spanloop keys create NAME --scope ingest`, where the collector runs, makes one",
    403: "Its API key may not send telemetry: `spanloop keys create NAME --scope ingest` makes one that may",
}
_FIRST_BACKOFF_S: Final = 0.25
_MAX_BACKOFF_S: Final = 5.0
_CLOSE_TIMEOUT_S: Final = 0.1


class Rejected(NamedTuple):
    """OTLP's partial success: how many records of an accepted request were rejected, and why."""

    records: int
    reason: str


class _Failure(NamedTuple):
    reason: str
    retry_in_s: float | None  # None: the same request would fail again
    is_unreachable: bool = False
    status: int = 0


class Sender:
    """Sends encoded batches of one signal.

    Args:
        settings: The export settings.
        read_rejected: Parses the rejected records from a successful response's body.
    """

    def __init__(self, settings: OtlpSettings, read_rejected: Callable[[bytes], Rejected]) -> None:
        self._settings = settings
        self._read_rejected = read_rejected
        self._connection = Connection(settings.tls)
        self._lock = threading.Lock()
        self._hurry = threading.Event()
        self._is_closed = False

    def send(self, body: bytes) -> bool:
        """Send one encoded request. Return False when it is lost; the loss is then reported."""
        with self._lock:
            return self._send(body)

    def hurry(self) -> None:
        """Stop retrying, because the process is about to end."""
        self._hurry.set()

    def relax(self) -> None:
        """Retry again: the process goes on (a forked child, or a signal that did not end it)."""
        self._hurry.clear()

    def close(self) -> None:
        """Abort the request in flight. Callable from any thread."""
        self._is_closed = True
        self._hurry.set()
        self._connection.abort()
        if self._lock.acquire(timeout=_CLOSE_TIMEOUT_S):
            self._connection.close()
            self._lock.release()

    def after_fork(self) -> None:
        """Replace the parent's connection and locks in a forked child."""
        self._connection.detach()
        self._lock = threading.Lock()
        self._hurry = threading.Event()

    def _send(self, body: bytes) -> bool:
        deadline = time.monotonic() + self._settings.timeout_s
        backoff_s = _FIRST_BACKOFF_S
        while True:
            failure = self._attempt(body, deadline - time.monotonic())
            if failure is None:
                return True
            wait_s = backoff_s * random.uniform(0.8, 1.2) if failure.retry_in_s == 0 else failure.retry_in_s  # noqa: S311
            backoff_s = min(2 * backoff_s, _MAX_BACKOFF_S)
            if self._is_closed or wait_s is None or time.monotonic() + wait_s > deadline or self._hurry.is_set():
                self._report_lost(failure)
                return False
            self._hurry.wait(wait_s)

    def _attempt(self, body: bytes, timeout_s: float) -> _Failure | None:
        headers = {"content-type": "application/x-protobuf", "user-agent": "spanloop", **self._settings.headers}
        try:
            url = self._settings.resolve_url()
            compression = self._settings.compression_to(url)
            if compression is not Compression.NONE:
                headers["content-encoding"] = compression.value
            response = self._connection.post(url, _compressed(body, compression), headers, max(timeout_s, 0.001))
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            return _Failure(reason, 0.0 if isinstance(error, (OSError, HTTPException)) else None, is_unreachable=True)
        if 200 <= response.status < 300:
            self._report_rejected(response)
            return None
        reason = f"HTTP {response.status} {response.reason}"
        retry_in_s = _retry_after_s(response.retry_after) if response.status in _RETRYABLE else None
        return _Failure(reason, retry_in_s, status=response.status)

    def _report_rejected(self, response: Response) -> None:
        rejected = self._read_rejected(response.body) if response.body else None
        if rejected is not None and rejected.records:
            where, signal = self._settings.resolve_url(), self._settings.signal
            print_once(f"the collector at {where} refused {rejected.records} records ({signal}): {rejected.reason}")

    def _report_lost(self, failure: _Failure) -> None:
        where = self._settings.resolve_url()
        if failure.is_unreachable:
            print_once(
                f"no collector answers at {where} ({failure.reason}): telemetry of this run is lost. Start one with "
                "`spanloop up`, or point OTEL_EXPORTER_OTLP_ENDPOINT at one"
            )
        else:
            print_once(
                f"the collector at {where} answered {failure.reason}: telemetry of this run is lost. "
                f"{_NEXT_STEPS.get(failure.status, 'See its log')}"
            )


def _retry_after_s(value: str) -> float:
    """Return the seconds of ``Retry-After``; 0 (our own backoff) when it is absent or unreadable."""
    try:
        return max(float(value), 0.0)
    except ValueError:
        pass
    try:
        return max(parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    except (TypeError, ValueError):
        return 0.0


def _compressed(body: bytes, compression: Compression) -> bytes:
    if compression is Compression.GZIP:
        return gzip.compress(
            body, compresslevel=1, mtime=0
        )  # prompts are repetitive: level 1 compresses nearly as well as 9
    return zlib.compress(body) if compression is Compression.DEFLATE else body
