"""Rows of ``transitions`` as they are stored: rows of ``episode_messages`` and ``transition_rows``.

Invariant: the view ``transitions`` shows the rows that were given to `insert_transitions`, states as texts. Messages
are inserted before the rows that refer to them, so a crash between leaves messages that no row shows.
"""

from typing import Final, Protocol

import numpy as np
import polars as pl

from spanloop.converters.reading.arrow_lists import flat
from spanloop.foundation.tables.episodes import EPISODE_MESSAGES, TRANSITION_ROWS

KEY: Final = ("episode_id", "revision")


class Inserts(Protocol):
    """A store, or inserts into one under leases."""

    def insert(self, table: str, frame: pl.DataFrame) -> int:
        """Insert a frame as one block; return the number of its rows."""
        ...


def insert_transitions(store: Inserts, messages: pl.DataFrame, transitions: pl.DataFrame) -> None:
    """Store transitions and the messages that their states refer to.

    Args:
        store: Where to insert.
        messages: The columns of ``frames.MESSAGES``.
        transitions: The columns of ``frames.TRANSITIONS``, the steps of each revision in order.

    Raises:
        StoreError: ClickHouse refused or is unreachable.
    """
    store.insert(EPISODE_MESSAGES.name, messages)
    store.insert(TRANSITION_ROWS.name, transitions.with_columns(share_prompts(transitions)))


def share_prompts(transitions: pl.DataFrame) -> list[pl.Series]:
    """Return ``prompt_step``, ``prompt_length`` and ``prompt_token_ids`` with ids at the last step of each chain only.

    A chain: consecutive steps of an agent, each of whose prompts begins with the prompt of the step before.
    """
    prompts = transitions["prompt_token_ids"].fill_null([])
    values, offsets = flat(prompts)
    holders = np.arange(transitions.height)
    following: dict[tuple[object, ...], int] = {}
    keys = transitions.select(*KEY, "agent_name").rows()
    rows: list[int] = np.flatnonzero(np.diff(offsets))[::-1].tolist()
    for row in rows:
        prompt, after = values[offsets[row] : offsets[row + 1]], following.get(keys[row])
        if after is not None:
            start = offsets[after]
            if np.array_equal(prompt, values[start : min(start + len(prompt), offsets[after + 1])]):
                holders[row] = holders[after]
        following[keys[row]] = row
    is_holder = pl.Series(holders == np.arange(transitions.height), dtype=pl.Boolean)
    no_ids = pl.Series([[]], dtype=prompts.dtype)
    return [
        transitions["step"].gather(holders).alias("prompt_step"),
        prompts.list.len().cast(pl.UInt32).alias("prompt_length"),
        prompts.zip_with(is_holder, no_ids).alias("prompt_token_ids"),
    ]
