"""Wait until acknowledged spans and captures are in the store."""

import asyncio
import time
from typing import TYPE_CHECKING, Final

from . import service_health

if TYPE_CHECKING:
    from spanloop.foundation.paths import DataDir

_POLL_S: Final = 0.2
_ROUNDING_S: Final = 0.2


def drain(directory: "DataDir", *, timeout_s: float, captures_may_wait: bool = False) -> None:
    """Wait until everything acknowledged before this call is in ClickHouse, which must be running.

    Writes the collector's spool itself when no collector runs. Data that arrives during the call is not waited for.
    With ``captures_may_wait``, the captures of a stopped gateway stay on disk.

    Raises:
        NotRunningError: Data still waits after ``timeout_s`` seconds, or captures wait and no gateway runs.
    """
    from spanloop.foundation.errors import NotRunningError
    from spanloop.spool import Spool

    started_s = time.monotonic()
    if directory.running("collector") is None and directory.spool.exists():
        asyncio.run(_write_spool(directory, timeout_s))
    if not captures_may_wait and directory.running("gateway") is None and directory.generations.exists():
        with Spool(directory.generations, max_bytes=1) as spool:
            waiting_bytes = spool.stats.bytes
        if waiting_bytes:
            raise NotRunningError(
                f"{waiting_bytes:,} bytes of captures wait to be written to ClickHouse, and no gateway runs.",
                next_step="Start spanloop up, wait until spanloop status shows no waiting captures, then run it again.",
            )
    while waiting_bytes := _waiting_bytes(directory, time.monotonic() - started_s):
        if time.monotonic() - started_s > timeout_s:
            raise NotRunningError(
                f"{waiting_bytes:,} bytes wait to be written to ClickHouse.",
                next_step="See spanloop status for the cause, wait until they are written, then run it again.",
            )
        time.sleep(_POLL_S)


def _waiting_bytes(directory: "DataDir", min_age_s: float) -> int:
    """Sum the bytes that wait in services whose oldest record is at least ``min_age_s`` old."""
    spool, gateway = service_health.spool_health(directory), service_health.gateway_health(directory)
    waiting_bytes = 0
    if spool is not None and spool.waiting_bytes and spool.oldest_age_s + _ROUNDING_S > min_age_s:
        waiting_bytes += spool.waiting_bytes
    if gateway is not None and gateway.waiting_bytes and gateway.oldest_age_s + _ROUNDING_S > min_age_s:
        waiting_bytes += gateway.waiting_bytes
    return waiting_bytes


async def _write_spool(directory: "DataDir", timeout_s: float) -> None:
    """Write the collector's spool to ClickHouse, as a starting collector does, until the spool is empty."""
    from spanloop.collector.blocks.insert_errors import RefusedRanges
    from spanloop.collector.blocks.protobuf_blocks import ProtobufStrategy
    from spanloop.collector.health import Health
    from spanloop.collector.metrics import Metrics
    from spanloop.collector.writer import Writer
    from spanloop.foundation.errors import NotRunningError
    from spanloop.foundation.settings.roles import CollectorSettings
    from spanloop.spool import Spool
    from spanloop.store import connect

    with Spool(directory.spool, max_bytes=1) as spool:
        if not spool.stats.records:
            return
        health = Health()
        settings = CollectorSettings(linger_s=0.0, drain_timeout_s=0.0)
        strategy = ProtobufStrategy(RefusedRanges(directory.spool / "refused"))
        writer = Writer(spool, lambda: connect(directory), Metrics(), health, settings=settings, strategy=strategy)
        writing = asyncio.create_task(writer.run())
        deadline_s = time.monotonic() + timeout_s
        while spool.stats.records and time.monotonic() < deadline_s and not writing.done():
            await asyncio.wait({writing}, timeout=_POLL_S)
        writer.stop()
        await writing
        if spool.stats.records:
            raise NotRunningError(
                f"{spool.stats.bytes:,} bytes wait to be written to ClickHouse: {health.error or 'timed out'}.",
                next_step="Start spanloop up, wait until spanloop status shows no waiting spans, then run it again.",
            )
