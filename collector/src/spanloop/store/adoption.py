"""Adopt a database that the 22 migrations before ``0001_initial`` made.

Invariant: an adopted database has the tables and views of a new one, because ``0001_initial`` creates what the 22 left.
So adoption writes one row of the journal and changes no table. A database that ran only some of them is refused.
"""

from collections.abc import Set as AbstractSet
from typing import Final

from spanloop.foundation.errors import StoreError
from spanloop.foundation.former_schemas import OPEN_ONCE

from .client import Address, Connection

FORMER_CHECKSUMS: Final = (
    "b99c2a3037c6bdf5",  # 0001_initial
    "c7f8e97d4287413e",  # 0002_evaluations
    "a30a804298017476",  # 0003_dead_letters
    "220a68a4a1db18d0",  # 0004_scores_by_key
    "f69df838b6818dd4",  # 0005_model_calls
    "3d996064d63f1f51",  # 0006_summaries
    "3bd90fcef4c09c25",  # 0007_model_call_marks
    "276a8eddc7a2b05e",  # 0008_lookups
    "ec3141f2011194ef",  # 0009_more_model_call_marks
    "9b12a9078659db50",  # 0010_newer_model_call_marks
    "be7b9b616c242452",  # 0011_decorated_model_call_marks
    "6e2eaec446c86bef",  # 0012_messages_stored_once
    "34d627fb12fa68e4",  # 0013_sampled_steps
    "c9a8c6a5f83df8c9",  # 0014_training_samples
    "ed88f2f8e1eb4b72",  # 0015_marks
    "d2b59908c240b87f",  # 0016_sample_metrics
    "42f6b0bae1adf464",  # 0017_request_bodies
    "e5f15fa3cdcedcc8",  # 0018_captured_tokenizers_and_step_rewards
    "86caea22c7395b84",  # 0019_attempts
    "c91b5a347155890b",  # 0020_attempt_figures
    "b65ac9a508377e17",  # 0021_canaries
    "ac73a1405ce25ce2",  # 0022_deduplication_windows
)
"""Checksums of the 22 former migrations, in order."""
_FORMER_TABLE: Final = "legacy_transitions"
"""Its rows have another layout than those of ``transition_rows``; spanloop no longer moves them."""
_COUNT: Final = "SELECT count() AS n FROM legacy_transitions"


def is_adoptable(connection: Connection, address: Address, tables: AbstractSet[str]) -> bool:
    """Return whether the former migrations made the database; False when none of them ran.

    Args:
        connection: A connection to the database, which has a journal.
        address: Address of the database, for messages.
        tables: Tables of the database.

    Raises:
        StoreError: Only some of the former migrations ran, or rows of an older layout are left.
    """
    journal = connection.query(
        "SELECT checksum, max(state = 'applied') AS is_applied FROM schema_migrations "
        "WHERE checksum IN {checksums:Array(String)} GROUP BY checksum",
        doing="reading schema_migrations",
        parameters={"checksums": list(FORMER_CHECKSUMS)},
    )
    if journal.is_empty():
        return False
    applied = int(journal["is_applied"].sum())
    if applied < len(FORMER_CHECKSUMS):
        raise StoreError(
            f"Database {address.database!r} at {address} is of an older spanloop: it ran {applied} of the "
            f"{len(FORMER_CHECKSUMS)} migrations that came before this spanloop's initial schema.",
            next_step=OPEN_ONCE,
        )
    if rows := _former_rows(connection, tables):
        raise StoreError(
            f"Database {address.database!r} at {address} has {rows:,} rows of an older layout in {_FORMER_TABLE!r}, "
            "expected 0.",
            next_step=f"{OPEN_ONCE} Its pipeline moves these rows.",
        )
    return True


def _former_rows(connection: Connection, tables: AbstractSet[str]) -> int:
    if _FORMER_TABLE not in tables:
        return 0  # the server lost its definition on a full disk; `migrate` recreates the empty table
    return int(connection.query(_COUNT, doing=f"counting rows of {_FORMER_TABLE}").item())
