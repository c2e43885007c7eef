"""Erase the rows of replaced revisions.

Invariant: a revision is erased when a newer one replaced it some time ago, and neither a dataset's manifest nor an
evaluation names it. Its row in ``replaced_revisions`` is erased last, so an interrupted call is repeated.
"""

import json
import logging
import time
from pathlib import Path
from typing import Final

import polars as pl

from spanloop.store import Store
from spanloop.store.pinned_revisions import pin

GRACE_S: Final = 600.0
"""Time for a reader that knows a revision to read its rows, or to name it in a manifest; in seconds."""
_MAX_REVISIONS: Final = 2_000
_log: Final = logging.getLogger("pipeline")
_TABLES: Final = (
    "transition_rows",
    "episode_messages",
    "trajectories",
    "failures",
    "failure_summaries",
    "step_summaries",
    "replaced_revisions",
)


def erase_replaced(store: Store, *, grace_s: float = GRACE_S) -> int:
    """Erase all revisions that were replaced more than ``grace_s`` seconds ago; return their number.

    Raises:
        StoreError: ClickHouse refused or is unreachable; the next call continues.
    """
    until_us = int((time.time() - grace_s) * 1e6)
    erased = 0
    while True:
        revisions = store.query("pipeline_replaced_revisions", until_us=until_us, max_revisions=_MAX_REVISIONS)
        if revisions.is_empty():
            return erased
        _erase(store, revisions)
        erased += revisions.height


def _erase(store: Store, revisions: pl.DataFrame) -> None:
    ids = {"episode_ids": revisions["episode_id"].to_list(), "revisions": revisions["revision"].to_list()}
    for table in _TABLES:
        store.execute(f"pipeline_erase_{table}", **ids)


def pin_manifests(store: Store, folder: Path) -> None:
    """Pin the revisions that the manifests of a folder of jobs name, for manifests from before there were pins."""
    for path in sorted(folder.glob("*/manifest.json")):
        try:
            pinned = json.loads(path.read_bytes())["pinned"]
            revisions = [(str(each["episode_id"]), int(each["revision"])) for each in pinned]
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("%s is not a dataset's manifest; the revisions that it names may be erased: %r", path, error)
            continue
        pin(store, revisions)
