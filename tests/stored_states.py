"""Transitions whose states are texts, stored as the pipeline stores them: as ranges of message numbers."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import msgspec
import polars as pl

from spanloop.converters import frames
from spanloop.converters.tokens.message_numbers import NO_STATE, MessageNumbers, Ranges
from spanloop.messages import NO_HISTORY, History, Message
from spanloop.pipeline import stored_transitions
from spanloop.store import Store

_KEY: Final = ("episode_id", "revision")


class Histories:
    """Histories of messages whose JSON is any text; equal texts are one history."""

    def __init__(self) -> None:
        self._histories: dict[tuple[str, ...], History] = {}

    def of(self, texts: Sequence[str]) -> History:
        """The history of ``texts``."""
        history = NO_HISTORY
        for end in range(1, len(texts) + 1):
            key = tuple(texts[:end])
            if key not in self._histories:
                message = Message("user", "", (), (), "", key[-1], (), is_redacted=False)
                self._histories[key] = History(history, message, end, 0, None, 0, None, 0, 0)
            history = self._histories[key]
        return history


def insert_transitions(store: Store, transitions: pl.DataFrame) -> None:
    """Store rows of the view ``transitions``; of two conversions of a revision the later one counts, in both tables."""
    histories, numbers = Histories(), defaultdict[tuple[str, int], MessageNumbers](MessageNumbers)
    ranges: list[tuple[Ranges, Ranges]] = []
    for episode_id, revision, state, next_state in transitions.select(*_KEY, "state", "next_state").iter_rows():
        episode = numbers[episode_id, revision]
        own = episode.add(histories.of(_texts(state or "[]")))
        ranges.append((own, episode.add(histories.of(_texts(next_state))) if next_state else NO_STATE))
    messages = [(*key, number, text) for key, each in numbers.items() for number, text in enumerate(each.messages)]
    frame = pl.DataFrame(messages, schema=frames.MESSAGES, orient="row")
    if "converted_at" in transitions.columns:
        frame = frame.join(transitions.group_by(_KEY).agg(pl.col("converted_at").max()), on=_KEY, how="left")
    schema = {name: frames.TRANSITIONS[name] for name in ("state", "next_state")}
    states = pl.DataFrame(ranges, schema=schema, orient="row")
    stored_transitions.insert_transitions(store, frame, transitions.with_columns(states))


def _texts(state: str) -> list[str]:
    return [bytes(raw).decode() for raw in msgspec.json.decode(state, type=list[msgspec.Raw])]
