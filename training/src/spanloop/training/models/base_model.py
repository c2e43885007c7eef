"""Check a job's base model and read its limits before training starts; no torch."""

from pathlib import Path
from typing import Any, NamedTuple

from spanloop.foundation.errors import JobError

from .files.check import require_model
from .files.tokenizer_files import read_json
from .files.tokenizer_fingerprint import tokenizer_fingerprint


class Training(NamedTuple):
    """A training that made a version: a job, or a stage of one."""

    job_id: str
    """The id that its records are stored under (``training_ids``)."""
    last_step: int
    """Of the version's weights; what the job did afterwards is not in them."""


class BaseModelFacts(NamedTuple):
    """A registered model folder that can be trained."""

    reference: str
    """``name@version``."""
    path: Path
    vocabulary_size: int
    context_tokens: int
    tokenizer: str
    """Fingerprint of tokenizer and chat template."""
    lineage: tuple[str, ...] = ()
    """The version and its ancestors, newest first; the age of rows is counted in it."""
    trainings: tuple[Training, ...] = ()
    """The jobs that made the version and its ancestors."""


def read_base_model(reference: str, path: Path) -> BaseModelFacts:
    """Check the Hugging Face folder ``path`` and read its limits.

    Raises:
        JobError: It cannot be trained: truncated weights, no chat template, no end-of-turn token, …
    """
    require_model(reference, path)
    config = read_json(path / "config.json")
    text = config.get("text_config") or config
    return BaseModelFacts(
        reference=reference,
        path=path,
        vocabulary_size=_positive(reference, text, "vocab_size"),
        context_tokens=_positive(reference, text, "max_position_embeddings"),
        tokenizer=tokenizer_fingerprint(path),
    )


def _positive(reference: str, config: dict[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or value < 1:
        raise JobError(f"Model {reference}: config.json has {key} {value!r}, expected a positive number.")
    return value
