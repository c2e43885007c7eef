"""Rows of ``transitions`` as they are stored: rows of ``episode_messages`` and ``transition_rows``.

Invariant: the view ``transitions`` shows the rows that were given to `insert_transitions`. Messages are
inserted before the rows that refer to them, so a crash between leaves messages that no row shows.
"""

from collections import defaultdict
from typing import Final

import numpy as np
import polars as pl

from spanloop.converters.message_numbers import MessageNumbers
from spanloop.converters.ragged import flat
from spanloop.foundation.tables.episodes import EPISODE_MESSAGES, TRANSITION_ROWS
from spanloop.store import Store

KEY: Final = ("episode_id", "revision")
_RANGES: Final = TRANSITION_ROWS.schema["state"]

Numbers = defaultdict[tuple[str, int], MessageNumbers]
"""The numbered messages by (episode_id, revision)."""


def insert_transitions(store: Store, transitions: pl.DataFrame) -> None:
    """Store transitions.

    Args:
        store: The store.
        transitions: Columns of the view ``transitions``, the steps of each revision in order.

    Raises:
        StoreError: ClickHouse refused or is unreachable.
    """
    numbers = Numbers(MessageNumbers)
    rows = number_states(transitions, numbers).with_columns(share_prompts(transitions))
    frame = EPISODE_MESSAGES.frame(
        {
            "episode_id": [episode_id for (episode_id, _), each in numbers.items() for _ in each.messages],
            "revision": [revision for (_, revision), each in numbers.items() for _ in each.messages],
            "number": [number for each in numbers.values() for number in range(len(each.messages))],
            "message": [text for each in numbers.values() for text in each.messages],
        }
    )
    if "converted_at" in transitions.columns:
        # Of two conversions of a revision the later one counts, in both tables.
        frame = frame.join(transitions.group_by(KEY).agg(pl.col("converted_at").max()), on=KEY, how="left")
    store.insert(EPISODE_MESSAGES.name, frame)
    store.insert(TRANSITION_ROWS.name, rows)


def number_states(transitions: pl.DataFrame, numbers: Numbers) -> pl.DataFrame:
    """Replace ``state`` and ``next_state`` by ranges of message numbers; new messages are added to ``numbers``."""
    states: list[tuple[int, ...]] = []
    next_states: list[tuple[int, ...]] = []
    for episode_id, revision, state, next_state in transitions.select(*KEY, "state", "next_state").iter_rows():
        episode = numbers[episode_id, revision]
        states.append(episode.add_text(state or "[]"))
        next_states.append(episode.add_text(next_state or ""))
    return transitions.with_columns(
        pl.Series("state", states, dtype=_RANGES), pl.Series("next_state", next_states, dtype=_RANGES)
    )


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
