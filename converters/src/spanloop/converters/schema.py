"""The reference of the converters' tables: ``docs/reference/transitions.md`` is this module's output.

    python -m spanloop.converters.schema > docs/reference/transitions.md

Columns and meanings are those of `spanloop.foundation.tables`; ``CONVERTER_VERSION`` goes up where the same columns get
other values.
"""

from typing import Final

import polars as pl

from spanloop.converters.enums import RowStart, TokenSource, UntrainableReason
from spanloop.foundation.tables import Column, Table
from spanloop.foundation.tables.episodes import EPISODES, FAILURES, TRAJECTORIES, TRANSITIONS

from . import frames

TABLES: Final[tuple[Table, ...]] = (EPISODES, TRANSITIONS, TRAJECTORIES, FAILURES, frames.REJECTED_ROWS)
"""The tables that a conversion gives."""

_REASONS: Final = {
    UntrainableReason.MISSING_CONTENT: "no messages in, or none out, or something is evidently missing in them",
    UntrainableReason.REDACTED_CONTENT: "a mark such as `__REDACTED__` stands for what was said",
    UntrainableReason.DROPPED_ATTRIBUTES: "the SDK's limit pushed attributes out",
    UntrainableReason.INCOMPLETE_STREAM: "the stream broke off",
    UntrainableReason.REQUEST_FAILED: "the call failed",
    UntrainableReason.AMBIGUOUS_CAPTURE: "several captures for one call, or several calls for one capture",
    UntrainableReason.TOKEN_MISMATCH: "ids, log-probabilities and token counts do not fit, or are no such thing",
    UntrainableReason.MISSING_LOGPROBS: "the span carries ids and no log-probabilities",
    UntrainableReason.MALFORMED_MESSAGES: "messages or tools that are none",
    UntrainableReason.ENVIRONMENT_FAULT: "the environment or the harness decided the episode",
    UntrainableReason.UNATTRIBUTED_FAILURE: "a failure decided the episode, and nothing shows whose fault it is",
    UntrainableReason.ABANDONED_ATTEMPT: "the program asked again, and went on from the later answer",
    UntrainableReason.AMBIGUOUS_CHOICE: "neither a later call nor a tool shows which of several choices (`n` > 1) the "
    "program used, or they show more than one; choices with equal text and tool calls count as one",
}

_SOURCES: Final = {
    TokenSource.CAPTURED: "captured by the gateway where they were sampled",
    TokenSource.SPAN: "attributes of the call's own span",
    TokenSource.NONE: "not known",
}

_STARTS: Final = {
    RowStart.FIRST: "the first step of its agent",
    RowStart.BRANCH: "it goes back to an earlier point: a retry, or another sample",
    RowStart.HISTORY_EDITED: "the program changed messages that the model had seen or said",
    RowStart.CONTEXT_TRUNCATED: "a stretch of the history is missing",
    RowStart.TEMPLATE_CHANGED: "the chat template wrote earlier messages otherwise",
    RowStart.RETOKENISED: "what was sampled came back as other ids",
    RowStart.PROMPT_DIVERGED: "another conversation of the same agent, or one that was not recorded",
    RowStart.NO_TOKENS: "the step before has no ids",
}


def markdown() -> str:
    """The documentation of all tables."""
    lines = [
        "# Tables of the converters, field by field",
        "",
        "Types are ClickHouse's, and those of frames and files: polars' own, which are Arrow's. The store fills in the",
        "columns without one. Written by `python -m spanloop.converters.schema`.",
    ]
    for table in TABLES:
        is_stored = table is not frames.REJECTED_ROWS
        lines += ["", f"## {table.name}", "", f"| column | type |{' stored as |' if is_stored else ''} meaning |"]
        lines += ["|---|---|---|---|" if is_stored else "|---|---|---|"]
        lines += [_row(column, is_stored=is_stored) for column in table.columns]
    for title, words in (
        ("Why a step is not trained on", _REASONS),
        ("Where token ids come from", _SOURCES),
        ("Why a token row begins", _STARTS),
    ):
        lines += ["", f"## {title}", "", "| value | meaning |", "|---|---|"]
        lines += [f"| `{value}` | {meaning} |" for value, meaning in words.items()]
    return "\n".join(lines) + "\n"


def _row(column: Column, *, is_stored: bool) -> str:
    dtype = "" if column.default_kind else _type(column.dtype)
    return f"| `{column.name}` | {dtype} |{f' `{column.sql_type}` |' if is_stored else ''} {column.meaning} |"


def _type(dtype: pl.DataType) -> str:
    return str(dtype).replace("'", "").replace("|", "\\|")


if __name__ == "__main__":
    print(markdown(), end="")  # noqa: T201 - the document is the output
