"""Redaction of what is rows of ``otel_traces`` or ``otel_logs`` already: what `Redactor.redact` does to a request."""

from collections import Counter
from typing import Final, cast

import polars as pl

from spanloop.collector.redaction import RedactionCounts, Redactor

_MAP_COLUMNS: Final = ("ResourceAttributes", "ScopeAttributes", "SpanAttributes")
_NESTED_COLUMNS: Final = ("Events.Attributes", "Links.Attributes")
_TEXT_COLUMNS: Final = ("SpanName", "StatusMessage")


def redact_rows(rows: pl.DataFrame, redactor: Redactor) -> pl.DataFrame:
    """The rows with nothing in them that a rule names; a row that lost something says so in its span attributes."""
    names = [name for name in (*_MAP_COLUMNS, *_NESTED_COLUMNS, *_TEXT_COLUMNS, "Events.Name") if name in rows.columns]
    redacted = [_redact_row(row, redactor) for row in rows.select(names).to_dicts()]
    if not any(redacted):
        return rows
    columns = {
        name: pl.Series(
            name,
            [new.get(name, old) for new, old in zip(redacted, rows[name].to_list(), strict=True)],
            dtype=rows.schema[name],
        )
        for name in names
    }
    return rows.with_columns(**columns)


def redact_log_rows(rows: pl.DataFrame, redactor: Redactor) -> pl.DataFrame:
    """As `redact_rows`, for log records."""
    maps = ("ResourceAttributes", "ScopeAttributes", "LogAttributes")
    columns: dict[str, list[object]] = {name: [] for name in ("Body", *maps)}
    for row in rows.select(*columns).to_dicts():
        body, hits = redactor.redact_text(cast("str", row["Body"]))
        columns["Body"].append(body)
        for name in maps:
            found, own = redactor.redact_mapping(cast("dict[str, str]", row[name]))
            hits = hits + own
            columns[name].append(redactor.add_rule_names(found, hits) if hits and name == maps[-1] else found)
    return rows.with_columns(pl.Series(name, found, dtype=rows.schema[name]) for name, found in columns.items())


def _redact_row(row: dict[str, object], redactor: Redactor) -> dict[str, object]:
    """The columns that change; none when nothing was to be done."""
    hits: RedactionCounts = Counter()
    new: dict[str, object] = {}
    for name in (*_MAP_COLUMNS, *_NESTED_COLUMNS):
        if name not in row:
            continue
        found = cast("dict[str, str] | list[dict[str, str]]", row[name])
        if isinstance(found, dict):
            new[name], own = redactor.redact_mapping(found)
            hits += own
        else:
            changed = [redactor.redact_mapping(each) for each in found]
            new[name] = [attributes for attributes, _ in changed]
            for _, own in changed:
                hits += own
    for name in _TEXT_COLUMNS:
        new[name], own = redactor.redact_text(cast("str", row[name]))
        hits += own
    if "Events.Name" in row:
        names = [redactor.redact_text(each) for each in cast("list[str]", row["Events.Name"])]
        new["Events.Name"] = [text for text, _ in names]
        for _, own in names:
            hits += own
    if not hits:
        return {}
    new["SpanAttributes"] = redactor.add_rule_names(cast("dict[str, str]", new["SpanAttributes"]), hits)
    return new
