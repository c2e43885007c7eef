"""Move the rows of ``legacy_transitions``, which older versions wrote, to the tables that store each message once.

Invariant: a revision is shown from the legacy table until all of its rows are inserted into the new ones; erasing its
legacy rows then makes these visible. So no row is shown twice or not at all, and an interrupted move is repeated.
Replaced revisions that nothing names are erased instead.
"""

import logging
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

import polars as pl

from spanloop.converters.message_numbers import MessageNumbers
from spanloop.store import Store

from . import run_lease
from .replaced_revisions import erase
from .stored_transitions import Numbers, insert_transitions

MAX_STEPS: Final = 5_000
"""Steps that are looked at together."""
MAX_BYTES: Final = 64 << 20
"""Text of states in memory at once."""
_END_STEP: Final = 2**32 - 1
_log: Final = logging.getLogger("pipeline")


class _Part(NamedTuple):
    """Steps that are moved at once: all of some revisions, or some of one revision."""

    revisions: pl.DataFrame
    first_step: int
    end_step: int


def move_legacy(store: Store, *, max_s: float, max_steps: int = MAX_STEPS, max_bytes: int = MAX_BYTES) -> int:
    """Move legacy rows for about ``max_s`` seconds; call it until nothing is left.

    Args:
        store: The store. The call waits for the pipeline's run lease.
        max_s: Time after which no further batch begins, in seconds.
        max_steps: Steps that are looked at together.
        max_bytes: Text of states in memory at once, in bytes; a single step may exceed it.

    Returns:
        The number of legacy rows that are left.

    Raises:
        StoreError: ClickHouse refused or is unreachable; the next call continues.
    """
    left = int(store.query("pipeline_legacy_count").item())
    if not left:
        return 0
    deadline, from_episode_id = time.monotonic() + max_s, ""
    with run_lease.acquire(store) as lease:
        while left and (from_episode_id == "" or time.monotonic() < deadline):
            revisions = _next_revisions(store, from_episode_id, max_steps)
            if revisions.is_empty():
                break
            lease.renew()
            _move(store, revisions.filter("is_kept"), max_bytes)
            erase(store, revisions.select("episode_id", "revision"), tables=("legacy_transitions",))
            replaced = revisions.filter(~pl.col("is_kept")).select("episode_id", "revision")
            erase(store, replaced)
            from_episode_id = str(revisions["episode_id"][-1])
    left = int(store.query("pipeline_legacy_count").item())
    _log.info("moving transitions to the tables of messages: %d rows left", left)
    return left


def _next_revisions(store: Store, from_episode_id: str, max_steps: int) -> pl.DataFrame:
    """Return whole revisions, at least one if any is left, in the table's order."""
    limit = max_steps
    while True:
        revisions = store.query("pipeline_legacy_revisions", from_episode_id=from_episode_id, max_steps=limit)
        if int(revisions["steps"].sum()) < limit:
            return revisions
        if revisions.height > 1:
            return revisions[:-1]  # the last one may have further steps
        limit *= 4


def _move(store: Store, revisions: pl.DataFrame, max_bytes: int) -> None:
    numbers = Numbers(MessageNumbers)
    for part in _parts(revisions, max_bytes):
        rows = store.query(
            "pipeline_legacy_transitions",
            episode_ids=part.revisions["episode_id"].to_list(),
            revisions=part.revisions["revision"].to_list(),
            first_step=part.first_step,
            end_step=part.end_step,
        )
        if part.first_step == 0:
            numbers = Numbers(MessageNumbers)
        insert_transitions(store, rows, numbers)


def _parts(revisions: pl.DataFrame, max_bytes: int) -> Iterator[_Part]:
    """Divide revisions into parts of at most ``max_bytes``."""
    start, size = 0, 0
    for at, (steps, size_bytes) in enumerate(revisions.select("steps", "size_bytes").iter_rows()):
        if size + size_bytes > max_bytes and at > start:
            yield _Part(revisions[start:at], 0, _END_STEP)
            start, size = at, 0
        size += size_bytes
        if size_bytes > max_bytes:
            # Twice the mean, because states grow from step to step.
            page = max(1, int(steps * max_bytes / size_bytes / 2))
            firsts = range(0, int(steps), page)
            yield from (_Part(revisions[at : at + 1], first, first + page) for first in firsts[:-1])
            yield _Part(revisions[at : at + 1], firsts[-1], _END_STEP)
            start, size = at + 1, 0
    if start < revisions.height:
        yield _Part(revisions[start:], 0, _END_STEP)
