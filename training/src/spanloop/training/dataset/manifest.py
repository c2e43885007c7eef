"""The manifest of a job's dataset: its sources, so that every attempt trains on the same rows.

The invariant: a manifest exists only when its data file is complete, and neither changes afterwards, unless somebody
in it is to be forgotten: then it says so, and nothing is trained on it any more.
"""

import hashlib
from datetime import datetime
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from spanloop.foundation.errors import JobError

from ..spec.row_source import RowSource
from .rejections import Rejection, out_of_range_text
from .strategies.report import StrategyReport
from .tally import Tally, counts_text

MANIFEST_NAME: Final = "manifest.json"
DATA_NAME: Final = "dataset.parquet"


class Count(BaseModel):
    """A :class:`Tally` as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    accepted: int
    rejected: dict[str, int]

    @classmethod
    def of(cls, tally: Tally) -> "Count":
        """Convert a tally."""
        return cls(accepted=tally.accepted, rejected=dict(sorted(tally.rejected.items())))

    def __str__(self) -> str:
        return str(Tally(self.accepted, self.rejected))


class PinnedEpisode(BaseModel):
    """One episode revision with rows in the dataset."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    episode_id: str
    revision: int


class DialogFileFacts(BaseModel):
    """A dialog file with rows in the dataset."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    sha256: str
    weight: float


class Manifest(BaseModel):
    """The sources and counts of a job's dataset."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    job_id: str
    kind: str
    """The name of the recipe, which need not be installed any more."""
    created_at: datetime
    base: str
    """``name@version`` that is trained; a retry uses the same one, even if the name has a newer version by then."""
    query: str
    query_parameters: dict[str, JsonValue]
    data_set: str = ""
    """``name@v2`` of the data set whose episodes were selected from; empty without one."""
    data_set_episodes: int = 0
    """Episodes of that version; those that are not among ``episodes`` did not match the job's other filters."""
    rows: Count
    episodes: Count
    groups: Count
    """All zero for sft."""
    strategies: tuple[StrategyReport, ...] = ()
    """What each data strategy kept and why, in the order in which they were applied."""
    pairs: int = 0
    """Preference pairs, which the batches of dpo are made of; 0 for the other kinds."""
    constrained_by: dict[str, int] = Field(default_factory=dict[str, int])
    """Sampling parameter → rows rejected as ``truncated_sampling`` for it; a row may have several."""
    untrainable_calls: dict[str, int] = Field(default_factory=dict[str, int])
    """The converters' reason → model calls of accepted rows that are not in the loss for it."""
    prompt_groups: int
    """Accepted groups after splitting: what batches are made of; 0 for sft and dpo."""
    temperature: float | None
    """That the rows were sampled at, and that policy gradients recompute their log-probabilities at; None for sft."""
    sources: dict[str, int] = Field(default_factory=dict[str, int])
    """Accepted rows by source: captured tokens, rendered messages, dialog files."""
    dialogs: tuple[DialogFileFacts, ...] = ()
    out_of_range: tuple[str, ...] = Field(default=(), exclude=True)
    """Ids of episodes that were rejected as ``reward_out_of_range``. The file does not hold them: an episode that was
    never trained on is erased without a change of the dataset."""
    masked_steps: int = 0
    """Steps in accepted rows that are left out of the loss: mistakes (sft and the better side of a pair), or broken by
    others (attributed credit and the worse side of a pair; a row on both sides counts for each)."""
    masked_tokens: int = 0
    """The sampled tokens of these steps."""
    longest_prompt_tokens: int
    longest_response_tokens: int
    longest_row_tokens: int
    mean_reward: float | None
    """Mean over accepted episodes with a reward."""
    data_sha256: str
    """SHA-256 of ``dataset.parquet``."""
    forgotten_episodes: int = 0
    """That were erased since (`dataset_erasing`); the counts above are of what was trained on."""
    forgotten_rows: int = 0
    pinned: tuple[PinnedEpisode, ...]
    held_out: tuple[PinnedEpisode, ...] = ()
    """Episodes of ``held_out.parquet``, which the gate after a stage is measured on."""

    @property
    def summary(self) -> str:
        """A summary line for the log and error messages."""
        text = f"rows: {self.rows}; episodes: {self.episodes}"
        if self.data_set:
            text += f"; data set {self.data_set}: {self.data_set_episodes} episodes"
        if set(self.sources) - {RowSource.CAPTURED.value}:
            text += f"; {', '.join(f'{source} {count}' for source, count in sorted(self.sources.items()))}"
        if self.constrained_by:
            text += f"; constrained by: {counts_text(self.constrained_by)}"
        if self.untrainable_calls:
            text += f"; calls left out of the loss: {counts_text(self.untrainable_calls)}"
        if self.out_of_range:
            text += f"; {Rejection.REWARD_OUT_OF_RANGE}: {out_of_range_text(self.out_of_range)}"
        if self.masked_steps:
            text += f"; masked steps: {self.masked_steps} ({self.masked_tokens} tokens)"
        if self.has_groups:
            text += f"; groups: {self.groups}"
        if self.pairs:
            text += f"; pairs: {self.pairs}"
        text += "".join(f"; {report}" for report in self.strategies)
        return text if self.temperature is None else f"{text}; temperature: {self.temperature:g}"

    @property
    def has_groups(self) -> bool:
        """Whether the recipe compares the episodes of a group."""
        return bool(self.prompt_groups or self.pairs)

    @property
    def units(self) -> int:
        """What batches are made of: prompt groups (policy gradients), pairs (dpo) or rows (sft)."""
        return self.pairs or self.prompt_groups or self.rows.accepted


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest in a folder, whether its data file is still there or not; None when there is none."""
    path = folder / MANIFEST_NAME
    return Manifest.model_validate_json(path.read_bytes()) if path.exists() else None


def load_manifest(folder: Path) -> Manifest | None:
    """The manifest of an earlier attempt, checked against its data file; None when there is none yet.

    Raises:
        JobError: The data file is not the one that the manifest describes.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        return None
    data = folder / DATA_NAME
    digest = sha256_of(data) if data.exists() else "no file"
    if digest != manifest.data_sha256:
        raise JobError(
            f"Job {manifest.job_id}: {data} is not what its manifest describes: got {digest}, "
            f"expected sha256 {manifest.data_sha256}.",
            next_step="Submit a new job with the same spec; it exports its dataset again.",
        )
    return manifest


def sha256_of(path: Path) -> str:
    """Return the file's SHA-256 as hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
