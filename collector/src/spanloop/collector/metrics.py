"""The collector's metrics in the Prometheus text format.

Invariant: for each signal, accepted + rejected is every item of every request that was acknowledged with 200, and a
counter never decreases while the process runs. Accepted means on disk.
"""

import threading
from bisect import bisect_left
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
    "redacted_total": ("counter", "Values that were dropped or masked, by redaction rule."),
    "inserted_total": ("counter", "Rows that ClickHouse has confirmed."),
    "refused_rows_total": ("counter", "Rows that ClickHouse refuses for good; they are dead letters."),
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

BOUNDS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of a histogram's buckets; a block of 10,000 spans takes a few tenths of a second."""

Labels = tuple[tuple[str, str], ...]


class Histogram:
    """Counts durations by bucket."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    @property
    def count(self) -> int:
        """Number of durations."""
        return sum(self.buckets)

    def observe(self, seconds: float) -> None:
        """Add a duration."""
        self.buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    def quantile_s(self, share: float) -> float:
        """Return the upper bound of the quantile's bucket; infinity above the last bucket, 0 without durations."""
        required, seen = share * self.count, 0
        for bound_s, count in zip((*BOUNDS_S, float("inf")), self.buckets, strict=True):
            seen += count
            if seen and seen >= required:
                return bound_s
        return 0.0


class Metrics:
    """Counters and gauges of one process; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: Counter[tuple[str, Labels]] = Counter()
        self._gauges: dict[str, float] = {"last_insert_timestamp_seconds": 0.0}
        self._histograms = {"insert_seconds": Histogram()}

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

    def observe(self, name: str, seconds: float) -> None:
        """Add a duration to a histogram."""
        with self._lock:
            self._histograms[name].observe(seconds)

    def sum_by(self, name: str, label: str) -> dict[str, int]:
        """Sum a counter's values by one of its labels."""
        totals: Counter[str] = Counter()
        with self._lock:
            for (counter, labels), value in self._values.items():
                if counter == name:
                    totals[dict(labels).get(label, "")] += value
        return dict(sorted(totals.items()))

    def latency(self, name: str) -> dict[str, float | int | None]:
        """Return a histogram's count and mean, and upper bounds of its median and 99th percentile.

        A bound is None when it is above the last bucket.
        """
        with self._lock:
            histogram = self._histograms[name]
            count = histogram.count
            p50_s, p99_s = histogram.quantile_s(0.5), histogram.quantile_s(0.99)
            return {
                "count": count,
                "mean_s": round(histogram.sum_s / count, 6) if count else 0.0,
                "p50_s": p50_s if p50_s <= BOUNDS_S[-1] else None,
                "p99_s": p99_s if p99_s <= BOUNDS_S[-1] else None,
            }

    def get(self, name: str, **labels: str) -> float:
        """Return a counter's or gauge's value; 0 when it was never set."""
        with self._lock:
            return self._gauges.get(name, self._values[name, tuple(sorted(labels.items()))])

    def render(self) -> str:
        """Return all metrics in Prometheus text exposition format 0.0.4."""
        with self._lock:
            samples = [*self._values.items(), *(((name, ()), value) for name, value in self._gauges.items())]
            histograms = {name: _render_histogram(name, histogram) for name, histogram in self._histograms.items()}
        return "".join(histograms.get(name) or _render_samples(name, samples) for name in _HELP)


def _render_histogram(name: str, histogram: Histogram) -> str:
    kind, text = _HELP[name]
    lines = [f"# HELP {PREFIX}{name} {text}", f"# TYPE {PREFIX}{name} {kind}"]
    seen = 0
    for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), histogram.buckets, strict=True):
        seen += count
        lines.append(f'{PREFIX}{name}_bucket{{le="{bound}"}} {seen}')
    lines += (f"{PREFIX}{name}_sum {histogram.sum_s}", f"{PREFIX}{name}_count {seen}")
    return "\n".join(lines) + "\n"


def _render_samples(name: str, samples: Iterable[tuple[tuple[str, Labels], float]]) -> str:
    kind, text = _HELP[name]
    lines = [f"# HELP {PREFIX}{name} {text}", f"# TYPE {PREFIX}{name} {kind}"]
    for (sample, labels), value in sorted(samples):
        if sample == name:
            label_text = ",".join(f'{key}="{_escape(label)}"' for key, label in labels)
            lines.append(f"{PREFIX}{name}{{{label_text}}} {value}" if label_text else f"{PREFIX}{name} {value}")
    return "\n".join(lines) + "\n"


def _escape(label: str) -> str:
    return label.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
