"""The collector's metrics.

Invariant: for each signal, accepted + rejected is every item of every request that was acknowledged with 200. Accepted
means on disk.
"""

from typing import Final

from spanloop.foundation.telemetry import metrics

FAMILIES: Final[metrics.Families] = {
    "accepted_total": ("counter", "Spans or log records that are on disk."),
    "rejected_total": ("counter", "Spans or log records that were refused, by reason."),
    "refused_requests_total": ("counter", "Requests that were refused as a whole, by HTTP status."),
    "dead_letters_total": ("counter", "Dead letters that were kept, by reason: bodies, or all items of a request."),
    "repaired_total": ("counter", "Items whose invalid UTF-8 was replaced."),
    "redacted_total": ("counter", "Values that were dropped or masked, by redaction rule."),
    "inserted_total": ("counter", "Rows that ClickHouse has confirmed."),
    "refused_rows_total": ("counter", "Rows that ClickHouse refuses for good; they are dead letters."),
    "restored_rows_total": (
        "counter",
        "Rows that a killed ClickHouse had lost of a block, and that were stored again.",
    ),
    "unreadable_records_total": ("counter", "Records of the spool that the writer could not turn into rows."),
    "insert_failures_total": ("counter", "Attempts to insert a block that failed; each is retried."),
    "insert_seconds": ("histogram", "How long ClickHouse took to confirm a block."),
    "last_insert_timestamp_seconds": ("gauge", "When ClickHouse last confirmed a block; 0 before the first."),
    "spool_bytes": ("gauge", "Bytes on disk that wait for ClickHouse."),
    "spool_records": ("gauge", "Requests on disk that wait for ClickHouse."),
    "spool_oldest_age_seconds": ("gauge", "Age of the oldest waiting request."),
    "bodies_in_memory_bytes": ("gauge", "Bytes of request bodies that are not on disk yet."),
    "spool_quarantined": ("gauge", "Damaged stretches of the spool that were set aside."),
}


class Metrics(metrics.Metrics):
    """Counters and gauges of one collector."""

    def __init__(self) -> None:
        super().__init__("spanloop_collector_", FAMILIES)
        self.set("last_insert_timestamp_seconds", 0.0)
