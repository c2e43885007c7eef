"""Redact rows of ``otel_traces`` and ``otel_logs`` as `Redactor.redact` redacts requests."""

from collections import Counter
from typing import Final, cast

import polars as pl

from spanloop.collector.redaction.redactor import RedactionCounts, Redactor

_MAP_COLUMNS: Final = ("ResourceAttributes", "ScopeAttributes", "SpanAttributes")
_NESTED_COLUMNS: Final = ("Events.Attributes", "Links.Attributes")
_TEXT_COLUMNS: Final = ("SpanName", "StatusMessage")


def redact_rows(rows: pl.DataFrame, redactor: Redactor) -> pl.DataFrame:
    """Redact span rows; the span attributes of a changed row count its redactions."""
    names = [name for name in (*_MAP_COLUMNS, *_NESTED_COLUMNS, *_TEXT_COLUMNS, "Events.Name") if name in rows.columns]
    redacted = [_redact_row(row, redactor) for row in rows.select(names).to_dicts()]
    if not any(redacted):
        return rows
    columns = {
        name: pl.Series(
            name,
            [changed.get(name, old) for changed, old in zip(redacted, rows[name].to_list(), strict=True)],
            dtype=rows.schema[name],
        )
        for name in names
    }
    return rows.with_columns(**columns)


def redact_log_rows(rows: pl.DataFrame, redactor: Redactor) -> pl.DataFrame:
    """Redact log rows, as `redact_rows`."""
    maps = ("ResourceAttributes", "ScopeAttributes", "LogAttributes")
    columns: dict[str, list[object]] = {name: [] for name in ("Body", *maps)}
    for row in rows.select(*columns).to_dicts():
        body, hits = redactor.redact_text(cast("str", row["Body"]))
        columns["Body"].append(body)
        for name in maps:
            attributes, map_hits = redactor.redact_mapping(cast("dict[str, str]", row[name]))
            hits = hits + map_hits
            columns[name].append(redactor.add_rule_names(attributes, hits) if hits and name == maps[-1] else attributes)
    return rows.with_columns(pl.Series(name, values, dtype=rows.schema[name]) for name, values in columns.items())


def _redact_row(row: dict[str, object], redactor: Redactor) -> dict[str, object]:
    """Return the row's changed columns; empty if no rule applies."""
    hits: RedactionCounts = Counter()
    changed: dict[str, object] = {}
    for name in (*_MAP_COLUMNS, *_NESTED_COLUMNS):
        if name not in row:
            continue
        value = cast("dict[str, str] | list[dict[str, str]]", row[name])
        if isinstance(value, dict):
            changed[name], column_hits = redactor.redact_mapping(value)
            hits += column_hits
        else:
            redacted = [redactor.redact_mapping(attributes) for attributes in value]
            changed[name] = [attributes for attributes, _ in redacted]
            for _, column_hits in redacted:
                hits += column_hits
    for name in _TEXT_COLUMNS:
        changed[name], column_hits = redactor.redact_text(cast("str", row[name]))
        hits += column_hits
    if "Events.Name" in row:
        names = [redactor.redact_text(name) for name in cast("list[str]", row["Events.Name"])]
        changed["Events.Name"] = [text for text, _ in names]
        for _, column_hits in names:
            hits += column_hits
    if not hits:
        return {}
    changed["SpanAttributes"] = redactor.add_rule_names(cast("dict[str, str]", changed["SpanAttributes"]), hits)
    return changed
