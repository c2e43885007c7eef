"""What the rows of a page say: the begin of question and answer, and the text around words that were searched for."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import polars as pl

from spanloop.dashboard.queries.conditions import Words
from spanloop.dashboard.view_models.conversation import parse_messages
from spanloop.store import Store

_WEEK_S: Final = 7 * 86_400
_BEFORE: Final = 12
"""Characters before the word: few, so that a narrow cell shows the word."""
_AFTER: Final = 200
_MARK: Final = ("\x02", "\x03")
"""Around a word that was searched for; see the table's script."""


class Preview(NamedTuple):
    """Begin of question and answer of an episode, and its model."""

    model: str = ""
    input: str = ""
    output: str = ""


def fetch_previews(store: Store, rows: pl.DataFrame) -> dict[str, Preview]:
    """Return the preview of each episode; ``rows`` has ``episode_id`` and ``revision``."""
    if rows.is_empty():
        return {}
    frame = store.query(
        "dashboard_previews", episode_ids=rows["episode_id"].to_list(), revisions=rows["revision"].to_list()
    )
    return {row[0]: Preview(*row[1:]) for row in frame.iter_rows()}


def fetch_step_previews(store: Store, rows: pl.DataFrame) -> dict[tuple[str, int], str]:
    """Return the begin of each step's action; ``rows`` has ``episode_id``, ``revision`` and ``step``."""
    if rows.is_empty():
        return {}
    frame = store.query(
        "dashboard_step_previews",
        episode_ids=rows["episode_id"].to_list(),
        revisions=rows["revision"].to_list(),
        steps=rows["step"].to_list(),
    )
    return {(episode_id, step): preview for episode_id, step, preview in frame.iter_rows()}


def fetch_trace_episodes(store: Store, rows: pl.DataFrame) -> pl.DataFrame:
    """Return ``trace``, ``episode_id`` and ``revision`` of the traces that are in an episode.

    ``rows`` has ``trace_id``, ``started_at`` and ``duration_ns`` of the traces. An episode is assumed to have started
    at most a week before its traces.
    """
    if rows.is_empty():
        return pl.DataFrame(schema={"trace": pl.String, "episode_id": pl.String, "revision": pl.UInt64})
    starts = rows["started_at"].dt.epoch("s")
    ends = starts + (rows["duration_ns"] // 10**9).cast(pl.Int64)
    return store.query(
        "dashboard_traces_episodes",
        trace_ids=rows["trace_id"].to_list(),
        from_s=max(0, int(starts.min()) - _WEEK_S),  # type: ignore[arg-type]
        # Both were rounded down.
        until_s=int(ends.max()) + 2,  # type: ignore[arg-type]
    )


def fetch_snippets(store: Store, episode_ids: Sequence[str], words: Words) -> dict[str, str]:
    """Return the text around the words in each episode that has one; the words are marked."""
    if not episode_ids:
        return {}
    frame = store.query(
        "dashboard_snippets",
        episode_ids=list(episode_ids),
        words=list(words.words),
        part=words.text if words.is_partial else "",
    )
    return {episode_id: snippet(text, words) for episode_id, text in frame.iter_rows()}


def snippet(text: str, words: Words) -> str:
    """Return the text around the first of the words, with the words marked; JSON of a message becomes its text."""
    plain = _plain(text).replace(_MARK[0], "").replace(_MARK[1], "")
    texts = [words.text] if words.is_partial else sorted(words.words, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, texts)), re.IGNORECASE)
    if not words.is_partial:
        pattern = re.compile(
            rf"(?<![0-9A-Za-z\u0080-\U0010ffff])(?:{pattern.pattern})(?![0-9A-Za-z\u0080-\U0010ffff])", re.IGNORECASE
        )
    first = pattern.search(plain)
    start = max(0, (first.start() if first else 0) - _BEFORE)
    window = plain[start : start + _BEFORE + _AFTER]
    marked = pattern.sub(lambda match: f"{_MARK[0]}{match[0]}{_MARK[1]}", window)
    return f"{'…' if start else ''}{marked}{'…' if start + _BEFORE + _AFTER < len(plain) else ''}"


def _plain(text: str) -> str:
    """Return the text of a message's parts on one line; other text as it is."""
    parts = [
        f"{part.name} {part.content}" if part.name else part.content
        for message in parse_messages(text)
        for part in message.parts
    ]
    return " ".join(" ".join(parts).split())
