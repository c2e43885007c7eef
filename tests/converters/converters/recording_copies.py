"""Copies of a recording as further runs of its program leave them: other ids, another time, the same words."""

import json
import re
from collections.abc import Iterable, Iterator
from datetime import timedelta
from functools import lru_cache
from random import Random
from typing import Any, Final, NamedTuple

import polars as pl

from spanloop.converters import Converted, convert, frames
from spanloop.converters.stitch.identity import is_unique

from . import converters_recordings as recordings

CONVERSATION_KEYS: Final = ("gen_ai.conversation.id", "session.id", "thread_id", "conversation.id")
_TOKEN: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{14,}")
_CHARACTER: Final = re.compile(r"[0-9A-Za-z]")
_HEX: Final = frozenset("0123456789abcdef-")


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


def conversation_ids(spans: pl.DataFrame) -> list[str]:
    items = spans.select(pl.col("SpanAttributes").explode()).unnest("SpanAttributes")
    found: list[str] = (
        items.filter(pl.col("key").is_in(CONVERSATION_KEYS))["value"].unique(maintain_order=True).to_list()
    )
    return found


def has_unique_ids(rows: Recorded) -> bool:
    """Whether every call of the recording has an id of its response, and all ids can be replaced by fresh ones."""
    converted = rows.convert()
    ids = {*framework_ids(converted), *conversation_ids(rows.spans)} - {""}
    return all(converted.transitions["response_id"].to_list()) and all(map(is_unique, ids))


@lru_cache(maxsize=1024)
def _tokens(text: str) -> tuple[str, ...]:
    return tuple(sorted(token for token in set(_TOKEN.findall(text)) if token[:2] != "0x" and is_unique(token)))


def copy_of(recording: dict[str, Any], seed: int) -> Recorded:
    """Rows of the recording with fresh ids; an id that names nothing uniquely stays as it is."""
    random = Random(seed)
    text = json.dumps(recording)
    fresh = {token: _fresh(token, random) for token in _tokens(text)}
    for context in [span["context"] for span in recording["spans"]]:
        for key in ("trace_id", "span_id"):
            identity = context[key].removeprefix("0x")
            fresh.setdefault(identity, _fresh(identity, random))
    pattern = "|".join(sorted(map(re.escape, fresh), key=len, reverse=True))
    return rows_of(json.loads(re.sub(pattern, lambda match: fresh[match[0]], text)))


def _fresh(identity: str, random: Random) -> str:
    """An id of the same form; its first word, such as ``call`` or ``chatcmpl``, stays."""
    prefix, sign, rest = identity.partition("_") if "_" in identity else ("", "", identity)
    is_hex = set(rest) <= _HEX

    def other(match: re.Match[str]) -> str:
        if is_hex:
            return random.choice("0123456789abcdef")
        kind = "0123456789" if match[0].isdigit() else "abcdefghijklmnopqrstuvwxyz"
        letter = random.choice(kind)
        return letter.upper() if match[0].isupper() else letter

    return prefix + sign + _CHARACTER.sub(other, rest)
