"""Erase what forgotten episodes answered from the ledgers of runs.

Invariant: afterwards no ledger holds such an answer; that the attempt was made, and its score, stay.
"""

from collections.abc import Set as AbstractSet
from pathlib import Path

from .ledger import LEDGER_NAME, Ledger


def erase_answers(runs: Path, episode_ids: AbstractSet[str]) -> int:
    """Erase the answers of the episodes from all runs; return how many attempts they were.

    Raises:
        AlreadyRunningError: A run that has not ended may hold one.
        DataDirectoryError: A ledger cannot be written.
    """
    erased = 0
    for path in sorted(runs.glob(f"*/{LEDGER_NAME}")):
        with Ledger(path.parent) as ledger:
            erased += ledger.erase(episode_ids)
    return erased
