"""otel_traces rows → one list for each canonical field, by the first dialect that matches the span.

Invariant: a row in, a row out. What is read of a row does not depend on the rows beside it.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from spanloop.messages import dump
from spanloop.messages.json_values import Fields
from spanloop.semconv import attributes as names

from ..dialects import (
    CANONICAL,
    COLUMNS,
    IS_READ,
    REQUESTED_CALLS,
    Dialect,
    RawSpan,
    attributes_of,
    column_of,
    lists_of,
    registered_dialects,
)
from ..dialects.conversation_events import with_conversation
from ..errors.status_codes import STATUS_ATTRIBUTES, error_status
from .attributes import Attributes, Rows

Columns = dict[str, list[Any]]
"""The values of each field, by row. Messages are JSON text or what a dialect decoded."""

MARK: Final = "mark"
"""The attribute that gives away a model call which no dialect reads; null elsewhere."""

_COMMON: Final = {
    "error_type": names.ERROR_TYPE,
    "episode_key": names.SPANLOOP_EPISODE_ID,
    "task_id": names.SPANLOOP_TASK_ID,
    "session_id": names.SESSION_ID,
}
"""Attributes that all dialects share; some find out an error or a session otherwise."""

_TESTED: Final = (*COLUMNS, "StatusCode", "TraceId", "SpanId")
"""Columns beside the attributes that conditions and columns of dialects read."""

_NO_DIALECT: Final = 255

_MODEL_CALL_KEY: Final = re.compile(
    r"^gen_ai\.(?:request\.model|prompt|completion|usage)|^llm\.|^ai\.(?:model|prompt|response)\."
    r"|(?i:(?:prompt|completion|input|output)_?tokens\Z)"
)
_MODEL_CALL_TYPE_KEY: Final = re.compile(r"[\w.]*(?:kind|type)\Z", re.IGNORECASE)
_MODEL_CALL_TYPE: Final = re.compile("llm|chat|chat_model|generation|completion", re.IGNORECASE)


def read_columns(frame: pl.DataFrame, attributes: Attributes) -> Columns:
    """The canonical fields of each row of ``frame``, and ``mark``; empty text where a span has none.

    Args:
        frame: The columns of ``frames.SPANS`` with ``_row``, the number of each row in ``attributes``.
        attributes: Of all rows.
    """
    numbers = _dialects(frame, attributes)
    rows = frame["_row"].to_numpy()
    batch, dialects = _Batch(attributes, _requested_calls(frame, attributes)), registered_dialects()
    parts: list[tuple[Rows, Columns]] = []
    present_numbers: list[int] = np.unique(numbers).tolist()
    for number in present_numbers:
        places = np.flatnonzero(numbers == number)
        part = frame if len(places) == frame.height else frame[places]
        parts.append((places, {} if number == _NO_DIALECT else _read_dialect(part, dialects[number], batch)))
    columns = _in_order(parts, frame.height)
    for name, key in _COMMON.items():
        if key in attributes:
            values = attributes.column(key, rows).to_list()
            columns[name] = [value or read for value, read in zip(values, columns[name], strict=True)]
    if present := [key for key in STATUS_ATTRIBUTES if key in attributes]:
        codes = _with_attributes(frame, attributes, present).select(
            pl.when(pl.col("StatusCode").fill_null("").str.to_lowercase().str.ends_with("error")).then(
                error_status({key: pl.col(column_of(key)) for key in present})
            )
        )
        pairs = zip(columns["error_type"], codes.to_series().to_list(), strict=True)
        columns["error_type"] = [kind or code or "" for kind, code in pairs]
    columns[MARK] = _marks(attributes, rows, np.flatnonzero(numbers == _NO_DIALECT))
    return columns


def canonical_columns(frame: pl.DataFrame) -> pl.DataFrame:
    """``frame`` with the canonical fields of its rows as text."""
    columns = read_columns(frame.with_row_index("_row"), Attributes(frame["SpanAttributes"]))
    texts = [
        pl.Series(name, [value if isinstance(value, str | None) else dump(value) for value in values], dtype=pl.String)
        for name, values in columns.items()
    ]
    return frame.select(pl.exclude("SpanAttributes", "Events.Name", "Events.Attributes")).with_columns(texts)


def _in_order(parts: Sequence[tuple[Rows, Columns]], height: int) -> Columns:
    """The fields of all rows, out of those of the rows at some places; empty text where a part has none."""
    order: list[int] = np.argsort(np.concatenate([np.empty(0, np.int64), *(places for places, _ in parts)])).tolist()
    columns: Columns = dict.fromkeys((*CANONICAL, *_COMMON), [""] * height)
    for name in columns.keys() & {name for _, fields in parts for name in fields}:
        values = list(chain.from_iterable(fields.get(name) or [""] * len(places) for places, fields in parts))
        columns[name] = values if len(parts) == 1 else list(itemgetter(*order)(values))
    return columns


def _with_attributes(frame: pl.DataFrame, attributes: Attributes, keys: Sequence[str]) -> pl.DataFrame:
    """``frame`` with a column for each of ``keys``, null where a span has no such attribute."""
    rows = frame["_row"].to_numpy()
    return frame.hstack([attributes.column(key, rows).alias(column_of(key)) for key in keys])


@lru_cache(maxsize=8)
def _tested_columns(dialects: Sequence[Dialect]) -> frozenset[str]:
    """The columns by which dialects know their spans."""
    return frozenset(root for dialect in dialects for root in dialect.condition.roots)


@lru_cache(maxsize=64)
def _number_of_dialect(dialects: Sequence[Dialect], present: frozenset[str]) -> tuple[pl.Expr, Sequence[str]]:
    """The number of a row's dialect, ``_NO_DIALECT`` where none matches, and the attributes that tell it.

    Args:
        dialects: By precedence.
        present: The columns of ``_tested_columns`` that are not null.
    """
    numbers = [
        pl.when(condition).then(pl.lit(number, pl.UInt8))
        for number, dialect in enumerate(dialects)
        if (condition := dialect.condition.reduced(present)) is not False
    ]
    first = pl.coalesce(*numbers, pl.lit(_NO_DIALECT, pl.UInt8))
    return first, attributes_of([first])


def _dialects(frame: pl.DataFrame, attributes: Attributes) -> npt.NDArray[np.uint8]:
    """The number of each row's dialect; ``_NO_DIALECT`` where none matches."""
    dialects = registered_dialects()
    present = _tested_columns(dialects).intersection((*map(column_of, attributes.keys), *_TESTED))
    number, keys = _number_of_dialect(dialects, present)
    # Unlike select, with_columns gives a literal as many rows as the frame has.
    return _with_attributes(frame, attributes, keys).with_columns(number.alias("number"))["number"].to_numpy()


