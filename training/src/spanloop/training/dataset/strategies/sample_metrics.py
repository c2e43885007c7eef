"""Metrics of each row: how varied its trained tokens are, and their loss under the base where it was computed."""

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

METRIC_COLUMNS: Final = ("distinct_2", "base_loss", "pass_rate")
"""``distinct_2``: share of distinct ones among the bigrams of the trained tokens (Li et al. 2016, "A
Diversity-Promoting Objective Function for Neural Conversation Models"); null with fewer than two tokens. ``base_loss``:
mean negative log-probability of a trained token under the base, nats; null where nothing needed it. ``pass_rate``: of
the row's group, see :mod:`.curriculum`; null when not known."""


def distinct_2(rows: pl.DataFrame) -> pl.Series:
    """Return the column ``distinct_2`` of rows with ``response_token_ids`` and ``loss_mask``."""
    values = [_distinct_2(tokens) for tokens in trained_tokens(rows)]
    return pl.Series("distinct_2", values, dtype=pl.Float64)


def trained_tokens(rows: pl.DataFrame) -> list[NDArray[np.int64]]:
    """Return the tokens of each row that are in the loss."""
    columns = rows.select("response_token_ids", "loss_mask")
    return [_masked(*row) for row in columns.iter_rows()]


def _masked(tokens: list[int], mask: list[int]) -> NDArray[np.int64]:
    masked: NDArray[np.int64] = np.array(tokens, dtype=np.int64)[np.array(mask, dtype=bool)]
    return masked


def _distinct_2(tokens: NDArray[np.int64]) -> float | None:
    if len(tokens) < 2:
        return None
    bigrams = (tokens[:-1] << 32) | tokens[1:]
    return len(np.unique(bigrams)) / len(bigrams)
