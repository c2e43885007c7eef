"""Letting what was acknowledged before now arrive in the store."""

import asyncio
import time
from typing import TYPE_CHECKING, Final

from . import service_health

if TYPE_CHECKING:
    from spanloop.datadir import DataDir

_POLL_S: Final = 0.2
_ROUNDING_S: Final = 0.2


def drain(directory: "DataDir", *, timeout_s: float, captures_may_wait: bool = False) -> None:
    """Wait until collector and gateway have written what they acknowledged before; write it when no collector runs.

    What comes in meanwhile is not waited for. Call it while the store answers.

    Args:
        directory: Whose.
        timeout_s: How long to wait.
        captures_may_wait: Leave the captures of a gateway that does not run where they are.

    Raises:
        NotRunningError: Something still waits after so many seconds, or captures wait and no gateway runs.
    """
    from spanloop.semconv.errors import NotRunningError
    from spanloop.spool import Spool

    started_s = time.monotonic()
    if directory.running("collector") is None and directory.spool.exists():
        asyncio.run(_write_out(directory, timeout_s))
    if not captures_may_wait and directory.running("gateway") is None and directory.generations.exists():
        with Spool(directory.generations, max_bytes=1) as spool:
            waiting = spool.stats.bytes
        if waiting:
            raise NotRunningError(
                f"{waiting:,} bytes of captures wait to be written to ClickHouse, and no gateway runs that would.",
                next_step="Start spanloop up and let it write them (spanloop status shows when), then run this again.",
            )
    while waiting := _waiting_bytes(directory, time.monotonic() - started_s):
        if time.monotonic() - started_s > timeout_s:
            raise NotRunningError(
                f"{waiting:,} bytes wait to be written to ClickHouse.",
                next_step="See spanloop status for what keeps them, let them be written, then run this again.",
            )
        time.sleep(_POLL_S)


def _waiting_bytes(directory: "DataDir", waited_s: float) -> int:
    """What services have not written of what is older than that."""
    spool, engine = service_health.spool(directory), service_health.engine(directory)
    waiting = 0
    if spool is not None and spool.waiting_bytes and spool.oldest_age_s + _ROUNDING_S > waited_s:
        waiting += spool.waiting_bytes
    if engine is not None and engine.waiting_bytes and engine.oldest_age_s + _ROUNDING_S > waited_s:
        waiting += engine.waiting_bytes
    return waiting


async def _write_out(directory: "DataDir", timeout_s: float) -> None:
    """What a collector does at its start, until its spool is empty."""
    from spanloop.collector.health import Health
    from spanloop.collector.insert_errors import RefusedRanges
    from spanloop.collector.metrics import Metrics
    from spanloop.collector.protobuf_blocks import ProtobufStrategy
    from spanloop.collector.settings import Settings
    from spanloop.collector.writer import Writer
    from spanloop.semconv.errors import NotRunningError
    from spanloop.spool import Spool
    from spanloop.store import connect

    with Spool(directory.spool, max_bytes=1) as spool:
        if not spool.stats.records:
            return
        found = Health()
        settings = Settings(linger_s=0.0, drain_timeout_s=0.0)
        strategy = ProtobufStrategy(RefusedRanges(directory.spool / "refused"))
        writer = Writer(spool, lambda: connect(directory), Metrics(), found, settings=settings, strategy=strategy)
        writing = asyncio.create_task(writer.run())
        deadline_s = time.monotonic() + timeout_s
        while spool.stats.records and time.monotonic() < deadline_s and not writing.done():
            await asyncio.wait({writing}, timeout=_POLL_S)
        writer.stop()
        await writing
        if spool.stats.records:
            raise NotRunningError(
                f"{spool.stats.bytes:,} bytes wait to be written to ClickHouse: {found.error or 'it takes long'}.",
                next_step="Start spanloop up and let it write them (spanloop status shows when), then run this again.",
            )
