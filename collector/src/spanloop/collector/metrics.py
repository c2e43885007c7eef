"""The collector's counters and their Prometheus text.

Invariant: for each signal, accepted + rejected is every item of every request that was answered with 200, and a
counter never goes down while the process lives. Accepted means on disk.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

PREFIX: Final = "spanloop_collector_"
_HELP: Final[Mapping[str, tuple[str, str]]] = {
    "accepted_total": ("counter", "Spans or log records that are on disk."),
    "rejected_total": ("counter", "Spans or log records that were refused, by reason."),
    "refused_requests_total": ("counter", "Requests that were refused as a whole, by HTTP status."),
    "dead_letters_total": ("counter", "Dead letters that were kept, by reason: bodies, or all items of a request."),
    "repaired_total": ("counter", "Items whose invalid UTF-8 was replaced."),
    "dropped_attributes_total": ("counter", "Attributes removed because they are known to carry secrets."),
    "inserted_total": ("counter", "Rows that ClickHouse has confirmed."),
    "refused_rows_total": ("counter", "Rows that ClickHouse refuses for good; they are dead letters."),
    "unreadable_records_total": ("counter", "Records of the spool that the writer could not turn into rows."),
    "insert_failures_total": ("counter", "Attempts to insert a block that failed; each is retried."),
    "last_insert_timestamp_seconds": ("gauge", "When ClickHouse last confirmed a block; 0 before the first."),
    "spool_bytes": ("gauge", "Bytes on disk that wait for ClickHouse."),
    "spool_records": ("gauge", "Requests on disk that wait for ClickHouse."),
    "spool_oldest_age_seconds": ("gauge", "Age of the oldest waiting request."),
    "bodies_in_memory_bytes": ("gauge", "Bytes of request bodies that are not on disk yet."),
    "spool_quarantined": ("gauge", "Damaged stretches of the spool that were set aside."),
}

Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counters and gauges of one process; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: Counter[tuple[str, Labels]] = Counter()
        self._gauges: dict[str, float] = {"last_insert_timestamp_seconds": 0.0}

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        """Add to a counter."""
        if name not in _HELP:
            raise ValueError(f"no metric is named {name!r}; expected one of {', '.join(_HELP)}")
        if amount:
            with self._lock:
                self._values[name, tuple(sorted(labels.items()))] += amount

    def set(self, name: str, value: float) -> None:
        """Set a gauge."""
        with self._lock:
            self._gauges[name] = value

    def get(self, name: str, **labels: str) -> float:
        """A counter's or gauge's value; 0 when it was never touched."""
        with self._lock:
            return self._gauges.get(name, self._values[name, tuple(sorted(labels.items()))])

    def render(self) -> str:
        """Prometheus text exposition format 0.0.4."""
        with self._lock:
            samples = [*self._values.items(), *(((name, ()), value) for name, value in self._gauges.items())]
        return "".join(_family(name, samples) for name in _HELP)


def _family(name: str, samples: Iterable[tuple[tuple[str, Labels], float]]) -> str:
    kind, text = _HELP[name]
    lines = [f"# HELP {PREFIX}{name} {text}", f"# TYPE {PREFIX}{name} {kind}"]
    for (sample, labels), value in sorted(samples):
        if sample == name:
            inside = ",".join(f'{key}="{_escape(label)}"' for key, label in labels)
            lines.append(f"{PREFIX}{name}{{{inside}}} {value}" if inside else f"{PREFIX}{name} {value}")
    return "\n".join(lines) + "\n"


def _escape(label: str) -> str:
    return label.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