class _Batch(NamedTuple):
    """Data that the rows of several dialects share."""

    attributes: Attributes
    requested: Mapping[tuple[str, str], Sequence[Fields]]
    """See ``_requested_calls``."""


def _read_dialect(frame: pl.DataFrame, dialect: Dialect, batch: _Batch) -> Columns:
    """The canonical fields of rows of one dialect."""
    rows, attributes = frame["_row"].to_numpy(), batch.attributes
    columns: Columns = {}
    wide, expressions = frame, dict(dialect.expressions)
    if expressions:
        wide = _with_attributes(frame, attributes, dialect.expression_keys)
        if "kind" in expressions:
            wide = wide.with_columns(kind=expressions.pop("kind"))
        wide = wide.with_columns(**expressions) if expressions else wide
        columns = {name: _texts(wide[name]) for name in dialect.expressions if name != IS_READ}
    is_read = wide[IS_READ].to_list() if dialect.reads is not None else None
    for name, source in dialect.columns.items():
        if not isinstance(source, pl.Expr) and (keys := [key for key in source if key in attributes]):
            columns[name], *others = (_texts(attributes.column(key, rows)) for key in keys)
            for other in others:
                columns[name] = [value or alternative for value, alternative in zip(columns[name], other, strict=True)]
    if dialect.read is not None:
        places = (
            range(len(rows)) if is_read is None else [place for place, is_needed in enumerate(is_read) if is_needed]
        )
        _read_rows(frame, places, columns, dialect, batch)
    return columns


def _texts(values: pl.Series) -> list[Any]:
    return (values.fill_null("") if values.null_count() else values).to_list()


def _read_rows(frame: pl.DataFrame, places: Sequence[int], columns: Columns, dialect: Dialect, batch: _Batch) -> None:
    """Read the rows at ``places`` one by one, over what their attributes tell in ``columns``."""
    assert dialect.read is not None  # noqa: S101 - asked by the only caller
    part = frame if len(places) == frame.height else frame[places]
    for place, span in zip(places, _raw_spans(part, places, columns, dialect, batch), strict=True):
        fields = dialect.read(span)
        if span.events:
            kind = str(fields.get("kind") or span.columns.get("kind", ""))
            fields = with_conversation({**span.columns, **fields}, kind, span.events)
        for name, value in fields.items():
            column = columns.get(name)
            if column is None:
                column = columns[name] = [""] * frame.height
            column[place] = value or ""


