"""What the kind of a spool record says of its body.

``logs``, and ``traces`` of an older spanloop: a request that the writer has to look into. ``traces 512``: a request
with so many spans, which ClickHouse can read as it is (see `tidy`).
"""

from functools import lru_cache

from .dead_letters import Signal


@lru_cache(1024)
def ready_kind(spans: int) -> str:
    """The kind of a trace request in ClickHouse's form (see `tidy`)."""
    return f"{Signal.TRACES} {spans}"


def signal_of(kind: str) -> str:
    """What the body holds: a signal, or another word when it is no request."""
    return kind.partition(" ")[0]


@lru_cache(1024)
def ready_spans(kind: str) -> int | None:
    """How many spans ClickHouse can read in it as it is; None when it has to be looked at first."""
    name, _, spans = kind.partition(" ")
    return int(spans) if name == Signal.TRACES and spans.isdecimal() else None
