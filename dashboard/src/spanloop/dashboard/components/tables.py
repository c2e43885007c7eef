"""Tables: real rows with real links, as a component of our own.

Invariant: a click on a row opens the row's link and nothing else; a header sorts. A list's rows come sorted and paged
from the query; a small table is sorted in the browser.
"""
# pyright: reportUnknownMemberType=false

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, cast
from zoneinfo import ZoneInfo

import polars as pl
from streamlit.components.v2 import component

from spanloop.dashboard import preferences, resources, visits
from spanloop.dashboard.frontend import asset
from spanloop.dashboard.view_models.filters import LIST_NAMES
from spanloop.dashboard.view_models.formatting import DASH, duration, one_line

Kind = Literal["text", "number", "time", "id", "tag", "preview", "progress", "bars", "code", "wrap"]
Tone = Literal["", "good", "bad", "warn", "info", "odd"]
TONES: Final[Mapping[str, Tone]] = {
    "success": "good",
    "failure": "bad",
    "policy": "bad",
    "tool": "warn",
    "environment": "info",
    "harness": "odd",
}
"""Colours of outcomes and fault owners."""
_MAX_CELL: Final = 2_000

_table: Final[Any] = component(
    "spanloop_table",
    html='<div class="table-host"></div>',
    css=asset("table.css"),
    js=asset("common.js") + asset("table.js"),
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    label: str = ""
    """Empty takes the name."""
    kind: Kind = "text"
    help: str = ""
    width: int = 0
    """In pixels; 0 shares what is left."""
    form: str = ""
    """Format of a number, as of ``format()``; ``%`` at the end multiplies nothing."""
    sort: str = ""
    """Name of the query's order; empty where the list cannot be sorted by the column."""
    filter: str = ""
    """The filter that the column's value sets; empty for none."""
    is_hidden: bool = False
    """Whether the column is hidden until a user chooses it."""


Columns = Mapping[str, Column]


class Page(NamedTuple):
    """A link to another page of a list."""

    text: str
    label: str
    href: str
    rel: str = ""


@dataclass(frozen=True, slots=True)
class ListState:
    """Total, order and neighbouring pages of a list, which are drawn around its rows."""

    name: str
    """Name of the list, under which chosen columns are remembered."""
    drawn: str
    """Address of the list's first page, from which its links are made."""
    total: str
    range: str
    sort: str
    """The column with its sign, as in the address."""
    sort_href: Mapping[str, str]
    """Sort name to the address that sorts by it."""
    pages: Sequence[Page]
    filter_href: Callable[[str, str], str] | None = None
    """Return the address that also filters by a name and value."""
    compare_href: str = ""
    """Address to which two ids are appended to compare them."""
    judge_href: str = ""
    """Address at which the rows are judged one after another; empty where rows cannot be judged."""
    collect: Callable[[Sequence[str]], None] | None = None
    """Called with the selected ids, none for all that is filtered, when somebody adds them to a data set."""


class RowsJudged(NamedTuple):
    """A verdict that was given by key."""

    verdict: str
    ids: Sequence[str]


def show(
    frame: pl.DataFrame, columns: Columns | None = None, hrefs: Sequence[str] = (), *, key: str = "", current: str = ""
) -> None:
    """Draw a small table that the browser sorts; ``hrefs`` are parallel to the rows."""
    columns = columns or {}
    shown = {name: columns.get(name, _plain(frame, name)) for name in frame.columns}
    values = {name: frame[name].to_list() for name in frame.columns}
    _mount(values, shown, list(hrefs), [str(number) for number in range(frame.height)], key=key, current=current)


def show_rows(
    rows: Sequence[Mapping[str, object]], columns: Columns, hrefs: Sequence[str] = (), *, key: str = ""
) -> None:
    """Draw a small table of cells; see `show`."""
    values = {name: [row.get(name) for row in rows] for name in columns}
    _mount(values, columns, list(hrefs), [str(number) for number in range(len(rows))], key=key)


def show_list(
    rows: Sequence[Mapping[str, object]],
    columns: Columns,
    hrefs: Sequence[str],
    ids: Sequence[str],
    state: ListState,
) -> RowsJudged | None:
    """Draw one page of a list, and return a verdict on rows; ``hrefs`` and ``ids`` are parallel to the rows."""
    values = {name: [row.get(name) for row in rows] for name in columns}
    return _mount(values, columns, list(hrefs), list(ids), key=f"list_{state.name}", state=state)


def show_facts(values: Mapping[str, str], *, heading: str = "what") -> None:
    """Draw a table of names and values, one pair a row."""
    facts = pl.DataFrame({heading: list(values), "value": list(values.values())}, schema=[heading, "value"])
    show(facts.cast(pl.String), {heading: Column(width=180), "value": Column(kind="wrap")})


def to_frame(rows: list[dict[str, object]]) -> pl.DataFrame:
    """Return rows as a frame; all rows must have the same keys."""
    return pl.DataFrame(rows, infer_schema_length=None)


def time_column(label: str, help_text: str = "", *, sort: str = "") -> Column:
    """Return a column of moments, shown in the viewer's time zone."""
    return Column(f"{label} ({zone_name()})", "time", help_text, 118, sort=sort)


def zone_name() -> str:
    """Return the abbreviation of the viewer's time zone now."""
    return resources.now().astimezone(ZoneInfo(resources.time_zone())).strftime("%Z") or "UTC"


def text_column(label: str = "", help: str = "", width: int = 0) -> Column:  # noqa: A002
    """Return a column of texts."""
    return Column(label, help=help, width=width)


def number_column(label: str = "", form: str = "", help: str = "", width: int = 0) -> Column:  # noqa: A002
    """Return a column of numbers; ``form`` is as of ``format()``."""
    return Column(label, "number", help, width, form)


def yes_no(column: str) -> pl.Expr:
    """Return a Boolean column as words."""
    return pl.when(pl.col(column)).then(pl.lit("yes")).otherwise(pl.lit("no")).alias(column)


def _plain(frame: pl.DataFrame, name: str) -> Column:
    dtype = frame.schema[name]
    if dtype.is_numeric():
        return Column(kind="number")
    return time_column(name) if isinstance(dtype, pl.Datetime) else Column()


def _mount(
    values: Mapping[str, Sequence[object]],
    columns: Columns,
    hrefs: list[str],
    ids: list[str],
    *,
    key: str = "",
    state: ListState | None = None,
    current: str = "",
) -> RowsJudged | None:
    zone = ZoneInfo(resources.time_zone())
    names = [name for name in columns if name in values]
    cells: dict[str, list[Any]] = {
        name: [_cell(value, columns[name], zone) for value in values[name]] for name in names
    }
    if state is not None and state.filter_href is not None:
        for name in names:
            if columns[name].filter:
                cells[name] = [_with_filter(cell, columns[name].filter, state.filter_href) for cell in cells[name]]
    rows: list[dict[str, Any]] = [
        {
            "id": ids[number],
            "href": hrefs[number] if hrefs else "",
            "isCurrent": bool(current) and hrefs[number].endswith(current),
            "cells": {name: cells[name][number] for name in names},
        }
        for number in range(len(ids))
    ]
    heads = [_head(name, columns[name], state) for name in names]
    data: dict[str, Any] = {
        "label": state.name if state else key or "table",
        "list": {"drawn": state.drawn, "names": LIST_NAMES} if state else None,
        "columns": heads,
        "rows": rows,
        "hidden": _hidden(state, columns) if state else [],
        "isPrimary": state is not None,
        "isSortable": state is None and len(ids) > 1,
        "isSelectable": bool(state and (state.compare_href or state.collect)),
        "compareHref": state.compare_href if state else "",
        "canChoose": state is not None,
        "judgeHref": state.judge_href if state else "",
        "canCollect": bool(state and state.collect),
        "total": state.total if state else "",
        "range": state.range if state else "",
        "pages": [page._asdict() for page in state.pages] if state else [],
        "address": state.sort + state.range if state else "",
    }
    # What is drawn is plain text and numbers; a round trip finds a value that is not.
    result: Any = _table(
        data=json.loads(json.dumps(data)),
        key=key or None,
        on_columns_change=lambda: None,
        on_judge_change=lambda: None,
        on_collect_change=lambda: None,
    )
    if state is not None and result.columns:
        user = visits.visitor().name
        preferences.hide_columns(resources.data_dir(), user, state.name, list(result.columns["hidden"]))
    known = set(ids)
    if state is not None and state.collect is not None and result.collect:
        state.collect([each for each in result.collect["ids"] if each in known])
    chosen = [each for each in result.judge["ids"] if each in known] if result.judge else []
    return RowsJudged(str(result.judge["verdict"]), chosen) if chosen else None


def _hidden(state: ListState, columns: Columns) -> list[str]:
    chosen = preferences.hidden_columns(resources.data_dir(), visits.visitor().name, state.name)
    return [name for name, column in columns.items() if column.is_hidden] if chosen is None else chosen


def _head(name: str, column: Column, state: ListState | None) -> dict[str, Any]:
    sorted_by = state.sort.removeprefix("-") if state else ""
    is_sorted = bool(column.sort) and sorted_by == column.sort
    direction = "descending" if state and state.sort.startswith("-") else "ascending"
    return {
        "id": name,
        "label": column.label or name,
        "kind": column.kind if column.kind != "time" else "time",
        "help": column.help,
        "width": column.width,
        "href": state.sort_href.get(column.sort, "") if state else "",
        "sorted": direction if is_sorted else "",
    }


def _cell(value: Any, column: Column, zone: ZoneInfo) -> Any:
    if isinstance(value, dict):
        return cast("dict[str, object]", value)
    if isinstance(value, datetime):
        return _time_cell(value.astimezone(zone))
    if column.kind in {"bars", "progress"} and value is not None:
        return _drawn_cell(value)
    if column.kind == "number" or isinstance(value, int | float):
        return _number_cell(value, column)
    text = "" if value is None else str(value)
    if column.kind == "tag":
        return tag(text, TONES.get(text.partition(" ")[0], ""))
    text = one_line(text, 240) if column.kind == "preview" else text
    return text if len(text) <= _MAX_CELL else f"{text[:_MAX_CELL]}…"


def _with_filter(cell: Any, name: str, filter_href: Callable[[str, str], str]) -> Any:
    """Add the address of all rows with the cell's value."""
    content: dict[str, Any] = {"text": cell} if isinstance(cell, str) else cell
    text = content.get("text", "")
    return {**content, "only": filter_href(name, text)} if text and text != DASH else content


def _drawn_cell(value: Any) -> dict[str, object]:
    if isinstance(value, int | float):
        return {"text": f"{value:.0%}", "share": max(0.0, min(1.0, float(value))), "key": float(value)}
    return {"bars": [float(each) for each in value], "key": float(sum(value))}


def _time_cell(local: datetime) -> dict[str, object]:
    is_this_year = local.year == resources.now().year
    return {
        "text": f"{local:%m-%d %H:%M:%S}" if is_this_year else f"{local:%Y-%m-%d %H:%M}",
        "title": f"{local:%Y-%m-%d %H:%M:%S.%f %Z}",
        "key": local.timestamp(),
    }


def _number_cell(value: Any, column: Column) -> Any:
    if isinstance(value, str | bool):
        return str(value)
    if value is None or math.isnan(value):
        return {"text": DASH, "key": -1e300}
    default = "," if isinstance(value, int) else ".4g"
    return {"text": format(value, column.form or default), "key": value}


def tag(text: str, tone: Tone | None = None) -> dict[str, str]:
    """Return a cell with a coloured word."""
    return {"text": text, "tone": TONES.get(text, "") if tone is None else tone}


def link_cell(text: str, href: str) -> dict[str, str]:
    """Return a cell with a link."""
    return {"text": text, "href": href}


def duration_cell(nanoseconds: int) -> dict[str, object]:
    """Return a cell with a duration."""
    return {"text": duration(nanoseconds), "key": nanoseconds}
