"""The last checkpoint of a training between its save and its mark as complete.

A rank may write its part beside the next steps (:mod:`.engine.background_checkpoint`). Invariant: a checkpoint is
marked after every rank has written every part, and before another one is begun.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from spanloop.training.models.checkpoints import discard_old, mark_complete

WRITE_LIMIT_S: Final = 300.0
"""How long a training that failed waits for its last checkpoint."""
_POLL_S: Final = 0.05


def written_path(part: Path, rank: int) -> Path:
    """Return the file that says that a rank has written its share of one part of a checkpoint."""
    return part / f".written_rank_{rank}"


class PendingCheckpoint:
    """Marks checkpoints of a job, one at a time.

    Args:
        directory: The job's folder of checkpoints.
        parts: Folders in a checkpoint that ranks write: empty for the checkpoint's own.
        ranks: Processes that write each part.
        lease_token: Of the attempt.
        keep: Complete checkpoints that are kept.
    """

    def __init__(
        self, directory: Path, *, parts: Sequence[str] = ("",), ranks: int, lease_token: int, keep: int
    ) -> None:
        self._directory = directory
        self._parts = tuple(parts)
        self._ranks = ranks
        self._lease_token = lease_token
        self._keep = keep
        self._folder: Path | None = None

    def begin(self, step: int) -> None:
        """Take the checkpoint of ``step``, whose files are written or being written."""
        self._folder = self._directory / f"global_step_{step}"

    def mark_if_written(self) -> bool:
        """Mark the checkpoint where every rank has written it; return whether none is pending."""
        folder = self._folder
        if folder is None:
            return True
        ranks = range(self._ranks)
        if not all(written_path(folder / part, rank).exists() for part in self._parts for rank in ranks):
            return False
        mark_complete(folder, token=self._lease_token)
        self._folder = None
        discard_old(self._directory, keep=self._keep)
        return True

    def mark_when_written(self, limit_s: float = WRITE_LIMIT_S) -> None:
        """Wait until every rank has written the checkpoint, at most ``limit_s`` seconds, and mark it."""
        until = time.monotonic() + limit_s
        while not self.mark_if_written() and time.monotonic() < until:
            time.sleep(_POLL_S)
