"""otel_traces rows → one text column for each canonical field, by the first dialect that knows the span.

Invariant: a row in, a row out. Dialects that are expressions cost polars' time only; those that read span by span see
just the rows that are theirs.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from spanloop.semconv import attributes as names

from . import frames
from .attributes import Attributes, Mask
from .chat_forms import Fields
from .dialects import (
    ASKED,
    CANONICAL,
    COUNTED,
    DIALECTS,
    ENTRIES,
    Dialect,
    Numbered,
    RawSpan,
    RowDialect,
    Spread,
    column_of,
    listed,
)
from .frames import clean_text
from .messages import dump
from .status_codes import STATUS_ATTRIBUTES, error_status, status_columns

_COMMON: Final = {
    "error_type": names.ERROR_TYPE,
    "episode_key": names.SPANLOOP_EPISODE_ID,
    "task_id": names.SPANLOOP_TASK_ID,
    "session_id": names.SESSION_ID,
}
_DIALECT: Final = "dialect"
MARK: Final = "mark"
"""The column with the attribute that gives away a model call which no dialect reads; null elsewhere."""

_READ: Final = "read:"
_READ_TOO: Final = ("error_type", "session_id")
"""Attributes that all dialects share, and that some find out otherwise."""

_COLUMNS: Final = (*CANONICAL, *_READ_TOO)
_ONLY_COMMON: Final = ("episode_key", "task_id")

Numbers = npt.NDArray[np.uint8]

_NO_DIALECT: Final = 255
_ROW_DIALECTS: Final = [number for number, dialect in enumerate(DIALECTS) if isinstance(dialect, RowDialect)]

_MODEL_CALL_KEY: Final = (
    r"^gen_ai\.(?:request\.model|prompt|completion|usage)|^llm\.|^ai\.(?:model|prompt|response)\."
    r"|(?i:(?:prompt|completion|input|output)_?tokens$)"
)
_MODEL_CALL_TYPE_KEY: Final = r"(?i)^[\w.]*(?:kind|type)$"
_MODEL_CALL_TYPE: Final = r"(?i)^(?:llm|chat|chat_model|generation|completion)$"


class _Given(NamedTuple):
    """What the rows of several dialects have in common."""

    attributes: Attributes
    asked: Mapping[tuple[str, str], Sequence[Fields]]
    """See ``_asked``."""
    entries: list[pl.DataFrame]
    """What ``COUNTED`` columns count, one behind the other, as far as it has been found."""


class Canonical(NamedTuple):
    """What all rows say, and with which messages."""

    rows: pl.DataFrame
    entries: pl.DataFrame
    """What the columns ``COUNTED`` count: see ``dialects.numbered``."""


def canonical_columns(frame: pl.DataFrame) -> pl.DataFrame:
    """One text column for each canonical field, by the first dialect that matches; ``mark`` where none reads a call."""
    return by_dialect(frame, Attributes(frame["SpanAttributes"])).rows.sort("_row").drop("_row", *COUNTED)


def by_dialect(frame: pl.DataFrame, attributes: Attributes) -> Canonical:
    """``canonical_columns`` of all rows in another order, with the number of each, ``_row``.

    Args:
        frame: The columns of ``frames.SPANS``.
        attributes: Of ``frame``.
    """
    keys = {key for dialect in DIALECTS for key in _keys(dialect)} | {*_COMMON.values(), *STATUS_ATTRIBUTES}
    wide = (
        frame.drop("SpanAttributes")
        .with_row_index("_row")
        .with_columns(attributes.column(key).alias(column_of(key)) for key in sorted(keys) if key in attributes)
    )
    numbers = _dialects(wide, attributes)
    wide = wide.with_columns(_marks(attributes, numbers == _NO_DIALECT), pl.Series(_DIALECT, numbers))
    asked = _asked(wide, attributes)
    given = _Given(attributes, asked, [pl.DataFrame(schema=ENTRIES)])
    present: list[int] = np.unique(numbers).tolist()
    if len(present) <= 1:
        rows = _of_dialect(wide, present[0] if present else _NO_DIALECT, given)
    else:
        rows = pl.concat(_of_dialect(wide.filter(pl.col(_DIALECT) == number), number, given) for number in present)
    return Canonical(rows, pl.concat(given.entries))


def _keys(dialect: Dialect | RowDialect) -> AbstractSet[str]:
    """The attributes that the dialect has expressions of."""
    spread = dialect.spread if isinstance(dialect, RowDialect) else None
    return dialect.attributes | spread.attributes if spread else dialect.attributes


def _completed(wide: pl.DataFrame, keys: Iterable[str]) -> pl.DataFrame:
    """``wide`` with an empty column for each of ``keys`` that no row has."""
    known = set(wide.columns)
    absent = sorted(column_of(key) for key in keys if column_of(key) not in known)
    return wide.with_columns(pl.lit(None, dtype=pl.String).alias(name) for name in absent)


def _dialects(wide: pl.DataFrame, attributes: Attributes) -> Numbers:
    """The number of each row's dialect; ``_NO_DIALECT`` where none matches."""
    told = [(number, dialect) for number, dialect in enumerate(DIALECTS) if _may_match(dialect, attributes)]
    whole = _completed(wide, {key for _, dialect in told for key in dialect.attributes})
    matches = whole.select("_row", *(dialect.matches.fill_null(value=False).alias(str(n)) for n, dialect in told))
    found = np.full(wide.height, _NO_DIALECT, dtype=np.uint8)
    for number, _ in reversed(told):
        found[matches[str(number)].to_numpy()] = number
    return found


