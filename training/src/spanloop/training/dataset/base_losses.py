"""The loss of rows under the base model, computed by a subprocess before the dataset is cut.

Invariant: every row has a finite loss, or the job fails; a coreset by loss never guesses one. The subprocess runs on
the host of the job, also when the job trains on a Ray cluster, and ends with this process.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import polars as pl

from spanloop.foundation.errors import JobError

from ..models.base_model import BaseModelFacts
from ..spec.choices import Device

_COLUMNS: Final = ("prompt_token_ids", "response_token_ids", "loss_mask")
_MODULE: Final = "spanloop.training.run.row_losses"
_LAST_CHARACTERS: Final = 600


def base_losses(base: BaseModelFacts, device: Device, rows: pl.DataFrame) -> pl.Series:
    """Return the mean negative log-probability of each row's trained tokens under the base, in nats, at temperature 1.

    Args:
        base: The model.
        device: Where to compute; ``auto`` is a GPU if this host has one.
        rows: With ``prompt_token_ids``, ``response_token_ids`` and ``loss_mask``, which has a 1.

    Raises:
        JobError: The model cannot be run, or a loss is not finite.
    """
    with tempfile.TemporaryDirectory(prefix="spanloop-losses-") as name:
        folder = Path(name)
        rows.select(_COLUMNS).write_parquet(folder / "rows.parquet")
        command = [sys.executable, "-m", _MODULE, str(base.path), str(device), str(folder)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise JobError(
                f"The loss of {rows.height} rows under {base.reference} cannot be computed: exit status "
                f"{done.returncode}. {done.stderr.strip()[-_LAST_CHARACTERS:]}",
                next_step="Free some memory (a GPU that serves has little: --device cpu), or take another coreset.",
            )
        losses = pl.Series("base_loss", json.loads((folder / "losses.json").read_bytes()), dtype=pl.Float64)
    if not losses.is_finite().all():
        raise JobError(
            f"{(~losses.is_finite()).sum()} of {rows.height} rows have no finite loss under {base.reference}.",
            next_step="Check the model: spanloop models check; or take another coreset.",
        )
    return losses
