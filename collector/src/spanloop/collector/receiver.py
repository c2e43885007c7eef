"""Request pipeline shared by HTTP and gRPC: validate, store on disk, count.

Invariant: a request may be acknowledged when `Receiver.receive` returns: every accepted item is on disk, and every
rejected item is stored as a dead letter; both are one group in the spool. When it raises, nothing of the request is
accepted: a body that cannot be parsed is a dead letter, and any other is left to the client to retry. No request waits
for ClickHouse.
"""

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from spanloop.foundation.settings.roles import CollectorSettings
from spanloop.spool import Spool, SpoolDiskError, SpoolFullError

from . import dead_letters
from .blocks.record_kinds import encoded_traces_kind
from .endpoints.authentication import Authenticator
from .endpoints.memory_budget import MemoryBudget
from .endpoints.request_errors import RefusedError, invalid, unavailable
from .health import Health
from .metrics import Metrics
from .otlp.wire import MalformedError
from .redaction.redactor import Redactor
from .validation import Signal, Validation, dead_letter_of_body, validate_request

_log = logging.getLogger(__name__)
_INLINE_BYTES: Final = 256 * 1024
"""Bodies up to this size are validated on the event loop (about a millisecond); larger ones, and JSON, in a thread."""
_INLINE_JSON_BYTES: Final = 8 * 1024
_VALIDATION_THREADS: Final = 2
"""Limits how many large bodies are parsed at once: a parsed body is several times its size."""


class _RateLimitedLog:
    """Warnings about requests, at most one a second: a faulty client sends many faulty requests."""

    def __init__(self) -> None:
        self._next_s = 0.0
        self._suppressed = 0

    def warn(self, text: str) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            self._suppressed += 1
            return
        suffix = f" (and {self._suppressed} warnings before it)" if self._suppressed else ""
        _log.warning("%s%s", text, suffix)
        self._next_s, self._suppressed = now_s + 1.0, 0


class Receiver:
    """Receives the requests of HTTP and gRPC; lives on one event loop.

    Args:
        spool: Stores accepted bodies and dead letters; the caller owns it.
        metrics: Counts items and refused requests.
        health: Is updated when the spool's disk fails.
        settings: The limits.
        authenticator: Checks API keys; the default accepts every request.
        redactor: Removes secrets before anything is stored; the default removes the known leaks.
    """

    def __init__(
        self,
        spool: Spool,
        metrics: Metrics,
        health: Health,
        settings: CollectorSettings,
        authenticator: Authenticator | None = None,
        *,
        redactor: Redactor | None = None,
    ) -> None:
        self.spool = spool
        self.metrics = metrics
        self.health = health
        self.settings = settings
        self.authenticator = authenticator or Authenticator()
        self.redactor = redactor or Redactor()
        self.memory_budget = MemoryBudget(settings.memory_limit_bytes)
        self._warnings = _RateLimitedLog()
        self._validation_threads = ThreadPoolExecutor(_VALIDATION_THREADS, thread_name_prefix="check")

    async def receive(self, signal: Signal, body: bytes, content_type: str) -> Validation:
        """Validate and store one decompressed request; the caller acknowledges it after this returns.

        Raises:
            RefusedError: The body is no request of this signal, or the spool cannot store it.
        """
        self.check_capacity(len(body))
        try:
            validation = await self._validate(signal, body, content_type)
        except MalformedError as error:
            dead_letter = dead_letter_of_body(signal, body, content_type, error, redactor=self.redactor)
            await self._store([(dead_letters.KIND, dead_letters.encode([dead_letter]))])
            self.metrics.count("dead_letters_total", signal=signal, reason=dead_letter.reason)
            raise invalid(f"not an OTLP {signal} request: {dead_letter.detail}") from error
        kind = encoded_traces_kind(validation.accepted) if signal is Signal.TRACES else signal
        records: list[tuple[str, bytes]] = [(kind, validation.body)] if validation.accepted else []
        if validation.dead_letters:
            records.append((dead_letters.KIND, dead_letters.encode(validation.dead_letters)))
        if records:
            await self._store(records)
        self._count(signal, validation)
        return validation

    def check_capacity(self, size_bytes: int) -> None:
        """Check that the spool has room for a body of this size, before the body is read and validated in vain.

        Raises:
            RefusedError: The spool is full.
        """
        try:
            self.spool.check_room(size_bytes)
        except SpoolFullError as error:
            self.health.mark_spool_failed(error.what)
            raise unavailable(error.what) from error

    def record_refused(self, signal: Signal, error: RefusedError) -> None:
        """Count and log a refused request."""
        self.metrics.count("refused_requests_total", signal=signal, status=str(int(error.status)))
        self._warnings.warn(f"refused {signal} with {int(error.status)}: {error.message}")

    def close(self) -> None:
        """Shut the threads down."""
        self._validation_threads.shutdown(wait=False, cancel_futures=True)

    async def _validate(self, signal: Signal, body: bytes, content_type: str) -> Validation:
        inline_bytes = _INLINE_JSON_BYTES if content_type == "application/json" else _INLINE_BYTES
        if len(body) <= inline_bytes:
            return validate_request(signal, body, content_type, redactor=self.redactor)
        validate = partial(validate_request, signal, body, content_type, redactor=self.redactor)
        return await asyncio.get_running_loop().run_in_executor(self._validation_threads, validate)

    async def _store(self, records: list[tuple[str, bytes]]) -> None:
        try:
            await self.spool.append_all(records)
        except (SpoolFullError, SpoolDiskError) as error:
            self.health.mark_spool_failed(error.what)
            raise unavailable(error.what) from error
        self.health.mark_spool_ok()

    def _count(self, signal: Signal, validation: Validation) -> None:
        metrics = self.metrics
        metrics.count("accepted_total", validation.accepted, signal=signal)
        metrics.count("repaired_total", validation.repaired, signal=signal)
        for rule, values in validation.redacted.items():
            metrics.count("redacted_total", values, rule=rule)
        for dead_letter in validation.dead_letters:
            metrics.count("rejected_total", dead_letter.item_count, signal=signal, reason=dead_letter.reason)
            metrics.count("dead_letters_total", signal=signal, reason=dead_letter.reason)
        if validation.rejected:
            reasons = describe_rejections(validation)
            self._warnings.warn(f"rejected from {signal}: {reasons}; see `spanloop dead-letters list`")


def describe_rejections(validation: Validation) -> str:
    """Return the counts of rejected items by reason: ``2 bad_trace_id, 1 undecodable``."""
    return ", ".join(f"{count} {reason}" for reason, count in sorted(validation.rejected.items()))
