"""Gets one signal's encoded batches to the collector, or gives up in time and says so once.

Invariant: ``send()`` never raises; it tries nothing again after the configured timeout, which also bounds each single
wait on the network. While the process is in a hurry (it exits) it does not wait for anything that has already failed.
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

from spanloop.instrumentation.endpoint import Compression, OtlpSettings
from spanloop.instrumentation.notice import tell
from spanloop.instrumentation.transport import Answer, Connection

_RETRYABLE: Final = frozenset({429, 502, 503, 504})
_FIRST_BACKOFF_S: Final = 0.25
_MAX_BACKOFF_S: Final = 5.0
_CLOSE_TIMEOUT_S: Final = 0.1


class Rejected(NamedTuple):
    """OTLP's partial success: how many records of an accepted request were refused, and why."""

    records: int
    reason: str


class _Failure(NamedTuple):
    reason: str
    retry_in_s: float | None  # None: the same request would fail again
    is_unreachable: bool = False


class Sender:
    """Sends encoded batches of one signal.

    Args:
        settings: Where to and how.
        read_rejected: What a successful answer's body says was refused.
    """

    def __init__(self, settings: OtlpSettings, read_rejected: Callable[[bytes], Rejected]) -> None:
        self._settings = settings
        self._read_rejected = read_rejected
        self._connection = Connection(settings.tls)
        self._in_use = threading.Lock()
        self._hurry = threading.Event()
        self._is_closed = False

    def send(self, body: bytes) -> bool:
        """Send one encoded request. False when it is lost, which has then been told."""
        with self._in_use:
            return self._send(_compressed(body, self._settings.compression))

    def hurry(self) -> None:
        """The process is about to end: from now on a failure is final."""
        self._hurry.set()

    def relax(self) -> None:
        """It goes on after all (a forked child, or a signal that did not end it)."""
        self._hurry.clear()

    def close(self) -> None:
        """Give up whatever is under way. Callable from any thread."""
        self._is_closed = True
        self._hurry.set()
        self._connection.abort()
        if self._in_use.acquire(timeout=_CLOSE_TIMEOUT_S):
            self._connection.close()
            self._in_use.release()

    def after_fork(self) -> None:
        """Leave the parent's connection to the parent."""
        self._connection.forget()
        self._in_use = threading.Lock()
        self._hurry = threading.Event()

    def _send(self, data: bytes) -> bool:
        deadline = time.monotonic() + self._settings.timeout_s
        backoff_s = _FIRST_BACKOFF_S
        while True:
            failure = self._attempt(data, deadline - time.monotonic())
            if failure is None:
                return True
            wait_s = backoff_s * random.uniform(0.8, 1.2) if failure.retry_in_s == 0 else failure.retry_in_s  # noqa: S311
            backoff_s = min(2 * backoff_s, _MAX_BACKOFF_S)
            if self._is_closed or wait_s is None or time.monotonic() + wait_s > deadline or self._hurry.is_set():
                self._tell_lost(failure)
                return False
            self._hurry.wait(wait_s)

    def _attempt(self, data: bytes, timeout_s: float) -> _Failure | None:
        headers = {"content-type": "application/x-protobuf", "user-agent": "spanloop", **self._settings.headers}
        if self._settings.compression is not Compression.NONE:
            headers["content-encoding"] = self._settings.compression.value
        try:
            url = self._settings.resolve_url()
            answer = self._connection.post(url, data, headers, max(timeout_s, 0.001))
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            return _Failure(reason, 0.0 if isinstance(error, (OSError, HTTPException)) else None, is_unreachable=True)
        if 200 <= answer.status < 300:
            self._tell_rejected(answer)
            return None
        reason = f"HTTP {answer.status} {answer.reason}"
        return _Failure(reason, _retry_after_s(answer.retry_after) if answer.status in _RETRYABLE else None)

    def _tell_rejected(self, answer: Answer) -> None:
        rejected = self._read_rejected(answer.body) if answer.body else None
        if rejected is not None and rejected.records:
            where, signal = self._settings.resolve_url(), self._settings.signal
            tell(f"the collector at {where} refused {rejected.records} records ({signal}): {rejected.reason}")

    def _tell_lost(self, failure: _Failure) -> None:
        where = self._settings.resolve_url()
        if failure.is_unreachable:
            tell(
                f"no collector answers at {where} ({failure.reason}): telemetry of this run is lost. Start one with "
                "`spanloop up`, or point OTEL_EXPORTER_OTLP_ENDPOINT at one"
            )
        else:
            tell(f"the collector at {where} answered {failure.reason}: telemetry of this run is lost. See its log")


def _retry_after_s(value: str) -> float:
    """Seconds that ``Retry-After`` asks for; 0 (our own backoff) where it asks for nothing readable."""
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
        return gzip.compress(body, compresslevel=1, mtime=0)  # prompts repeat themselves: 1 gets nearly all of it
    return zlib.compress(body) if compression is Compression.DEFLATE else body