def _raw_spans(
    frame: pl.DataFrame, places: Sequence[int], columns: Columns, dialect: Dialect, batch: _Batch
) -> Iterator[RawSpan]:
    rows, attributes = frame["_row"].to_numpy(), batch.attributes
    is_row_read = np.zeros(attributes.height, dtype=np.bool_)
    is_row_read[rows] = True
    lists, is_listed = lists_of(attributes, is_row_read, dialect.lists)
    given = [(name, values) for name, values in columns.items() if any(values)]
    gaps: dict[int, list[str]] = defaultdict(list)
    for name, entries in lists.items():
        for row in np.flatnonzero(~entries.is_gapless).tolist():
            gaps[row].append(name)
    spans = zip(
        places,
        rows.tolist(),
        frame["SpanName"].to_list(),
        frame["ScopeName"].to_list(),
        _events(frame, batch.requested),
        attributes.texts(rows, is_listed),
        strict=True,
    )
    for place, row, name, scope, events, texts in spans:
        yield RawSpan(
            name=name or "",
            scope=scope or "",
            attributes=texts,
            events=events,
            columns={name: text for name, values in given if (text := values[place])},
            lists={name: entries.of(row) for name, entries in lists.items()},
            gaps=gaps.get(row, ()),
        )


def _events(
    frame: pl.DataFrame, requested: Mapping[tuple[str, str], Sequence[Fields]]
) -> list[list[tuple[str, dict[str, str]]]]:
    """The events of each row."""
    events: list[list[tuple[str, dict[str, str]]]] = [[]] * frame.height
    places = np.flatnonzero(frame["Events.Name"].list.len().fill_null(0).to_numpy())
    listed = frame.select("Events.Name", "Events.Attributes")[places].iter_rows()
    for place, (event_names, attributes) in zip(places.tolist(), listed, strict=True):
        pairs = zip(event_names, attributes or (), strict=False)
        events[place] = [(str(event or ""), _dict(items)) for event, items in pairs]
    if requested:
        for place, identity in enumerate(frame.select("TraceId", "SpanId").iter_rows()):
            if calls := requested.get(identity):
                events[place] = [*events[place], (REQUESTED_CALLS, {"calls": dump(list(calls))})]
    return events


def _dict(items: list[dict[str, str | None]] | None) -> dict[str, str]:
    return {item["key"] or "": item["value"] or "" for item in items or ()}


_CALL_ID: Final = "tool.call.id"


def _requested_calls(frame: pl.DataFrame, attributes: Attributes) -> dict[tuple[str, str], list[Fields]]:
    """Model call → the tool calls that it asked for, where spans below it name them: AgentOps writes them so."""
    requested: dict[tuple[str, str], list[Fields]] = defaultdict(list)
    if _CALL_ID not in attributes:
        return requested
    calls = frame.filter(pl.col("SpanName").str.starts_with("tool_call."))
    spans = zip(
        calls.select("Timestamp", "SpanId", "TraceId", "ParentSpanId").iter_rows(),
        attributes.texts(calls["_row"].to_numpy()),
        strict=True,
    )
    for (_, _, trace_id, parent), texts in sorted(spans, key=itemgetter(0)):
        keys = {"id": _CALL_ID, "name": "tool.name", "arguments": "tool.parameters"}
        if _CALL_ID in texts:
            requested[trace_id, parent].append({name: texts.get(key, "") for name, key in keys.items()})
    return requested


@lru_cache(maxsize=4096)
def _gives_away(key: str) -> str:
    """``call`` for the key of an attribute that only a model call has, ``type`` for one whose value may say so."""
    if _MODEL_CALL_KEY.search(key):
        return "call"
    return "type" if _MODEL_CALL_TYPE_KEY.match(key) else ""


def _marks(attributes: Attributes, rows: Rows, unread: Rows) -> list[str | None]:
    """The attribute that gives away a model call which no dialect reads; None where none does.

    Args:
        attributes: Of all rows.
        rows: The number of each row.
        unread: The places among ``rows`` of those that no dialect reads.
    """
    marks: list[str | None] = [None] * len(rows)
    places: list[int] = unread.tolist()
    place_of = dict(zip(rows[unread].tolist(), places, strict=True))
    is_unread = np.zeros(attributes.height, dtype=np.bool_)
    is_unread[rows[unread]] = True
    signs = [_gives_away(key) for key in attributes.keys]
    is_sign = np.array([bool(sign) for sign in signs], dtype=np.bool_)
    signed = np.flatnonzero(is_unread[attributes.rows] & is_sign[attributes.codes])
    values = attributes.values[pl.Series(signed, dtype=pl.UInt32)].to_list()
    signed_rows: list[int] = attributes.rows[signed].tolist()
    codes: list[int] = attributes.codes[signed].tolist()
    for row, code, value in zip(signed_rows, codes, values, strict=True):
        if signs[code] == "call" or _MODEL_CALL_TYPE.fullmatch(value or ""):
            place, key = place_of[row], attributes.keys[code]
            marks[place] = min(marks[place] or key, key)
    return marks
