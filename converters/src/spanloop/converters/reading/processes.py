"""Which process recorded a span, as its resource says: host and process id, else the instance id of the service.

Invariant: two spans are of different processes only where both resources say so by the same attributes. Tracers of one
process may describe it differently, so what one of them leaves out decides nothing.
"""

from functools import cached_property
from typing import Final

import polars as pl

from .. import frames

SpanKey = tuple[str, str]

_KEYS: Final = ("host.name", "process.pid", "service.instance.id")


class Processes:
    """The processes of spans; read when the first two spans are compared.

    Args:
        spans: Rows of ``otel_traces``; without the column ``ResourceAttributes`` no process is known.
    """

    def __init__(self, spans: pl.DataFrame) -> None:
        self._spans = spans

    def are_one(self, one: SpanKey, other: SpanKey) -> bool | None:
        """Whether the two spans come from one process; None where that is not known."""
        first, second = self._by_span.get(one), self._by_span.get(other)
        if first is None or second is None:
            return None
        hosts, pids, instances = zip(first, second, strict=True)
        if all(pids):
            return pids[0] == pids[1] and not (all(hosts) and hosts[0] != hosts[1])
        return instances[0] == instances[1] if all(instances) else None

    @cached_property
    def _by_span(self) -> dict[SpanKey, tuple[str, str, str]]:
        if "ResourceAttributes" not in self._spans.columns:
            return {}
        items = frames.conform(self._spans, frames.RESOURCES)
        key, value = (pl.element().struct.field(name) for name in ("key", "value"))
        columns = [
            pl.col("ResourceAttributes").list.eval(value.filter(key == name)).list.first().fill_null("").alias(name)
            for name in _KEYS
        ]
        rows = items.select("TraceId", "SpanId", *columns).filter(pl.any_horizontal(pl.col(_KEYS) != ""))
        return {(trace, span): (host, pid, instance) for trace, span, host, pid, instance in rows.iter_rows()}
