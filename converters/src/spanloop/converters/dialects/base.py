"""What a dialect is: a rule that recognises its spans, and one expression a canonical column.

Invariant: every dialect yields the same canonical columns, as text; reading messages out of that text happens once,
in ``normalise``. Expressions see the attributes in columns named by ``attr``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

CANONICAL: Final = (
    "kind",
    "conversation_id",
    "agent_name",
    "request_model",
    "response_model",
    "response_id",
    "finish_reasons",
    "is_streaming",
    "temperature",
    "top_p",
    "max_tokens",
    "seed",
    "input_tokens",
    "output_tokens",
    "tools",
    "system_instructions",
    "input_messages",
    "output_messages",
    "tool_name",
    "tool_call_id",
    "tool_arguments",
    "tool_result",
)
"""Columns that a dialect fills; one that it does not name is empty."""

SEEN: Final = "seen"
SAID: Final = "said"
COUNTED: Final = (SEEN, SAID)
"""The messages of input and output by their numbers; null where nobody counted them."""


@dataclass(frozen=True)
class Dialect:
    """How one family of instrumentors spells its spans.

    Attributes:
        name: As it is called in documentation and rejections.
        attributes: Span attributes that the expressions read.
        matches: True for the spans that the dialect reads. The first dialect of the registry that matches wins.
        columns: A text expression for each canonical column that the dialect has.
    """

    name: str
    attributes: frozenset[str]
    matches: pl.Expr
    columns: Mapping[str, pl.Expr]


def attr(key: str) -> pl.Expr:
    """The span attribute ``key`` as text; null when absent."""
    return pl.col(column_of(key))


def column_of(key: str) -> str:
    """The name of the column that holds the span attribute ``key``."""
    return f"attr:{key}"