def _may_match(dialect: Dialect | RowDialect, attributes: Attributes) -> bool:
    """Whether there is anything that the dialect tells its spans by."""
    roots = dialect.matches.meta.root_names()
    keys = [root.removeprefix(column_of("")) for root in roots if root.startswith(column_of(""))]
    return len(keys) < len(roots) or any(key in attributes for key in keys)


def _of_dialect(rows: pl.DataFrame, number: int, given: _Given) -> pl.DataFrame:
    """The canonical columns of rows of one dialect."""
    dialect = DIALECTS[number] if number < len(DIALECTS) else None
    if dialect is None:
        return _spelled(rows, {})
    if isinstance(dialect, Dialect):
        return _spelled(_completed(rows, dialect.attributes), dialect.columns)
    if dialect.spread is None:
        return _read(rows, dialect, given)
    whole, is_simple = _spread(rows, dialect.spread, given)
    columns = dialect.spread.columns(set(whole.columns))
    if is_simple.all():
        return _spelled(whole, columns)
    rest = _read(rows.filter(~is_simple), dialect, given)
    return pl.concat([_spelled(whole.filter(is_simple), columns), rest])


def _spread(rows: pl.DataFrame, spread: Spread, given: _Given) -> tuple[pl.DataFrame, pl.Series]:
    """``rows`` with the lists that stand in numbered attributes, and which of them the columns tell of."""
    attributes, own, known = given.attributes, rows["_row"], set(rows.columns)
    keys = pl.Series([f"{trace_id}/{span_id}" for trace_id, span_id in given.asked], dtype=pl.String)
    is_asked = pl.concat_str("TraceId", "SpanId", separator="/").is_in(keys.implode()) if given.asked else _FALSE
    has_events = pl.col("Events.Name").list.eval(pl.element().str.starts_with("gen_ai.")).list.any()
    is_bare = ~_FALSE if _have_no_events(rows) else ~has_events.fill_null(value=False)
    told = rows.select(
        (pl.lit(value=True) & spread.is_simple(known) & is_bare & ~is_asked).alias("is_simple"),
        (pl.lit(value=True) & spread.has_lists(known)).alias("has_lists"),
    )
    wanted = np.zeros(attributes.height, dtype=np.bool_)
    wanted[own.to_numpy()] = told.select(pl.col("is_simple") & pl.col("has_lists")).to_series().to_numpy()
    is_odd = attributes.lacking.copy()
    columns: list[pl.Series] = []
    for name, numbered in spread.lists.items():
        found = listed(attributes, wanted, numbered, sum(entries.height for entries in given.entries))
        if found is not None:
            columns += [found.text.gather(own).alias(name), found.note.gather(own).alias(f"{name}:note")]
            columns.append(found.numbers.gather(own).alias(f"{name}:numbers"))
            given.entries.append(found.entries)
            is_odd |= found.is_odd
    return rows.with_columns(columns), told["is_simple"] & ~pl.Series(is_odd).gather(own)


