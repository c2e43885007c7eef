"""The settings of the data strategies."""

from collections.abc import Callable
from typing import NamedTuple

import polars as pl

from ...spec.choices import Coreset, Curriculum

RowLosses = Callable[[pl.DataFrame], pl.Series]
"""From rows with ``trajectory_id``, ``prompt_token_ids``, ``response_token_ids`` and ``loss_mask`` to the mean negative
log-probability of each row's trained tokens under the base, in nats (Float64)."""


class DataStrategies(NamedTuple):
    """What a job asks for, see the fields of these names in ``JobSpec``."""

    min_pass_rate: float | None = None
    max_pass_rate: float | None = None
    curriculum: Curriculum = Curriculum.NONE
    coreset: Coreset = Coreset.NONE
    coreset_share: float | None = None
    coreset_size: int | None = None
    replay_ratio: float | None = None
    seed: int = 0
    trained_episodes: frozenset[str] = frozenset()
    """Episodes that the base or an ancestor of it was trained on."""
    row_losses: RowLosses | None = None
    """Needed by a coreset by loss."""
