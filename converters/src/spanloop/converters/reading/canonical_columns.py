"""otel_traces rows → one text column for each canonical field, by the first dialect that knows the span.

Messages that a dialect decodes come beside the columns. Invariant: a row in, a row out. Dialects that are expressions
cost polars' time only; those that read span by span see just the rows that are theirs.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from spanloop.foundation.tables.build_frame import clean_text
from spanloop.messages import dump
from spanloop.messages.chat_forms import Fields
from spanloop.semconv import attributes as names

from .. import frames
from ..dialects import (
    ASKED,
    CANONICAL,
    MESSAGES,
    Dialect,
    RawSpan,
    column_of,
    keys_of,
    lists_of,
    of_keys,
    registered_dialects,
)
from ..dialects.conversation_events import with_conversation
from ..errors.status_codes import STATUS_ATTRIBUTES, error_status, status_columns
from .attributes import Attributes, Mask
from .two_dialects import CONTENT, Reading, merged_readings

_COMMON: Final = {
    "error_type": names.ERROR_TYPE,
    "episode_key": names.SPANLOOP_EPISODE_ID,
    "task_id": names.SPANLOOP_TASK_ID,
    "session_id": names.SESSION_ID,
}
_DIALECT: Final = "dialect"
MARK: Final = "mark"
"""The column with the attribute that gives away a model call which no dialect reads; null elsewhere."""

_READ_TOO: Final = ("error_type", "session_id")
"""Attributes that all dialects share, and that some find out otherwise."""

_COLUMNS: Final = (*CANONICAL, *_READ_TOO)
_ONLY_COMMON: Final = ("episode_key", "task_id")

Numbers = npt.NDArray[np.uint8]

_NO_DIALECT: Final = 255

_MODEL_CALL_KEY: Final = (
    r"^gen_ai\.(?:request\.model|prompt|completion|usage)|^llm\.|^ai\.(?:model|prompt|response)\."
    r"|(?i:(?:prompt|completion|input|output)_?tokens$)"
)
_MODEL_CALL_TYPE_KEY: Final = r"(?i)^[\w.]*(?:kind|type)$"
_MODEL_CALL_TYPE: Final = r"(?i)^(?:llm|chat|chat_model|generation|completion)$"


DECODED: Final = "decoded"
"""The text in a column of messages that are decoded already."""


class DecodedMessages(NamedTuple):
    """Row → its messages, of rows whose dialect decodes them."""

    input: dict[int, Sequence[Fields]]
    output: dict[int, Sequence[Fields]]


class _Given(NamedTuple):
    """What the rows of several dialects have in common."""

    attributes: Attributes
    asked: Mapping[tuple[str, str], Sequence[Fields]]
    """See ``_asked``."""
    decoded: DecodedMessages


def canonical_columns(frame: pl.DataFrame) -> pl.DataFrame:
    """One text column for each canonical field, by the first dialect that matches; ``mark`` where none reads a call."""
    canonical, decoded = by_dialect(frame, Attributes(frame["SpanAttributes"]))
    texts = [with_texts(name, messages) for name, messages in zip(MESSAGES, decoded, strict=True)]
    return canonical.with_columns(texts).sort("_row").drop("_row")


def with_texts(name: str, messages: Mapping[int, Sequence[Fields]]) -> pl.Expr:
    """The column ``name`` with the JSON of ``messages``, which are given by row."""
    texts = {row: dump(listed) for row, listed in messages.items()}
    return pl.coalesce(pl.col("_row").replace_strict(texts, default=None, return_dtype=pl.String), name).alias(name)


def by_dialect(frame: pl.DataFrame, attributes: Attributes) -> tuple[pl.DataFrame, DecodedMessages]:
    """``canonical_columns`` of all rows in another order, with the number of each, ``_row``, and decoded messages.

    Args:
        frame: The columns of ``frames.SPANS``.
        attributes: Of ``frame``.
    """
    told = (key for dialect in registered_dialects() for key in dialect.attributes)
    keys = {*told, *_COMMON.values(), *STATUS_ATTRIBUTES}
    wide = (
        frame.drop("SpanAttributes")
        .with_row_index("_row")
        .with_columns(attributes.column(key).alias(column_of(key)) for key in sorted(keys) if key in attributes)
    )
    numbers = _dialects(wide, attributes)
    wide = wide.with_columns(_marks(attributes, numbers == _NO_DIALECT), pl.Series(_DIALECT, numbers))
    given = _Given(attributes, _asked(wide, attributes), DecodedMessages({}, {}))
    present: list[int] = np.unique(numbers).tolist() or [_NO_DIALECT]
    if len(present) == 1:
        return _of_dialect(wide, present[0], given), given.decoded
    parts = [_of_dialect(wide.filter(pl.col(_DIALECT) == number), number, given) for number in present]
    return pl.concat(parts), given.decoded


def with_second_dialect(
    canonical: pl.DataFrame, decoded: DecodedMessages, frame: pl.DataFrame, attributes: Attributes
) -> tuple[pl.DataFrame, dict[int, str]]:
    """``canonical`` with the better content of spans that carry two dialects, and what differs in them, by row.

    Args:
        canonical: The columns of ``by_dialect``.
        decoded: Its decoded messages, which are replaced in place.
        frame: The columns of ``frames.SPANS``.
        attributes: Of ``frame``.
    """

    def readings(columns: pl.DataFrame, messages: DecodedMessages) -> Mapping[int, Reading]:
        texts = columns.select("_row", "kind", *(name for group in CONTENT for name in group))
        rows: dict[int, dict[str, Any]] = {row["_row"]: row for row in texts.iter_rows(named=True)}
        for name, listed in zip(MESSAGES, messages, strict=True):
            for row in rows.keys() & listed.keys():
                rows[row][name] = listed[row]
        return rows

    def read(spans: pl.DataFrame) -> dict[int, Reading]:
        numbers = spans["_row"].to_list()
        columns, messages = by_dialect(spans.drop("_row"), Attributes(spans["SpanAttributes"]))
        return {numbers[place]: reading for place, reading in readings(columns, messages).items()}

    def first(row: int) -> Reading:
        return readings(canonical.filter(pl.col("_row") == row), decoded)[row]

    merged = merged_readings(frame.with_row_index("_row"), attributes, first, read)
    changed: dict[str, dict[int, str]] = defaultdict(dict)
    for row, (fields, _) in merged.items():
        for name, value in fields.items():
            changed[name][row] = value if isinstance(value, str) else DECODED
            if name in MESSAGES:
                listed = decoded[MESSAGES.index(name)]
                listed.pop(row, None)
                if not isinstance(value, str):
                    listed[row] = value
    replaced = [
        pl.coalesce(pl.col("_row").replace_strict(rows, default=None, return_dtype=pl.String), name).alias(name)
        for name, rows in changed.items()
    ]
    conflicts = {row: conflict for row, (_, conflict) in merged.items() if conflict}
    return canonical.with_columns(replaced), conflicts


def _completed(wide: pl.DataFrame, keys: Iterable[str]) -> pl.DataFrame:
    """``wide`` with an empty column for each of ``keys`` that no row has."""
    known = set(wide.columns)
    absent = sorted(column_of(key) for key in keys if column_of(key) not in known)
    return wide.with_columns(pl.lit(None, dtype=pl.String).alias(name) for name in absent)


def _dialects(wide: pl.DataFrame, attributes: Attributes) -> Numbers:
    """The number of each row's dialect; ``_NO_DIALECT`` where none matches."""
    told = [
        (number, dialect) for number, dialect in enumerate(registered_dialects()) if _may_match(dialect, attributes)
    ]
    whole = _completed(wide, {key for _, dialect in told for key in dialect.marks})
    matches = whole.select("_row", *(dialect.matches.fill_null(value=False).alias(str(n)) for n, dialect in told))
    found = np.full(wide.height, _NO_DIALECT, dtype=np.uint8)
    for number, _ in reversed(told):
        found[matches[str(number)].to_numpy()] = number
    return found


