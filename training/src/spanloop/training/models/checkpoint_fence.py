"""The fence of a job's checkpoints: which attempt may write them, by the fencing token of its lease.

Invariant: a checkpoint is begun and marked complete only by the attempt with the newest token. The token is a file
beside the checkpoints, which every machine with the job's folder sees, so the training needs no control database; an
attempt writes it when its lease is valid, before its first checkpoint.
"""

from functools import partial
from pathlib import Path
from typing import Final

from spanloop.foundation.errors import JobError
from spanloop.foundation.leases import Fence
from spanloop.foundation.paths import write_atomically

_FILE: Final = "lease_token"
NO_FENCE: Final = 0
"""The token of a training without a lease."""


def claim(directory: Path, token: int) -> None:
    """Let only the attempt with ``token`` write checkpoints from now on.

    Raises:
        JobError: An attempt with a newer token has the job.
    """
    directory.mkdir(parents=True, exist_ok=True)
    _fence(directory).claim(token)


def check_claim(directory: Path, token: int) -> None:
    """Check that the attempt with ``token`` may write checkpoints; does nothing for a training without a lease.

    Raises:
        JobError: An attempt with a newer token has the job, or the job has ended.
    """
    if token != NO_FENCE:
        _fence(directory).check(token)


def _fence(directory: Path) -> Fence:
    return Fence(
        partial(_read, directory),
        partial(_fenced_off, directory),
        save=lambda token: write_atomically(directory / _FILE, str(token)),
    )


def _read(directory: Path) -> int | None:
    try:
        return int((directory / _FILE).read_text())
    except FileNotFoundError:
        return None


def _fenced_off(directory: Path, token: int | None, newest: int | None) -> JobError:
    return JobError(
        f"Checkpoints in {directory} belong to the lease with token {newest}, got {token}: another process runs the "
        "job, or it has ended; nothing was written.",
        next_step="Stop this process. Where the control database was restored from an older copy, spanloop jobs retry "
        "gives the job a newer token.",
    )
