"""The kinds of spool records: signal, and for encoded traces the number of spans.

``logs``: a request that the writer has to parse. ``traces 512``: a request of 512 spans that ClickHouse can parse
unchanged (see `otlp.clickhouse_encoding`).
"""

from functools import lru_cache

from ..dead_letters import Signal


@lru_cache(1024)
def encoded_traces_kind(spans: int) -> str:
    """Return the kind of a trace request that is encoded for ClickHouse."""
    return f"{Signal.TRACES} {spans}"


def signal_of(kind: str) -> str:
    """Return the signal of a record's body, or another word when the body is no request."""
    return kind.partition(" ")[0]


@lru_cache(1024)
def encoded_span_count(kind: str) -> int | None:
    """Return the number of spans of a request that is encoded for ClickHouse; None when it has to be parsed first."""
    name, _, spans = kind.partition(" ")
    return int(spans) if name == Signal.TRACES and spans.isdecimal() else None
