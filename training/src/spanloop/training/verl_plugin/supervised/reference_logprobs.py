"""The reference of DPO: what the base gave each row of the dataset, computed once and kept beside the dataset.

Invariant: the file belongs to one dataset file, by its SHA-256, and is complete when it exists. So the job holds no
second copy of the weights, and an attempt that goes on from a checkpoint has the numbers of the first one.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from spanloop.foundation.paths import write_atomically
from spanloop.training.dataset.manifest import sha256_of

REFERENCE_NAME: Final = "reference.json"


class Reference(BaseModel):
    """Log-probabilities under the base model."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    dataset_sha256: str
    logprobs: tuple[float, ...]
    """For each row of the dataset file the sum over its trained tokens, in nats."""


def load_or_compute(dataset: Path, compute: Callable[[], Sequence[float]]) -> Reference:
    """Return the reference of the dataset file, computed and stored unless an earlier attempt did.

    Args:
        dataset: The file; the reference lies beside it.
        compute: Returns the sum of each row in the file's order.
    """
    path = dataset.with_name(REFERENCE_NAME)
    sha256 = sha256_of(dataset)
    if path.exists():
        stored = Reference.model_validate_json(path.read_bytes())
        if stored.dataset_sha256 == sha256:
            return stored
    reference = Reference(dataset_sha256=sha256, logprobs=tuple(compute()))
    write_atomically(path, reference.model_dump_json())
    return reference
