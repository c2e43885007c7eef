"""Dialects that take reading: spans whose messages stand scattered over attributes and events, one span at a time.

Invariant: a ``RowDialect`` gives the same canonical columns, as text, as a ``Dialect`` does with expressions, and
leaves out what it does not find. Reading never raises: text that should be JSON and is not counts as plain text.
"""

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, cast

import polars as pl

from ..chat_forms import Fields, python_object
from ..messages import MalformedMessagesError, dump, parse_json
from .numbered import Numbered

BODY: Final = "event.body"
"""Under this key an event that came as a log record has its body, next to its attributes."""


class RawSpan(NamedTuple):
    """A span as it was sent."""

    name: str
    scope: str
    attributes: Mapping[str, str]
    events: Sequence[tuple[str, Mapping[str, str]]]
    """(name, attributes), in order; log records of the span are among them."""
    lists: Mapping[str, str]
    """``RowDialect.lists`` as JSON, of those that this span has and that could be told."""


@dataclass(frozen=True)
class Spread:
    """How the rows of a ``RowDialect`` are read at once, where most are of a form that allows it.

    Attributes:
        lists: Column → the numbered list that stands in it, as JSON; ``name:note`` has the notes.
        has_lists: Out of the columns that there are: true for the rows whose lists count; of others they are empty.
        is_simple: Out of the same: true for the rows that ``columns`` tells of.
        columns: As ``Dialect.columns``, out of the columns that there are, lists included.
        attributes: What they read beside ``RowDialect.attributes``.
    """

    lists: Mapping[str, Numbered]
    has_lists: Callable[[Container[str]], pl.Expr]
    is_simple: Callable[[Container[str]], pl.Expr]
    columns: Callable[[Container[str]], Mapping[str, pl.Expr]]
    attributes: frozenset[str]


@dataclass(frozen=True)
class RowDialect:
    """How one family of instrumentors spells its spans, where that takes more than an expression a column.

    Attributes:
        name: As it is called in documentation and rejections.
        attributes: Span attributes that ``matches`` reads.
        matches: True for the spans that the dialect reads.
        read: Canonical column → text, of one span. Beside those of ``CANONICAL``, ``error_type`` and ``session_id``
            may be given; they count where the span has none.
    """

    name: str
    attributes: frozenset[str]
    matches: pl.Expr
    read: Callable[[RawSpan], dict[str, str]]
    spread: Spread | None = None
    """The same for all rows at once, of those that can be told so."""
    lists: Mapping[str, Numbered] = field(default_factory=dict[str, Numbered])
    """Name → a numbered list that is put together before ``read``, for all rows at once."""


def decoded(text: str) -> object:
    """The JSON value of ``text``, else the Python literal that it is the repr of, else the text."""
    stripped = text.strip()
    if stripped[:1] not in {"{", "[", '"'}:
        return text
    try:
        return parse_json(stripped)
    except MalformedMessagesError:
        found = python_object(stripped)
        return text if found is None else found


def fields_of(text: str) -> Fields:
    """The JSON object of ``text``; empty when it is none."""
    found = decoded(text) if text else None
    return cast("Fields", found) if isinstance(found, dict) else {}


def as_text(value: object) -> str:
    """A value as the text of an attribute: empty for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else dump(value)


def first(attributes: Mapping[str, str], *keys: str) -> str:
    """The first of the attributes that is there and not empty."""
    return next((attributes[key] for key in keys if attributes.get(key)), "")


def known(columns: Mapping[str, str]) -> dict[str, str]:
    """The columns that are not empty."""
    return {name: value for name, value in columns.items() if value}


def parameters(given: Mapping[str, object]) -> dict[str, str]:
    """Sampling parameters out of a request, under their canonical names."""
    spelled: Iterable[tuple[str, tuple[str, ...]]] = (
        ("temperature", ("temperature",)),
        ("top_p", ("top_p", "topP")),
        ("max_tokens", ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxTokens", "maxOutputTokens")),
        ("seed", ("seed",)),
        ("is_streaming", ("stream",)),
    )
    return known({name: next((as_text(given[k]) for k in keys if _is_set(given.get(k))), "") for name, keys in spelled})


def _is_set(value: object) -> bool:
    return value not in _UNSET and not (isinstance(value, str) and _OBJECT.match(value))


_UNSET: Final = (None, "Infinity", "inf", "NOT_GIVEN")
"""What some write for a parameter that nobody set."""

_OBJECT: Final = re.compile(r"<.* object at 0x")
"""The repr of an object of no value, such as OpenAI's ``Omit``."""
