"""Dialects: each is a rule that recognises its spans, a table of attribute names, and perhaps a reader.

Invariant: every dialect yields the same canonical columns. Messages are JSON where a span has them as JSON, and decoded
objects where a reader makes them; ``normalise`` reads both. Expressions see the attributes in columns named by
``attr``.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import polars as pl

from spanloop.messages.json_values import Fields

from .condition import PREFIX, Condition, take_apart

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

IS_READ: Final = "is_read"

BODY: Final = "event.body"
"""Under this key an event that came as a log record has its body, next to its attributes."""

COLUMNS: Final = ("SpanName", "ScopeName", "Events.Name")
"""Columns that ``Dialect.calls`` may test; their values are compared as they are."""

ColumnValue: TypeAlias = "str | Sequence[Fields]"
"""Text, or the decoded messages of a call, which a reader must not change afterwards."""

Calls: TypeAlias = tuple[Mapping[str, str | Sequence[str]], ...]


class RawSpan(msgspec.Struct, frozen=True, gc=False):
    """A span as it was sent."""

    name: str
    scope: str
    attributes: Mapping[str, str]
    """Without those of ``lists``."""
    events: Sequence[tuple[str, Mapping[str, str]]]
    """(name, attributes), in order; log records of the span are among them."""
    columns: Mapping[str, str]
    """The values of the dialect's table of attribute names; none is empty."""
    lists: Mapping[str, Sequence[Any]]
    """The entries of each of ``Dialect.lists``, in order, as ``IndexedList.read`` gave them."""
    gaps: Container[str] = ()
    """The lists whose indexes do not run from 0 without a gap."""


class IndexedList(NamedTuple):
    """A list in attributes ``prefix.N.…``, one or more for each entry.

    An agent sends its history with every call, so each distinct entry of a batch is read once.
    """

    prefixes: tuple[str, ...]
    """The first of which a span has entries counts."""
    read: Callable[[Fields], object]
    """An entry out of the nested object that its attributes make."""


@dataclass(frozen=True, eq=False)
class Dialect:
    """The attributes of one group of instrumentors, and a reader of them.

    Attributes:
        name: As it is called in documentation and rejections.
        matches: True for the spans that the dialect reads. The first dialect of the registry that matches wins.
        columns: Canonical column → its attributes, of which the first that is not empty counts, or a text expression.
            Expressions and ``reads`` may read ``kind``, which is found before them.
        read: Canonical column → text or decoded messages, of one span, over what ``columns`` found. ``error_type`` and
            ``session_id`` may be given, too; they count where the span has none.
        reads: True for the spans that ``read`` has more to say of; null for all.
        lists: Name → a list in indexed attributes, which ``read`` finds in ``RawSpan.lists``.
        calls: How the store tells model calls: any of these, each a test for every attribute or ``COLUMNS``. A test is
            a tuple of values in lower case, a RE2 pattern, or "" for presence; "!" before the name negates it.
    """

    name: str
    matches: pl.Expr
    columns: Mapping[str, pl.Expr | tuple[str, ...]] = field(default_factory=dict[str, pl.Expr | tuple[str, ...]])
    read: Callable[[RawSpan], Mapping[str, ColumnValue]] | None = None
    reads: pl.Expr | None = None
    lists: Mapping[str, IndexedList] = field(default_factory=dict[str, IndexedList])
    calls: Calls = ()

    @cached_property
    def condition(self) -> Condition:
        """``matches``, taken apart."""
        return take_apart(self.matches)

    @cached_property
    def expressions(self) -> Mapping[str, pl.Expr]:
        """The expressions of ``columns``, ``kind`` first, and ``reads`` as ``IS_READ``."""
        expressions = {name: source for name, source in self.columns.items() if isinstance(source, pl.Expr)}
        if self.reads is not None:
            expressions[IS_READ] = pl.lit(value=True) & self.reads
        return {name: expressions[name] for name in sorted(expressions, key=lambda name: name != "kind")}

    @cached_property
    def expression_keys(self) -> Sequence[str]:
        """The attributes that ``expressions`` read."""
        return attributes_of(self.expressions.values())


def attr(key: str) -> pl.Expr:
    """The span attribute ``key`` as text; null when absent."""
    return pl.col(column_of(key))


def column_of(key: str) -> str:
    """The name of the column that holds the span attribute ``key``."""
    return PREFIX + key


def attributes_of(expressions: Iterable[pl.Expr]) -> tuple[str, ...]:
    """The span attributes that expressions read, each once."""
    roots = dict.fromkeys(root for expression in expressions for root in expression.meta.root_names())
    return tuple(root.removeprefix(PREFIX) for root in roots if root.startswith(PREFIX))
