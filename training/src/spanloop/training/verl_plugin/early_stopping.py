"""Early stopping of a training: what was seen, and which checkpoint is the job's result.

The subprocess raises an :class:`EarlyStopError`, which passes through its failure file; :mod:`.watchdogs` finds others
in the metrics. Both are an :class:`EarlyStop` for the runner, which registers the checkpoint or fails the job.
"""

import json
from pathlib import Path
from typing import NamedTuple

from spanloop.foundation.errors import JobError, SpanloopError


class EarlyStop(NamedTuple):
    """Why a training stops now."""

    cause: str
    """One word for metadata and log: the setting that asked for it, or what was seen."""
    reason: str
    """A sentence with step, got and expected."""
    next_step: str
    last_step: int
    """The last step whose checkpoint is known to be good."""
    takes_newest: bool = False
    """Without a checkpoint up to ``last_step`` a later one is the result: its weights can be used."""


class EarlyStopError(JobError):
    """The training stops in the subprocess.

    Args:
        cause: As in :class:`EarlyStop`, like the others.
        what: The reason.
        next_step: What the user may do.
        last_step: The last step whose checkpoint is known to be good.
    """

    def __init__(self, cause: str, what: str, *, next_step: str, last_step: int) -> None:
        super().__init__(what, next_step=next_step)
        self.cause = cause
        self.last_step = last_step


class MaskedBatchError(EarlyStopError):
    """No token of a batch is trained."""

    def __init__(self, step: int) -> None:
        super().__init__(
            "masked_batch",
            f"the batch of step {step} has no trained token: masks leave out every token of its rows.",
            next_step="Take larger batches, or look at spanloop train --dry-run for what masks the steps.",
            last_step=step - 1,
        )


def describe_failure(error: Exception) -> dict[str, str | int]:
    """Return the content of the failure file for an exception that ended the subprocess."""
    content: dict[str, str | int] = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, SpanloopError):
        content |= {"message": error.what, "next_step": error.next_step, "is_transient": error.is_transient}
    if isinstance(error, EarlyStopError):
        content |= {"cause": error.cause, "last_step": error.last_step}
    return content


def read_early_stop(failure_path: Path) -> EarlyStop | None:
    """Return the ending that the subprocess reported; None when it failed otherwise, or not at all."""
    try:
        content = json.loads(failure_path.read_text())
    except (OSError, ValueError):
        return None
    if "cause" not in content:
        return None
    return EarlyStop(
        str(content["cause"]), str(content["message"]), str(content["next_step"]), last_step=int(content["last_step"])
    )