def _may_match(dialect: Dialect, attributes: Attributes) -> bool:
    """Whether there is anything that the dialect tells its spans by."""
    return dialect.marks_other_columns or any(key in attributes for key in dialect.marks)


def _of_dialect(rows: pl.DataFrame, number: int, given: _Given) -> pl.DataFrame:
    """The canonical columns of rows of one dialect."""
    dialects = registered_dialects()
    dialect = dialects[number] if number < len(dialects) else None
    if dialect is None:
        return _spelled(rows, {})
    whole = _completed(rows, dialect.attributes)
    columns = {name: told if isinstance(told, pl.Expr) else of_keys(told) for name, told in dialect.columns.items()}
    if dialect.read is None:
        return _spelled(whole, columns)
    if dialect.reads is not None:
        is_read = whole.select(pl.lit(value=True) & dialect.reads).to_series()
        if not is_read.all():
            told = _spelled(whole.filter(~is_read), columns)
            return pl.concat([told, _of_reader(whole.filter(is_read), dialect, columns, given)])
    return _of_reader(whole, dialect, columns, given)


def _of_reader(rows: pl.DataFrame, dialect: Dialect, columns: Mapping[str, pl.Expr], given: _Given) -> pl.DataFrame:
    found = _read(rows, rows.select(expr.alias(name) for name, expr in columns.items()), dialect, given)
    read = [_texts(_READ + name, values) for name, values in found.items()]
    return _spelled(rows.with_columns(read), {name: pl.col(_READ + name) for name in found})


