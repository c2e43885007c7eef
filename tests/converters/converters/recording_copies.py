"""Copies of a recording as further runs of its program leave them: other ids, another time, the same words."""

import json
import re
from collections.abc import Iterable, Iterator
from datetime import timedelta
from random import Random
from typing import Any, Final, NamedTuple
from uuid import UUID

import polars as pl

from spanloop.converters import Converted, frames

from . import converters_recordings as recordings
from .converters_world import convert

CONVERSATION_KEYS: Final = ("gen_ai.conversation.id", "session.id", "thread_id", "conversation.id")
SHORTEST_ID: Final = 4


class Recorded(NamedTuple):
    """The rows of one recording."""

    spans: pl.DataFrame
    logs: pl.DataFrame

    def convert(self) -> Converted:
        scores, generations = frames.empty(frames.SCORES), frames.empty(frames.GENERATIONS)
        return convert(self.spans, scores=scores, generations=generations, logs=self.logs)

    def later(self, by: timedelta) -> "Recorded":
        return Recorded(*(rows.with_columns(pl.col("Timestamp") + by) for rows in self))

    def of_service(self, name: str) -> "Recorded":
        return self._replace(spans=self.spans.with_columns(ServiceName=pl.lit(name)))


def rows_of(recording: dict[str, Any]) -> Recorded:
    return Recorded(recordings.span_frame(recording["spans"]), recordings.log_frame(recording.get("log_events", ())))


def together(recorded: Iterable[Recorded]) -> Recorded:
    return Recorded(*map(pl.concat, zip(*recorded, strict=True)))


def framework_ids(converted: Converted) -> Iterator[str]:
    """Ids of responses and tool calls, in the order of the steps."""
    for row in converted.transitions.sort("episode_id", "step").iter_rows(named=True):
        yield row["response_id"]
        for message in (*json.loads(row["state"]), json.loads(row["action"])):
            yield from (part.get("id") or "" for part in message.get("parts", ()))


def names() -> list[str]:
    folders = (recordings.OWN, recordings.RECORDINGS)
    return sorted({path.stem for folder in folders for path in folder.glob("*.json")})


def conversation_ids(spans: pl.DataFrame) -> list[str]:
    items = spans.select(pl.col("SpanAttributes").explode()).unnest("SpanAttributes")
    found: list[str] = (
        items.filter(pl.col("key").is_in(CONVERSATION_KEYS))["value"].unique(maintain_order=True).to_list()
    )
    return found


def ids_of(rows: Recorded, converted: Converted) -> list[str]:
    """Ids of responses, tool calls and conversations in their order; very short ones are in too many texts."""
    ids = (*framework_ids(converted), *conversation_ids(rows.spans))
    return list(dict.fromkeys(identity for identity in ids if len(identity) >= SHORTEST_ID))


def copy_of(recording: dict[str, Any], ids: Iterable[str], seed: int) -> Recorded:
    """Rows of the recording with fresh trace and span ids, and with fresh ids in the place of ``ids``."""
    random = Random(seed)
    fresh = {identity: _unique(random) for identity in ids}
    for context in [span["context"] for span in recording["spans"]]:
        for key, characters in (("trace_id", 32), ("span_id", 16)):
            identity = context[key].removeprefix("0x")
            fresh.setdefault(identity, f"{random.getrandbits(4 * characters):0{characters}x}")
    pattern = "|".join(sorted(map(re.escape, fresh), key=len, reverse=True))
    return rows_of(json.loads(re.sub(pattern, lambda match: fresh[match[0]], json.dumps(recording))))


def _unique(random: Random) -> str:
    return f"id-{UUID(int=random.getrandbits(128), version=4)}"
