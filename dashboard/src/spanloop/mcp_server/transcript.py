"""An episode as lines of text: what is known about it, and its steps with their messages."""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby

import polars as pl

from spanloop.client.conversation import MessageRow
from spanloop.dashboard.queries.episodes import Episode

from .replies import ReplyLimits, cut, row_line


def episode_line(episode: Episode, limits: ReplyLimits) -> str:
    """Return the fields of an episode as JSON on one line."""
    return row_line(asdict(episode), limits)


def step_texts(messages: pl.DataFrame, limits: ReplyLimits) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each step of `Client.messages`."""
    rows = (MessageRow(*row) for row in messages.iter_rows())
    for (step, agent), parts in groupby(rows, key=lambda row: (row.step, row.agent)):
        title = f"--- step {step}{f' of {agent}' if agent else ''}"
        yield step, "\n".join([title, *(_part_text(part, limits) for part in parts)])


def _part_text(part: MessageRow, limits: ReplyLimits) -> str:
    title = part.role if part.kind == "text" else f"{part.role}, {part.kind}"
    if part.name:
        title += f" {part.name}"
    if part.error_type:
        title += f", error {part.error_type}"
    return f"[{title}] {cut(part.content, limits.cell_characters)}"