_FALSE: Final = pl.lit(value=False)


def _have_no_events(rows: pl.DataFrame) -> bool:
    return not rows["Events.Name"].list.len().sum()


def _read(rows: pl.DataFrame, dialect: RowDialect, given: _Given) -> pl.DataFrame:
    """The canonical columns of rows that are read one by one."""
    columns = ("TraceId", "SpanId", "SpanName", "ScopeName", "Events.Name", "Events.Attributes")
    places = rows["_row"].to_numpy()
    lists = _lists(places, dialect.lists, given.attributes)
    found = [
        dialect.read(_raw(rest, own, given.asked.get((trace_id, span_id), ()), told))
        for (trace_id, span_id, *rest), own, told in zip(
            rows.select(columns).iter_rows(), given.attributes.texts(places), lists, strict=True
        )
    ]
    read = [
        pl.Series(_READ + name, [clean_text(item.get(name)) for item in found], dtype=pl.String) for name in _COLUMNS
    ]
    return _spelled(rows.with_columns(read), {name: pl.col(_READ + name) for name in _COLUMNS})


def _lists(places: npt.NDArray[Any], lists: Mapping[str, Numbered], attributes: Attributes) -> list[dict[str, str]]:
    """Of each row at ``places`` its lists: see ``RawSpan.lists``."""
    told: list[dict[str, str]] = [{} for _ in places]
    wanted = np.zeros(attributes.height, dtype=np.bool_)
    wanted[places] = True
    for name, numbered in lists.items():
        found = listed(attributes, wanted, numbered)
        if found is not None:
            is_told = wanted & ~(found.is_odd | attributes.lacking) & (found.text != "").to_numpy()
            rows = np.flatnonzero(is_told[places]).tolist()
            for row, text in zip(rows, found.text.filter(pl.Series(is_told)).to_list(), strict=True):
                told[row][name] = text
    return told


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
        *(told.get(name, pl.lit(None)).cast(pl.List(pl.UInt32)).alias(name) for name in COUNTED),
        *_exception_columns(rows),
        MARK,
    )


def _asked(rows: pl.DataFrame, attributes: Attributes) -> dict[tuple[str, str], list[Fields]]:
    """Model call → the tool calls that it asked for, where spans below it name them: AgentOps writes them so."""
    found: dict[tuple[str, str], list[Fields]] = defaultdict(list)
    if "agentops.span.kind" not in attributes:
        return found
    calls = rows.filter(pl.col(_DIALECT).is_in(_ROW_DIALECTS) & pl.col("SpanName").str.starts_with("tool_call."))
    told = zip(
        calls.select("Timestamp", "SpanId", "TraceId", "ParentSpanId").iter_rows(),
        attributes.texts(calls["_row"].to_numpy()),
        strict=True,
    )
    for (_, _, trace_id, parent), own in sorted(told, key=itemgetter(0)):
        names = {"id": "tool.call.id", "name": "tool.name", "arguments": "tool.parameters"}
        if "agentops.span.kind" in own:
            found[trace_id, parent].append({key: own.get(name, "") for key, name in names.items()})
    return found


def _raw(row: Sequence[Any], own: Mapping[str, str], asked: Sequence[Fields], lists: Mapping[str, str]) -> RawSpan:
    name, scope, event_names, event_attributes = row
    events = [
        (str(event or ""), _dict(found))
        for event, found in zip(event_names or (), event_attributes or (), strict=False)
    ]
    if asked:
        events.append((ASKED, {"calls": dump(list(asked))}))
    return RawSpan(name=name or "", scope=scope or "", attributes=own, events=events, lists=lists)


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