_READ: Final = "read:"


def _texts(name: str, values: Sequence[str | None]) -> pl.Series:
    try:
        return pl.Series(name, values, dtype=pl.String)
    except UnicodeEncodeError:
        return pl.Series(name, [clean_text(value) for value in values], dtype=pl.String)


def _have_no_events(rows: pl.DataFrame) -> bool:
    return not rows["Events.Name"].list.len().sum()


def _read(rows: pl.DataFrame, told: pl.DataFrame, dialect: Dialect, given: _Given) -> dict[str, list[str | None]]:
    """The canonical columns of rows that are read one by one, over what their attributes told."""
    values: dict[str, list[str | None]] = {name: told[name].to_list() for name in told.columns}
    assert dialect.read is not None  # noqa: S101 - asked by the only caller
    places: dict[str, dict[int, Sequence[Fields]]] = dict(zip(MESSAGES, given.decoded, strict=True))
    raw_spans = zip(rows["_row"].to_list(), _raw_spans(rows, values, dialect, given), strict=True)
    for number, (row, span) in enumerate(raw_spans):
        found = dialect.read(span)
        if span.events:
            found = with_conversation(
                {**span.columns, **found}, str(found.get("kind") or span.columns.get("kind", "")), span.events
            )
        for name, value in found.items():
            if name not in values:
                values[name] = [None] * rows.height
            if isinstance(value, str) or not value:
                values[name][number] = str(value or "")
            else:
                values[name][number] = DECODED
                places[name][row] = value
    return values


def _raw_spans(
    rows: pl.DataFrame, values: Mapping[str, Sequence[str | None]], dialect: Dialect, given: _Given
) -> Iterator[RawSpan]:
    places = rows["_row"].to_numpy()
    wanted = np.zeros(given.attributes.height, dtype=np.bool_)
    wanted[places] = True
    found = {name: lists_of(given.attributes, wanted, indexed) for name, indexed in dialect.lists.items()}
    lists = [(name, one) for name, one in found.items() if one is not None]
    is_listed = np.zeros(len(given.attributes.keys), dtype=np.bool_)
    for indexed in dialect.lists.values():
        is_listed |= keys_of(given.attributes, indexed)
    columns = ("TraceId", "SpanId", "SpanName", "ScopeName", "Events.Name", "Events.Attributes")
    numbers: list[int] = places.tolist()
    stored = zip(numbers, rows.select(columns).iter_rows(), given.attributes.texts(places, is_listed), strict=True)
    for place, (row, (trace_id, span_id, name, scope, event_names, event_attributes), attributes) in enumerate(stored):
        events = [
            (str(event or ""), _dict(items))
            for event, items in zip(event_names or (), event_attributes or (), strict=False)
        ]
        if asked := given.asked.get((trace_id, span_id)):
            events.append((ASKED, {"calls": dump(list(asked))}))
        yield RawSpan(
            name=name or "",
            scope=scope or "",
            attributes=attributes,
            events=events,
            columns={name: text for name, texts in values.items() if (text := texts[place])},
            lists={name: one.of(row) for name, one in lists},
            gaps=[name for name, one in lists if not one.is_gapless[row]],
        )


