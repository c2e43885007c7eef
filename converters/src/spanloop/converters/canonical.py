"""otel_traces rows → one text column for each canonical field, by the first dialect that knows the span.

Invariant: a row in, a row out. Dialects that are expressions cost polars' time only; those that read span by span see
just the rows that are theirs.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import polars as pl

from spanloop.semconv import attributes as names

from . import frames
from .chat_forms import Fields
from .dialects import ASKED, CANONICAL, DIALECTS, Dialect, RawSpan, RowDialect, column_of
from .frames import clean_text
from .messages import dump

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

_MODEL_CALL_KEY: Final = (
    r"^gen_ai\.(?:request\.model|prompt|completion|usage)|^llm\.|^ai\.(?:model|prompt|response)\."
    r"|(?i:(?:prompt|completion|input|output)_?tokens$)"
)
_MODEL_CALL_TYPE: Final = r"(?i)^[\w.]*(?:kind|type)=(?:llm|chat|chat_model|generation|completion)$"


def canonical_columns(frame: pl.DataFrame) -> pl.DataFrame:
    """One text column for each canonical field, by the first dialect that matches; ``mark`` where none reads a call."""
    wanted = {key for dialect in DIALECTS for key in dialect.attributes}
    wide = _widen(frame, {*wanted, *_COMMON.values()})
    number = pl.lit(None, dtype=pl.UInt8)
    for position, dialect in reversed(list(enumerate(DIALECTS))):
        matches = dialect.matches.fill_null(value=False)
        number = pl.when(matches).then(pl.lit(position, dtype=pl.UInt8)).otherwise(number)
    wide = _marked(_read_rows(wide.with_columns(number.alias(_DIALECT))))
    found = [_spelled(rows, _dialect(number)) for (number,), rows in wide.partition_by(_DIALECT, as_dict=True).items()]
    if not found:
        return _spelled(wide, None).drop("_row")
    return (found[0] if len(found) == 1 else pl.concat(found).sort("_row")).drop("_row")


def _dialect(number: object) -> Dialect | None:
    """The dialect of that number, if it consists of expressions."""
    dialect = None if number is None else DIALECTS[cast("int", number)]
    return dialect if isinstance(dialect, Dialect) else None


def _spelled(rows: pl.DataFrame, dialect: Dialect | None) -> pl.DataFrame:
    """The canonical columns of rows of one dialect."""
    told: Mapping[str, pl.Expr] = dialect.columns if dialect else {}
    values: dict[str, pl.Expr] = {name: told[name] if name in told else pl.col(_READ + name) for name in _COLUMNS}
    chosen = {name: pl.coalesce(value, pl.lit("")) for name, value in values.items()}
    for name, key in _COMMON.items():
        own = pl.col(column_of(key)).fill_null("")
        chosen[name] = pl.when(own != "").then(own).otherwise(chosen[name]) if name in chosen else own
    return rows.select(
        "_row",
        *(name for name in frames.SPANS if name not in {"SpanAttributes", "Events.Name", "Events.Attributes"}),
        *(value.cast(pl.String).alias(name) for name, value in chosen.items()),
        *_exception_columns(),
        MARK,
    )


def _read_rows(wide: pl.DataFrame) -> pl.DataFrame:
    """``wide`` with a column for each thing that dialects read span by span; null where another dialect is at work."""
    readers = {number: dialect.read for number, dialect in enumerate(DIALECTS) if isinstance(dialect, RowDialect)}
    rows = wide.filter(pl.col(_DIALECT).is_in(list(readers)))
    columns = ("TraceId", "SpanId", _DIALECT, "SpanName", "ScopeName", "SpanAttributes", "Events.Name")
    asked = _asked(rows)
    found = [
        readers[cast("int", dialect)](_raw(rest, asked.get((trace_id, span_id), ())))
        for trace_id, span_id, dialect, *rest in rows.select(*columns, "Events.Attributes").iter_rows()
    ]
    read = pl.DataFrame(
        {_READ + name: [clean_text(item.get(name)) for item in found] for name in _COLUMNS},
        schema={_READ + name: pl.String for name in _COLUMNS},
    ).with_columns(rows["_row"])
    return wide.join(read, on="_row", how="left", maintain_order="left")


def _asked(rows: pl.DataFrame) -> dict[tuple[str, str], list[Fields]]:
    """Model call → the tool calls that it asked for, where spans below it name them: AgentOps writes them so."""
    found: dict[tuple[str, str], list[Fields]] = defaultdict(list)
    ordered = rows.filter(pl.col("SpanName").str.starts_with("tool_call.")).sort("Timestamp", "SpanId")
    for trace_id, parent, items in ordered.select("TraceId", "ParentSpanId", "SpanAttributes").iter_rows():
        told = _dict(items)
        names = {"id": "tool.call.id", "name": "tool.name", "arguments": "tool.parameters"}
        if "agentops.span.kind" in told:
            found[trace_id, parent].append({key: told.get(name, "") for key, name in names.items()})
    return found


def _raw(row: Sequence[Any], asked: Sequence[Fields]) -> RawSpan:
    name, scope, items, event_names, event_attributes = row
    events = [
        (str(event or ""), _dict(found))
        for event, found in zip(event_names or (), event_attributes or (), strict=False)
    ]
    if asked:
        events.append((ASKED, {"calls": dump(list(asked))}))
    return RawSpan(name=name or "", scope=scope or "", attributes=_dict(items), events=events)


def _dict(items: list[dict[str, str | None]] | None) -> dict[str, str]:
    return {item["key"] or "": item["value"] or "" for item in items or ()}


def _marked(wide: pl.DataFrame) -> pl.DataFrame:
    """``wide`` with the attribute that gives away a model call which no dialect reads; null elsewhere."""
    strange = (
        wide.filter(pl.col(_DIALECT).is_null())
        .select("_row", pl.col("SpanAttributes"))
        .explode("SpanAttributes")
        .unnest("SpanAttributes")
        .filter(
            pl.col("key").str.contains(_MODEL_CALL_KEY)
            | (pl.col("key") + "=" + pl.col("value")).str.contains(_MODEL_CALL_TYPE)
        )
        .group_by("_row")
        .agg(pl.col("key").min().alias(MARK))
    )
    return wide.join(strange, on="_row", how="left", maintain_order="left")


def _widen(frame: pl.DataFrame, keys: set[str]) -> pl.DataFrame:
    """``frame`` with a text column for each of ``keys``; of a repeated key the last value counts."""
    rows = frame.with_row_index("_row")
    long = (
        rows.select("_row", pl.col("SpanAttributes"))
        .explode("SpanAttributes")
        .unnest("SpanAttributes")
        .filter(pl.col("key").is_in(sorted(keys)))
    )
    wide = rows
    for (key,), found in long.partition_by("key", as_dict=True).items():
        values = found.select("_row", pl.col("value").alias(column_of(str(key)))).unique("_row", keep="last")
        wide = wide.join(values, on="_row", how="left", maintain_order="left")
    absent = sorted(key for key in keys if column_of(key) not in wide.columns)
    return wide.with_columns(pl.lit(None, dtype=pl.String).alias(column_of(key)) for key in absent)


def _exception_columns() -> tuple[pl.Expr, ...]:
    """Attributes of the last exception event; null when there is none."""
    is_exception = pl.col("Events.Name").list.eval(pl.element() == names.EXCEPTION_EVENT_NAME)
    return (
        pl.when(is_exception.list.any()).then(pl.col("Events.Name")).alias("event_names"),
        pl.when(is_exception.list.any()).then(pl.col("Events.Attributes")).alias("event_attributes"),
    )
