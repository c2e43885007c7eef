"""The one road of every request, whatever it came by: check, keep on disk, count.

Invariant: when `Receiver.receive` returns, every accepted item is on disk and every rejected one is kept as a dead
letter; both are one group in the spool. When it raises, nothing of the request is accepted: a body that cannot be read
is a dead letter, and everything else is the sender's to send again. No request waits for ClickHouse.
"""

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from spanloop.spool import Spool, SpoolDiskError, SpoolFullError

from . import dead_letters
from .authentication import Authenticator
from .health import Health
from .metrics import Metrics
from .otlp.wire import MalformedError
from .record_kinds import ready_kind
from .redaction import Redactor
from .request_errors import MemoryBudget, RefusedError, invalid, unavailable
from .settings import Settings
from .validation import Signal, Validation, malformed_letter, validate_request

_log = logging.getLogger(__name__)
_INLINE_BYTES: Final = 256 * 1024
"""Bodies up to this are checked on the event loop (about a millisecond); larger ones, and JSON, in a thread."""
_INLINE_JSON_BYTES: Final = 8 * 1024
_CHECKERS: Final = 2
"""Threads that check large bodies. A parsed body is several times its size: only so many exist at once."""


class _Complaints:
    """Warnings about requests, at most one a second: a sender that is wrong is wrong many times."""

    def __init__(self) -> None:
        self._next_s = 0.0
        self._silent = 0

    def warn(self, text: str) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            self._silent += 1
            return
        more = f" (and {self._silent} complaints before it)" if self._silent else ""
        _log.warning("%s%s", text, more)
        self._next_s, self._silent = now_s + 1.0, 0


class Receiver:
    """What HTTP and gRPC hand their bodies to; lives on one event loop.

    Args:
        spool: Where accepted bodies and dead letters go; the caller owns it.
        metrics: Counts items and refusals.
        health: Learns when the spool's disk refuses.
        settings: The limits.
        guard: Who may send; default everybody.
        redactor: What nobody may store; default the known leaks.
    """

    def __init__(
        self,
        spool: Spool,
        metrics: Metrics,
        health: Health,
        settings: Settings,
        guard: Authenticator | None = None,
        *,
        redactor: Redactor | None = None,
    ) -> None:
        self.spool = spool
        self.metrics = metrics
        self.health = health
        self.settings = settings
        self.guard = guard or Authenticator()
        self.redactor = redactor or Redactor()
        self.budget = MemoryBudget(settings.memory_limit_bytes)
        self._complaints = _Complaints()
        self._checkers = ThreadPoolExecutor(_CHECKERS, thread_name_prefix="check")

    async def receive(self, signal: Signal, body: bytes, content_type: str) -> Validation:
        """Take one decompressed request.

        Raises:
            RefusedError: No request of this signal, or the spool cannot take it.
        """
        self.check_room(len(body))
        try:
            validation = await self._admit(signal, body, content_type)
        except MalformedError as error:
            letter = malformed_letter(signal, body, content_type, error, redactor=self.redactor)
            await self._store([(dead_letters.KIND, dead_letters.encode([letter]))])
            self.metrics.count("dead_letters_total", signal=signal, reason=letter.reason)
            raise invalid(f"not an OTLP {signal} request: {letter.detail}") from error
        kind = ready_kind(validation.accepted) if signal is Signal.TRACES else signal
        records: list[tuple[str, bytes]] = [(kind, validation.body)] if validation.accepted else []
        if validation.dead_letters:
            records.append((dead_letters.KIND, dead_letters.encode(validation.dead_letters)))
        if records:
            await self._store(records)
        self._count(signal, validation)
        return validation

    def check_room(self, size_bytes: int) -> None:
        """Whether a body of so many bytes finds room now: what will be refused should not be read and checked before.

        Raises:
            RefusedError: It does not.
        """
        try:
            self.spool.check_room(size_bytes)
        except SpoolFullError as error:
            self.health.spool_refused(error.what)
            raise unavailable(error.what) from error

    def refused(self, signal: Signal, refused: RefusedError) -> None:
        """Count and log a request that was refused."""
        self.metrics.count("refused_requests_total", signal=signal, status=str(int(refused.status)))
        self._complaints.warn(f"refused {signal} with {int(refused.status)}: {refused.message}")

    def close(self) -> None:
        """End the threads."""
        self._checkers.shutdown(wait=False, cancel_futures=True)

    async def _admit(self, signal: Signal, body: bytes, content_type: str) -> Validation:
        inline_bytes = _INLINE_JSON_BYTES if content_type == "application/json" else _INLINE_BYTES
        if len(body) <= inline_bytes:
            return validate_request(signal, body, content_type, redactor=self.redactor)
        checked = partial(validate_request, signal, body, content_type, redactor=self.redactor)
        return await asyncio.get_running_loop().run_in_executor(self._checkers, checked)

    async def _store(self, records: list[tuple[str, bytes]]) -> None:
        try:
            await self.spool.append_all(records)
        except (SpoolFullError, SpoolDiskError) as error:
            self.health.spool_refused(error.what)
            raise unavailable(error.what) from error
        self.health.spool_accepted()

    def _count(self, signal: Signal, validation: Validation) -> None:
        metrics = self.metrics
        metrics.count("accepted_total", validation.accepted, signal=signal)
        metrics.count("repaired_total", validation.repaired, signal=signal)
        for rule, values in validation.redacted.items():
            metrics.count("redacted_total", values, rule=rule)
        for letter in validation.dead_letters:
            metrics.count("rejected_total", letter.item_count, signal=signal, reason=letter.reason)
            metrics.count("dead_letters_total", signal=signal, reason=letter.reason)
        if validation.rejected:
            self._complaints.warn(f"rejected from {signal}: {reasons(validation)}; see `spanloop dead-letters list`")


def reasons(validation: Validation) -> str:
    """Why items were rejected, for a person: ``2 bad_trace_id, 1 undecodable``."""
    return ", ".join(f"{count} {reason}" for reason, count in sorted(validation.rejected.items()))