def _spelled(rows: pl.DataFrame, told: Mapping[str, pl.Expr]) -> pl.DataFrame:
    """The canonical columns, out of an expression for each of those that are told at all."""
    nothing = pl.lit("")
    chosen = {name: told[name].fill_null(nothing) if name in told else nothing for name in _COLUMNS}
    for name, key in _COMMON.items():
        if column_of(key) in rows.columns:
            own = pl.col(column_of(key)).fill_null("")
            chosen[name] = pl.when(own != "").then(own).otherwise(chosen[name]) if name in chosen else own
    if status := status_columns(rows.columns, column_of("")):
        is_told = (chosen["error_type"] != "") | ~pl.col("StatusCode").fill_null("").str.to_lowercase().str.ends_with(
            "error"
        )
        chosen["error_type"] = pl.when(is_told).then(chosen["error_type"]).otherwise(error_status(status))
    return rows.select(
        "_row",
        *(name for name in frames.SPANS if name not in {"SpanAttributes", "Events.Name", "Events.Attributes"}),
        *(chosen.get(name, nothing).cast(pl.String).alias(name) for name in (*_COLUMNS, *_ONLY_COMMON)),
        *_exception_columns(rows),
        MARK,
    )


_ASKED_ID: Final = "tool.call.id"


def _asked(rows: pl.DataFrame, attributes: Attributes) -> dict[tuple[str, str], list[Fields]]:
    """Model call → the tool calls that it asked for, where spans below it name them: AgentOps writes them so."""
    found: dict[tuple[str, str], list[Fields]] = defaultdict(list)
    if _ASKED_ID not in attributes:
        return found
    calls = rows.filter(pl.col("SpanName").str.starts_with("tool_call."))
    told = zip(
        calls.select("Timestamp", "SpanId", "TraceId", "ParentSpanId").iter_rows(),
        attributes.texts(calls["_row"].to_numpy()),
        strict=True,
    )
    for (_, _, trace_id, parent), own in sorted(told, key=itemgetter(0)):
        names = {"id": _ASKED_ID, "name": "tool.name", "arguments": "tool.parameters"}
        if _ASKED_ID in own:
            found[trace_id, parent].append({key: own.get(name, "") for key, name in names.items()})
    return found


def _dict(items: list[dict[str, str | None]] | None) -> dict[str, str]:
    return {item["key"] or "": item["value"] or "" for item in items or ()}


def _marks(attributes: Attributes, is_meant: Mask) -> pl.Series:
    """The attribute that gives away a model call which no dialect reads; null where none does.

    Args:
        attributes: Of all rows.
        is_meant: The rows that no dialect reads.
    """
    found: dict[int, str] = {}
    own = np.flatnonzero(is_meant[attributes.rows])
    tells = attributes.matching(lambda key: key.str.contains(_MODEL_CALL_KEY))[own]
    may_tell = np.flatnonzero(attributes.matching(lambda key: key.str.contains(_MODEL_CALL_TYPE_KEY))[own] & ~tells)
    values = attributes.values.gather(pl.Series(own[may_tell], dtype=pl.UInt32))
    tells[may_tell[values.str.contains(_MODEL_CALL_TYPE).fill_null(value=False).to_numpy()]] = True
    places = own[tells]
    rows: list[int] = attributes.rows[places].tolist()
    codes: list[int] = attributes.codes[places].tolist()
    for row, code in zip(rows, codes, strict=True):
        key = attributes.keys[code]
        found[row] = min(found.get(row, key), key)
    marks = np.full(attributes.height, len(found), dtype=np.uint32)
    marks[list(found)] = np.arange(len(found))
    return pl.Series(MARK, [*found.values(), None], dtype=pl.String).gather(pl.Series(marks))


def _exception_columns(rows: pl.DataFrame) -> tuple[pl.Expr, ...]:
    """Attributes of the last exception event; null when there is none."""
    told = {"event_names": "Events.Name", "event_attributes": "Events.Attributes"}
    if _have_no_events(rows):
        return tuple(pl.lit(None, dtype=frames.SPANS[column]).alias(name) for name, column in told.items())
    is_exception = pl.col("Events.Name").list.eval(pl.element() == names.EXCEPTION_EVENT_NAME).list.any()
    return tuple(pl.when(is_exception).then(pl.col(column)).alias(name) for name, column in told.items())
